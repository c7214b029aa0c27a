#pragma once
#include <ATen/core/Tensor.h>

#include "core/transformer/plan.h"

namespace specdec {

using at::Tensor;

/// Angles grow by these per position: [head_dim / 2] theta^(-2i / head_dim) / factor / divisors[i].
Tensor rope_frequencies(const RopeConfig& rope, int64_t head_dim, const at::TensorOptions& options);

/// Positions of a table that had room for `positions`, 0 at first, and is to hold those below
/// `length`.
int64_t rope_positions(int64_t positions, int64_t length);

/// cos and sin of rotary angles for positions 0, 1, ...: computed once and grown by doubling, not
/// rebuilt per token.
class RopeTable {
 public:
  RopeTable(const RopeConfig& rope, int64_t head_dim, const at::TensorOptions& options);

  /// Makes room for positions below `length`; true when the tensors have been replaced.
  bool reserve(int64_t length);
  const Tensor& cos() const { return cos_; }  ///< [positions, head_dim / 2]
  const Tensor& sin() const { return sin_; }
  bool serves(const RopeConfig& rope, int64_t head_dim) const;

 private:
  RopeConfig rope_;
  int64_t head_dim_;
  at::TensorOptions options_;  ///< dtype of the activations, and the device of the tables
  Tensor cos_, sin_;
};

}  // namespace specdec
