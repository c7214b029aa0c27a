#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "core/families/gemma/config.h"
#include "core/families/gemma/weights.h"
#include "core/families/model.h"

namespace specdec {

/// A random Gemma 3 that is small enough to enumerate: 3 layers (sliding, full, sliding) with a
/// window of 6, hidden size 16.
inline std::shared_ptr<TransformerWeights> tiny_gemma(int64_t vocab,
                                                      at::ScalarType dtype = at::kDouble,
                                                      uint64_t seed = 1) {
  const auto text = fmt::format(
      R"({{"model_type": "gemma3_text", "vocab_size": {}, "hidden_size": 16,
           "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2,
           "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": {},
           "sliding_window": 6,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
           "rope_theta": 10000.0, "max_position_embeddings": 256, "eos_token_id": []}})",
      vocab, query_scalar(0.35));
  return pack(*random_model(parse_gemma_config(text, "tiny_gemma"),
                            {.seed = seed, .dtype = dtype, .norm_deviation = 0.3}));
}

/// Stores a Gemma 1 to 3 whose config.json is at no hand.
inline void save_gemma(const TransformerTensors& weights, const std::filesystem::path& folder,
                       at::ScalarType dtype = at::kFloat) {
  save_gemma(weights, gemma_config_json({.config = weights.config, .plan = weights.plan}, ""),
             folder, dtype);
}

}  // namespace specdec
