#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/gemma/weights.h"

namespace specdec {

/// Everything that the plain forward computes; the names of the golden sets.
struct ReferenceResult {
  Tensor logits;               ///< [rows, T, vocab]
  Tensor hidden;               ///< [rows, T, hidden], after the final norm
  Tensor hidden_pre_norm;      ///< [rows, T, hidden]
  std::vector<Tensor> layers;  ///< [rows, T, hidden] after each layer
};

/// The plain, differentiable, uncached forward in ATen ops: the oracle that the cached forward is
/// tested against, and the path that training uses. tokens: [rows, T] int64, positions 0..T-1.
/// Weights of less than float32 are widened; runs on any device. `matmul_dtype` bfloat16 multiplies
/// the layers' matrices in it (all else stays as it is): training with less exact, faster products.
ReferenceResult reference_forward(const GemmaWeights& weights, const Tensor& tokens,
                                  std::optional<at::ScalarType> matmul_dtype = std::nullopt);

}  // namespace specdec
