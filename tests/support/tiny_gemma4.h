#pragma once
#include <fmt/format.h>

#include <memory>
#include <string>

#include "core/families/gemma/gemma4_config.h"
#include "core/families/model.h"

namespace specdec {

/// A random Gemma 4 of a kind ("dense", "e", "moe") or Gemma 3n ("3n") that is small enough to
/// enumerate: sliding layers with a window of 6 and full ones of another head size, hidden size 16.
inline std::shared_ptr<TransformerWeights> tiny_gemma4(const std::string& kind, int64_t vocab,
                                                       at::ScalarType dtype = at::kDouble,
                                                       uint64_t seed = 1) {
  std::string config = fmt::format(
      R"("vocab_size": {0}, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6, "max_position_embeddings": 256,
      "vocab_size_per_layer_input": {0}, "eos_token_id": [], "final_logit_softcapping": 8.0)",
      vocab);
  if (kind == "3n") {
    config += R"(, "model_type": "gemma3n_text", "num_hidden_layers": 4, "num_kv_shared_layers": 2,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
      "hidden_size_per_layer_input": 4, "laurel_rank": 3, "activation_sparsity_pattern": [0.5, 0, 0, 0])";
  } else {
    config += R"(, "model_type": "gemma4_text", "global_head_dim": 16, "num_hidden_layers": 4,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
  }
  if (kind == "dense" || kind == "moe") {
    config += R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 1)";
  }
  if (kind == "moe") {
    config += R"(, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
      "moe_intermediate_size": 8)";
  }
  if (kind == "dense" || kind == "moe") {
    config += R"(, "hidden_size_per_layer_input": 0)";
  }
  if (kind == "e") {
    config += R"(, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 4,
      "use_double_wide_mlp": true)";
  }
  return pack(*random_model(parse_gemma4_config("{" + config + "}", "tiny Gemma"),
                            {.seed = seed, .dtype = dtype, .norm_deviation = 0.3}));
}

}  // namespace specdec
