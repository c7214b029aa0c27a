#pragma once
#include <cstdint>
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

  bool operator==(const RopeConfig&) const = default;
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
  bool qkv_bias = false;  ///< Qwen 2: q, k and v have biases
  bool output_bias = false;
  bool mlp_bias = false;       ///< gate, up and down have
  bool joined_inputs = false;  ///< q, k, v read [attention inputs, normed residual]: EAGLE-3
};

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
  std::vector<Token> end_ids;
  Token bos_id = 0;
};

}  // namespace specdec
