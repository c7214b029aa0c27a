#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/transformer/weights.h"

namespace specdec {

/// Everything that the plain forward computes; the names of the golden sets.
struct ReferenceResult {
  Tensor logits;               ///< [rows, T, vocab]
  Tensor hidden;               ///< [rows, T, hidden], after the final norm
  Tensor hidden_pre_norm;      ///< [rows, T, hidden]
  std::vector<Tensor> layers;  ///< [rows, T, hidden] after each layer
  /// [layers] keys and values of each layer that has its own, normed and rotated, [rows, kv_heads,
  /// T, head_dim]; of Gemma 3n and 4 only.
  std::vector<std::pair<Tensor, Tensor>> key_values = {};
  /// What the router of each layer with experts says of them, [rows, T, count].
  std::vector<Tensor> router_probs = {};
};

/// Keys and values of the earlier steps of an unrolled head, normed and roped; each [rows,
/// kv_heads, columns, head_dim]: all T columns of step 0, those from `first` on of the later ones.
/// See reference_layer.
struct UnrolledKeys {
  std::vector<Tensor> keys, values;
  int64_t first = 0;  ///< no outputs are wanted of the columns before it
};

/// One layer and how to run it.
struct LayerReference {
  const LayerPlan& plan;
  const LayerTensors& weights;
  double eps = 1e-6;
  bool bidirectional = false;
  at::ScalarType dtype = at::kFloat;         ///< of the activations
  at::ScalarType matmul_dtype = at::kFloat;  ///< matrices are multiplied in it
};

/// The plain, differentiable forward of one layer, as heads have them (Gemma 4's values and scalar
/// too, but neither experts, per-layer inputs, streams nor another layer's keys): residual [rows,
/// T, hidden] at positions 0..T-1 to the residual after it. `attention_inputs` [rows, T, hidden] as
/// in ForwardInputs, for layers with joined inputs.
///
/// With `unrolled`, the layer is step k = unrolled->keys.size() of a head that is fed its own
/// outputs (EAGLE-3's training-time test, arXiv:2503.01840, Section 3.2): column t is the token at
/// position t + k after the true ones up to t, so that its query sees the keys of step 0 at 0..t
/// and those of the later steps at t only. The step's own keys are appended. Columns before
/// unrolled->first have keys of step 0 and nothing else: the result, and the residual of the later
/// steps, are [rows, T - first, hidden].
Tensor reference_layer(const LayerReference& layer, const Tensor& residual,
                       const Tensor& attention_inputs = {}, UnrolledKeys* unrolled = nullptr);

/// x * (mean(x^2) + eps)^-1/2 * scale over the last dimension, differentiable; an undefined scale
/// leaves x as it is.
Tensor reference_norm(const Tensor& x, const Tensor& scale, double eps);

/// The plain, differentiable, uncached forward in ATen ops: the oracle that the cached forward is
/// tested against, and the path that training uses. tokens: [rows, T] int64, positions 0..T-1.
/// Weights of less than float32 are widened; runs on any device. `matmul_dtype` bfloat16 multiplies
/// the layers' matrices in it (all else stays as it is): training with less exact, faster products.
ReferenceResult reference_forward(const TransformerTensors& weights, const Tensor& tokens,
                                  std::optional<at::ScalarType> matmul_dtype = std::nullopt);

/// The target's embedding as its first layer sees it: tokens [...] int64 -> [..., hidden].
Tensor reference_embedding(const TransformerTensors& weights, const Tensor& tokens);
/// Final-normed hidden states [..., hidden] to logits [..., vocab], soft cap included; with
/// `tokens` [n] int64 only theirs, [..., n].
Tensor reference_head(const TransformerTensors& weights, const Tensor& hidden,
                      const Tensor& tokens = {});

}  // namespace specdec
