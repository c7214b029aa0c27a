#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/linear.h"
#include "core/transformer/plan.h"

namespace specdec {

using at::Tensor;

/// One layer's weights. Norm scales are what is multiplied (1 + w), in the compute dtype; an absent
/// norm is an undefined tensor, and what it would norm stays as it is.
template <class Matrix>
struct LayerOf {
  Matrix qkv;      ///< [(heads + 2 * kv_heads) * head_dim, hidden, or 2 * hidden for joined inputs]
  Matrix output;   ///< [hidden, heads * head_dim]
  Matrix gate_up;  ///< [2 * intermediate, hidden]
  Matrix down;     ///< [hidden, intermediate]
  /// Of the matrices' outputs, in the compute dtype; undefined = none. A Linear has its own too.
  Tensor qkv_bias, output_bias, gate_up_bias, down_bias;
  Tensor attention_norm, attention_post_norm;  ///< [hidden]
  Tensor mlp_norm, mlp_post_norm;              ///< [hidden]
  Tensor q_norm, k_norm;                       ///< [head_dim]
};

/// As a checkpoint holds them: what the reference and training read, and what is written.
using LayerTensors = LayerOf<Tensor>;
/// As the forward runs them.
using LayerWeights = LayerOf<Linear>;

/// What a loaded checkpoint says beside its matrices.
struct TransformerInfo {
  TransformerConfig config;
  std::vector<LayerPlan> plan;
  /// Of the matrices; kChar: int8 in blocks; kFloat where they have several formats.
  at::ScalarType weight_dtype = at::kFloat;
  ActivationFormat activations =
      ActivationFormat::kFloat32;  ///< what products round their inputs to
  at::Device device = at::kCPU;
  double embedding_scale = 1.0;  ///< of embeddings as the first layer sees them
  Tensor final_norm;             ///< [hidden]; undefined = none (the layer of a head)
  std::string fingerprint;  ///< of config and weights, 16 hex digits: says which weights a run used
  std::string weights_fingerprint = {};  ///< the same without <bos>, <eos> and the longest input

  /// Activations: float64 for float64 weights, else float32 (norms and sums never round to
  /// less).
  at::ScalarType compute_dtype() const {
    return weight_dtype == at::kDouble ? at::kDouble : at::kFloat;
  }
};

template <class Matrix>
struct TransformerOf : TransformerInfo {
  Matrix embedding;  ///< [vocab, hidden]
  Matrix head;       ///< [vocab, hidden]; the embedding itself when tied
  std::vector<LayerOf<Matrix>> layers;
};

/// A checkpoint as plain tensors: for the reference, training and writing.
using TransformerTensors = TransformerOf<Tensor>;
/// A checkpoint as the forward runs it: immutable, shared by all models that run on it.
using TransformerWeights = TransformerOf<Linear>;

/// How plain tensors are laid out for the forward.
struct PackOptions {
  std::optional<at::ScalarType> dtype;  ///< default: their own
  ActivationFormat activations = ActivationFormat::kFloat32;
};
/// A matrix [out, in], with a bias [out] or none.
Linear pack(const Tensor& matrix, const PackOptions& options = {}, const Tensor& bias = {});
/// All matrices. Norms are shared.
LayerWeights pack(const LayerTensors& layer, const PackOptions& options = {});
std::shared_ptr<TransformerWeights> pack(const TransformerTensors& model,
                                         const PackOptions& options = {});
/// Memory of the matrices that every forward reads: all layers' and the head.
int64_t forward_bytes(const TransformerWeights& weights);
/// The inverse: plain tensors of what is multiplied.
TransformerTensors unpack(const TransformerWeights& weights);
/// How the matrices of a head are packed that lives on a target: as int8 where the target's lie in
/// blocks of any format, with its activations, else in their own dtype.
PackOptions head_packing(const TransformerWeights& target);
/// Throws ConfigError for int8 activations of a model without weights in blocks.
void require_blocks(ActivationFormat activations, bool has_blocks);
/// Makes all products with weights in blocks round their inputs so. Throws ConfigError for int8
/// activations where there are none.
void set_activations(TransformerWeights& weights, ActivationFormat activations);

/// How a checkpoint becomes weights.
struct LoadOptions {
  /// Weights are converted to it (kChar: int8 in blocks of 32 inputs); default: each matrix as
  /// stored, also in those blocks of GGUF that products can be made with, while others become
  /// float32. Where one is float64, all are.
  std::optional<at::ScalarType> dtype;
  at::Device device = at::kCPU;
  /// Of the forward (plain tensors have none); int8: ConfigError where weights are not in blocks.
  ActivationFormat activations = ActivationFormat::kFloat32;
};

}  // namespace specdec
