#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/plan.h"

namespace specdec {

using at::Tensor;

/// One layer's weights as the kernels read them. Norm scales are what is multiplied (1 + w), in the
/// compute dtype; an absent norm is an undefined tensor, and what it would norm stays as it is.
struct LayerWeights {
  Tensor qkv;      ///< [(heads + 2 * kv_heads) * head_dim, hidden, or 2 * hidden for joined inputs]
  Tensor output;   ///< [hidden, heads * head_dim]
  Tensor gate_up;  ///< [2 * intermediate, hidden]
  Tensor down;     ///< [hidden, intermediate]
  Tensor attention_norm, attention_post_norm;  ///< [hidden]
  Tensor mlp_norm, mlp_post_norm;              ///< [hidden]
  Tensor q_norm, k_norm;                       ///< [head_dim]
};

/// A loaded checkpoint: immutable, shared by all models that run on it.
struct TransformerWeights {
  TransformerConfig config;
  std::vector<LayerPlan> plan;
  Tensor embedding;              ///< [vocab, hidden]
  Tensor head;                   ///< [vocab, hidden]; the embedding itself when tied
  double embedding_scale = 1.0;  ///< of embeddings as the first layer sees them
  std::vector<LayerWeights> layers;
  Tensor final_norm;        ///< [hidden]; undefined = none (the layer of a head)
  std::string fingerprint;  ///< of config and weights, 16 hex digits: says which weights a run used

  at::ScalarType weight_dtype() const { return embedding.scalar_type(); }
  /// Activations: float64 for float64 weights, else float32 (norms and sums never round to less).
  at::ScalarType compute_dtype() const;
};

/// How a checkpoint becomes weights.
struct LoadOptions {
  std::optional<at::ScalarType> dtype;  ///< weights are converted to it; default: as stored
  at::Device device = at::kCPU;
};

}  // namespace specdec
