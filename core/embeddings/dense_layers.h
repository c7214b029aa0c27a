#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/embeddings/sentence_modules.h"

namespace specdec {

/// The dense modules of a folder with their weights, on the CPU.
class DenseLayers {
 public:
  /// Loads `linear.weight` [out, in] and `linear.bias` [out] of each module's model.safetensors.
  /// `width`: of what the first one reads. Throws WeightsError for files that are missing or
  /// damaged, and sizes that do not fit.
  DenseLayers(const std::vector<DenseModule>& modules, int64_t width, at::ScalarType dtype);

  /// [n, width] -> [n, out()].
  at::Tensor apply(const at::Tensor& input) const;
  int64_t out() const { return out_; }

 private:
  struct Layer {
    at::Tensor weight, bias;
    DenseActivation activation;
  };
  std::vector<Layer> layers_;
  int64_t out_;
};

}  // namespace specdec
