#pragma once
#include <cstdint>
#include <memory>
#include <random>

#include "core/transformer/weights.h"

namespace specdec {

struct RandomWeightsOptions {
  uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  double norm_deviation = 0.1;  ///< of the norms' scales around 1
  /// The numbers of a matrix repeat after 2^20, for models that are only timed: those of a large
  /// one are made in seconds.
  bool repeats = false;
};

/// Random tensors, the same on every platform.
class RandomTensors {
 public:
  explicit RandomTensors(const RandomWeightsOptions& options);
  /// [rows, columns] normal, sd 1/sqrt(columns), of options.dtype.
  Tensor matrix(int64_t rows, int64_t columns);
  /// [size] normal around 1, of the activations' dtype.
  Tensor norm(int64_t size);

 private:
  Tensor normal(at::IntArrayRef shape, double deviation, at::ScalarType dtype);

  RandomWeightsOptions options_;
  std::mt19937_64 generator_;
};

/// All tensors that a layer of this plan may have.
LayerTensors random_layer(RandomTensors& random, const LayerPlan& plan, int64_t hidden_size);

}  // namespace specdec
