#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/gated_activation.h"
#include "core/types.h"

namespace specdec {

/// Rotary embedding of one kind of layer.
struct RopeConfig {
  double theta = 10000.0;
  double factor = 1.0;  ///< linear scaling: inverse frequencies are divided by it
  /// [head_dim / 2] each inverse frequency's own divisor as well (Llama 3); empty = 1.
  std::vector<double> divisors = {};
  /// Pairs i and i + head_dim / 2 that are rotated, the first ones (Gemma 4's full layers); 0 =
  /// all.
  int64_t rotated_pairs = 0;
  /// Dimensions that the exponents of theta are counted over (RecurrentGemma: those that are
  /// rotated); 0 = head_dim.
  int64_t exponent_dims = 0;

  bool operator==(const RopeConfig&) const = default;
};

/// What a layer's values are made of.
enum class ValueKind {
  kProjected,  ///< a projection of their own
  kRawKeys     ///< the projection of the keys, before its norm and rotation (Gemma 4: K = V)
};

/// Experts beside a layer's dense MLP (Gemma 4): `chosen` of them are evaluated for each token.
struct ExpertsPlan {
  int64_t count = 0;  ///< 0 = none
  int64_t chosen = 0;
  int64_t intermediate_size = 0;

  bool operator==(const ExpertsPlan&) const = default;
};

/// The recurrent block of Griffin (De et al., 2024, arXiv:2402.19427; RecurrentGemma) in
/// attention's place: a branch through a causal convolution and a gated linear recurrence (RG-LRU),
/// times a gated one. The layer's heads are the blocks of the recurrence's gates, head_dim channels
/// each; kv_heads is 0.
struct RecurrencePlan {
  int64_t convolution_width = 0;  ///< tokens that the convolution reads; 0 = the layer attends

  bool operator==(const RecurrencePlan&) const = default;
};

/// Parallel residual streams, of which layers evaluate one (AltUp: Baykal et al., 2023,
/// arXiv:2301.13310; Gemma 3n).
struct AltUpConfig {
  int64_t streams = 0;         ///< 0 = the plain residual stream
  int64_t active = 0;          ///< the one that layers evaluate
  bool correct_scale = false;  ///< what the layers' own inputs read is scaled

  bool operator==(const AltUpConfig&) const = default;
};

/// All that the forward needs to know of one layer; a new family is a new plan.
struct LayerPlan {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t window = 0;        ///< 0 = sees everything
  double query_scale = 1.0;  ///< multiplies q.k
  double soft_cap = 0.0;     ///< of the attention scores; 0 = none
  RopeConfig rope;
  bool qk_norm = false;     ///< Gemma 3: each head of q and k is normed before the rotation
  bool post_norms = false;  ///< Gemma 2, 3: the outputs of attention and MLP are normed too
  Activation activation = Activation::kGeluTanh;
  bool qkv_bias = false;  ///< q, k and v have biases
  bool output_bias = false;
  bool mlp_bias = false;       ///< gate, up and down have
  bool joined_inputs = false;  ///< q, k, v read [attention inputs, normed residual]: EAGLE-3
  /// An earlier layer whose keys and values it reads: it projects queries only. -1 = its own.
  int64_t kv_source = -1;
  ValueKind values = ValueKind::kProjected;
  bool value_norm = false;      ///< each head of v is normed, without a scale (Gemma 3n, 4)
  bool layer_scalar = false;    ///< the residual stream is multiplied by a number last (Gemma 4)
  int64_t per_layer_size = 0;   ///< width of its own inputs of each token (Gemma 3n, 4 E); 0 = none
  int64_t per_layer_index = 0;  ///< which of the token's inputs these are
  ExpertsPlan experts;
  /// Standard deviations above the mean of the gate at which the MLP cuts it (Gemma 3n).
  std::optional<double> sparsity_cut;
  RecurrencePlan recurrence;
  AltUpConfig altup;        ///< the same in all layers
  int64_t laurel_rank = 0;  ///< of the low-rank branch beside attention (Gemma 3n); 0 = none

  bool operator==(const LayerPlan&) const = default;
};

/// Whether a layer keeps a state instead of keys and values.
inline bool is_recurrent(const LayerPlan& layer) { return layer.recurrence.convolution_width > 0; }
/// Numbers of a recurrent layer's state after a token, 0 for others: the last inputs of the
/// convolution, and the recurrence's own, for each channel.
inline int64_t state_size(const LayerPlan& layer) {
  return layer.recurrence.convolution_width * layer.heads * layer.head_dim;
}

// Rows of a layer's matrices, said here alone.

/// Rows of the projection of the queries and columns of the output projection; of a recurrent
/// layer, its channels.
inline int64_t query_rows(const LayerPlan& layer) { return layer.heads * layer.head_dim; }
/// Rows of keys or values, whether or not the layer has its own.
inline int64_t kv_rows(const LayerPlan& layer) { return layer.kv_heads * layer.head_dim; }
/// Projections of keys and values that a layer has: 0, 1 (values are raw keys) or 2.
inline int64_t kv_projections(const LayerPlan& layer) {
  return layer.kv_source >= 0 || is_recurrent(layer) ? 0
         : layer.values == ValueKind::kRawKeys       ? 1
                                                     : 2;
}
/// Rows of the fused projection of queries, keys and values; of a recurrent layer, those of both
/// branches: the gate, then what the convolution reads.
inline int64_t qkv_rows(const LayerPlan& layer) {
  return is_recurrent(layer) ? 2 * query_rows(layer)
                             : query_rows(layer) + kv_projections(layer) * kv_rows(layer);
}

/// Whether a layer has nothing beyond Gemma 3's and Llama's: its own keys and values, one dense
/// MLP, the plain residual stream, no recurrence.
bool is_plain(const LayerPlan& layer);

/// Some layers of a plan, in their order, which may name one twice: a kv_source is where the layer
/// it names stood last. InternalError where it does not stand before the layer that reads it.
std::vector<LayerPlan> select_layers(const std::vector<LayerPlan>& plan,
                                     std::span<const int64_t> layers);

/// The scalar s, whole if one is, for which 1 / sqrt(s) is exactly `scale`, as configs write a
/// query_scale: 1 / scale^2 is rounded, and would be read back as a scale that differs in the last
/// bit.
double query_scalar(double scale);

/// What is known of a whole model without its weights, whatever its family (core/families/).
struct TransformerConfig {
  std::string family;  ///< "gemma3_text": the model_type of its config.json
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  double rms_norm_eps = 1e-6;
  int64_t max_position_embeddings = 0;
  int64_t sliding_window = 0;  ///< of its sliding layers; 0 = it has none
  bool tie_word_embeddings = true;
  double final_soft_cap = 0.0;  ///< on the logits; 0 = none
  bool bidirectional = false;   ///< an encoder, which cannot decode
  int64_t per_layer_vocab = 0;  ///< rows of the table of the layers' own inputs
  int64_t per_layer_count = 0;  ///< layers that it has inputs of; 0 = there is no table
  std::vector<Token> end_ids;
  std::vector<Token> suppressed_ids;  ///< that are never generated (suppress_tokens)
  Token bos_id = 0;
};

}  // namespace specdec
