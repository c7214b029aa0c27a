#pragma once
#include <fmt/format.h>

#include <memory>

#include "core/families/model.h"
#include "core/families/recurrent_gemma/config.h"

namespace specdec {

/// A random RecurrentGemma that is small enough to enumerate: 5 layers, of which the third attends
/// with a window of 6, hidden size 16, 24 channels in 2 blocks.
inline std::shared_ptr<TransformerWeights> tiny_recurrent_gemma(int64_t vocab,
                                                                at::ScalarType dtype = at::kDouble,
                                                                uint64_t seed = 1,
                                                                const Placement& place = {}) {
  const auto text = fmt::format(
      R"({{"model_type": "recurrent_gemma", "vocab_size": {}, "hidden_size": 16,
           "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 2,
           "num_key_value_heads": 1, "lru_width": 24, "attention_window_size": 6,
           "max_position_embeddings": 256, "eos_token_id": []}})",
      vocab);
  return pack(*random_model(parse_recurrent_gemma_config(text, "tiny_recurrent_gemma"),
                            {.seed = seed, .dtype = dtype, .norm_deviation = 0.3}),
              {.place = place});
}

}  // namespace specdec
