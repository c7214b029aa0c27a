#pragma once
#include <memory>

#include "core/families/gemma/weights.h"

namespace specdec {

/// A random Gemma 3 that is small enough to enumerate: 3 layers (sliding, full, sliding) with a
/// window of 6, hidden size 16.
inline std::shared_ptr<TransformerWeights> tiny_gemma(int64_t vocab,
                                                      at::ScalarType dtype = at::kDouble,
                                                      uint64_t seed = 1) {
  GemmaConfig config;
  config.vocab_size = vocab;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 3;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  config.query_scale = 0.35;
  config.sliding_window = 6;
  config.sliding_layers = {true, false, true};
  config.max_position_embeddings = 256;
  config.end_ids = {};
  return pack(*random_gemma(config, {.seed = seed, .dtype = dtype, .norm_deviation = 0.3}));
}

}  // namespace specdec
