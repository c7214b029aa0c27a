#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/linear.h"
#include "core/kernels/recurrence.h"
#include "core/kernels/row_table.h"
#include "core/transformer/paging/layer_source.h"
#include "core/transformer/plan.h"

namespace specdec {

using at::Tensor;

/// Experts beside a layer's MLP, see ExpertsPlan.
template <class Matrix>
struct ExpertsOf {
  Matrix router;                ///< [count, hidden], in the compute dtype
  std::vector<Matrix> gate_up;  ///< [count] of [2 * intermediate, hidden]
  std::vector<Matrix> down;     ///< [count] of [hidden, intermediate]
  Tensor router_norm;           ///< [hidden] of the router's input, 1 / sqrt(hidden) included
  Tensor output_scale;          ///< [count] of each expert's output
  Tensor dense_post_norm;       ///< [hidden] of the MLP's output, before both are added
  Tensor norm, post_norm;       ///< [hidden] of the experts' input and of their sum
};

/// How a layer adds its own inputs of each token (Gemma 3n, 4 E).
template <class Matrix>
struct PerLayerOf {
  Matrix gate;        ///< [per_layer_size, hidden]
  Matrix projection;  ///< [hidden, per_layer_size]
  Tensor post_norm;   ///< [hidden]
};

/// The low-rank branch beside attention (Gemma 3n).
template <class Matrix>
struct LaurelOf {
  Matrix left;       ///< [rank, hidden]
  Matrix right;      ///< [hidden, rank]
  Tensor post_norm;  ///< [hidden]
};

/// Tensors of a layer between parallel residual streams (AltUpConfig), in the compute dtype.
struct AltUpTensors {
  Tensor router;        ///< [streams, hidden]
  Tensor router_norm;   ///< [hidden], 1 / hidden included
  Tensor predict;       ///< [streams * streams, streams]
  Tensor correct;       ///< [streams, streams]
  Tensor output_scale;  ///< [hidden]; undefined = 1
};

/// One layer's weights. Norm scales are what is multiplied (1 + w), in the compute dtype; an absent
/// norm is an undefined tensor, and what it would norm stays as it is.
template <class Matrix>
struct LayerOf {
  Matrix qkv;      ///< [qkv_rows(plan), hidden, or 2 * hidden for joined inputs]
  Matrix output;   ///< [hidden, query_rows(plan)]
  Matrix gate_up;  ///< [2 * intermediate, hidden]
  Matrix down;     ///< [hidden, intermediate]
  /// Biases [out] of the matrices, in the compute dtype; undefined = none. A Linear has its own
  /// too.
  Tensor qkv_bias, output_bias, gate_up_bias, down_bias;
  Tensor attention_norm, attention_post_norm;  ///< [hidden]
  Tensor mlp_norm, mlp_post_norm;              ///< [hidden]
  Tensor q_norm, k_norm;                       ///< [head_dim]
  double scalar = 1.0;                         ///< of the residual stream after the layer
  ExpertsOf<Matrix> experts;
  PerLayerOf<Matrix> per_layer;
  LaurelOf<Matrix> laurel;
  RecurrenceTensors recurrence;
  AltUpTensors altup;
  /// The layer's number in the LayerSource, without which its matrices hold nothing; -1: always in
  /// memory.
  int64_t in_source = -1;
};

/// f(matrix) for each matrix of a layer that is there and is no expert's, in a fixed order.
template <class Layer, class F>
void visit_shared_matrices(Layer& layer, const F& f) {
  const auto visit = [&f](auto&... matrices) {
    ((matrices.defined() ? f(matrices) : void()), ...);
  };
  visit(layer.qkv, layer.output, layer.gate_up, layer.down, layer.experts.router,
        layer.per_layer.gate, layer.per_layer.projection, layer.laurel.left, layer.laurel.right);
}

/// f(matrix) for each matrix of a layer that is there, in a fixed order.
template <class Layer, class F>
void visit_matrices(Layer& layer, const F& f) {
  visit_shared_matrices(layer, f);
  for (auto* stack : {&layer.experts.gate_up, &layer.experts.down}) {
    for (auto& matrix : *stack) {
      f(matrix);
    }
  }
}

/// f(vector) for each tensor of a layer that is there and is no matrix, in a fixed order.
template <class Layer, class F>
void visit_vectors(Layer& layer, const F& f) {
  const auto visit = [&f](auto&... vectors) { ((vectors.defined() ? f(vectors) : void()), ...); };
  visit(layer.attention_norm, layer.attention_post_norm, layer.mlp_norm, layer.mlp_post_norm,
        layer.q_norm, layer.k_norm, layer.qkv_bias, layer.output_bias, layer.gate_up_bias,
        layer.down_bias);
  visit(layer.experts.router_norm, layer.experts.output_scale, layer.experts.dense_post_norm,
        layer.experts.norm, layer.experts.post_norm, layer.per_layer.post_norm,
        layer.laurel.post_norm);
  visit(layer.recurrence.convolution, layer.recurrence.convolution_bias,
        layer.recurrence.input_gate, layer.recurrence.input_gate_bias, layer.recurrence.decay_gate,
        layer.recurrence.decay_gate_bias, layer.recurrence.decay);
  visit(layer.altup.router, layer.altup.router_norm, layer.altup.predict, layer.altup.correct,
        layer.altup.output_scale);
}

/// Weights as a checkpoint holds them: what the reference and training read, and what is written.
using LayerTensors = LayerOf<Tensor>;
/// Weights as the forward runs them.
using LayerWeights = LayerOf<Linear>;

/// What a loaded checkpoint says beside its matrices.
struct TransformerInfo {
  TransformerConfig config;
  std::vector<LayerPlan> plan;
  /// Dtype of the matrices; kChar: int8 in blocks; kFloat where they have several formats.
  at::ScalarType weight_dtype = at::kFloat;
  ActivationFormat activations =
      ActivationFormat::kFloat32;  ///< what products round their inputs to
  Placement place;
  std::shared_ptr<LayerSource> source = {};  ///< of layers on disk; nullptr: all are in memory
  double embedding_scale = 1.0;              ///< of embeddings as the first layer sees them
  Tensor final_norm;                         ///< [hidden]; undefined = none (the layer of a head)
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
  // The layers' own inputs of each token; undefined = none.
  RowTable per_layer_table;     ///< [per_layer_vocab, layers * per_layer_size], as stored
  Matrix per_layer_projection;  ///< [layers * per_layer_size, hidden]
  Tensor per_layer_norm;        ///< [per_layer_size]
  // Into and out of the parallel residual streams but the active one.
  std::vector<Matrix> altup_projections;   ///< [streams - 1] of [hidden, hidden]
  std::vector<Matrix> altup_unembeddings;  ///< [streams - 1] of [hidden, hidden]
};

/// f(matrix) for each matrix that every forward reads, or may read where it is an expert's: all but
/// the embedding.
template <class Model, class F>
void visit_forward_matrices(Model& model, const F& f) {
  f(model.head);
  for (auto& layer : model.layers) {
    visit_matrices(layer, f);
  }
  if (model.per_layer_projection.defined()) {
    f(model.per_layer_projection);
  }
  for (auto* stack : {&model.altup_projections, &model.altup_unembeddings}) {
    for (auto& matrix : *stack) {
      f(matrix);
    }
  }
}

/// A checkpoint as plain tensors: for the reference, training and writing.
using TransformerTensors = TransformerOf<Tensor>;
/// A checkpoint as the forward runs it: immutable, shared by all models that run on it.
using TransformerWeights = TransformerOf<Linear>;

/// How plain tensors are laid out for the forward.
struct PackOptions {
  std::optional<at::ScalarType> dtype = {};  ///< default: their own
  ActivationFormat activations = ActivationFormat::kFloat32;
  std::optional<Placement> place = {};  ///< default: where the tensors are
};
/// A matrix [out, in], with a bias [out] or none.
Linear pack(const Tensor& matrix, const PackOptions& options = {}, const Tensor& bias = {});
/// All matrices. Norms are shared.
LayerWeights pack(const LayerTensors& layer, const PackOptions& options = {});
std::shared_ptr<TransformerWeights> pack(const TransformerTensors& model,
                                         const PackOptions& options = {});
/// Reads of the layers that are not always in memory; nothing where all are.
std::optional<LayerReads> layer_reads(const TransformerWeights& weights);
/// Memory of the matrices that the forward of one token reads: all layers' and the head; of experts
/// as many as are chosen.
int64_t forward_bytes(const TransformerWeights& weights);
/// Throws ConfigError where a model has fewer layers than are to be active; 0 = all.
void check_active_layers(int64_t count, int64_t layers);
/// A model of the first `count` layers, which shares their weights; its fingerprint says so. 0 or
/// all: the model itself. Throws as check_active_layers. What those layers read of others is there:
/// a kv_source is an earlier layer.
std::shared_ptr<const TransformerWeights> first_layers(
    std::shared_ptr<const TransformerWeights> weights, int64_t count);
/// Plain tensors of what the forward multiplies: the inverse of pack().
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
  Placement place = {};
  /// Activations of the forward (plain tensors have none); int8: ConfigError where weights are not
  /// in blocks.
  ActivationFormat activations = ActivationFormat::kFloat32;
};

}  // namespace specdec
