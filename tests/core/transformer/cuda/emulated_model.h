#pragma once
#include <ATen/ATen.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/transformer_model.h"
#include "tests/support/golden.h"

/// Models on the ops of CUDA, for tests. The emulation's device memory is the host's.
namespace specdec {

inline const Placement kEmulated{at::kCPU, WeightLayout::kRows};

inline std::shared_ptr<const TransformerWeights> load_rows(
    const std::filesystem::path& path, std::optional<at::ScalarType> dtype = {}) {
  return load_model(path, {.dtype = dtype, .place = kEmulated});
}

inline TransformerOptions emulated() { return {.ops = cuda_ops(at::kCPU)}; }

/// Golden sets of the families that run on the CUDA ops: all.
inline std::vector<std::string> cuda_golden_names() {
  std::vector<std::string> names = all_golden_names();
  names.emplace_back("recurrentgemma-a");
  return names;
}

/// A random Gemma 3 of two layers, one with a window, which takes long contexts.
inline std::shared_ptr<const TransformerWeights> small_gemma(
    uint64_t seed = 1, const Placement& place = kEmulated,
    std::optional<at::ScalarType> dtype = {}) {
  const auto config = parse_gemma_config(
      R"({"model_type": "gemma3_text", "vocab_size": 40, "hidden_size": 16,
          "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8,
          "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"],
          "max_position_embeddings": 2048, "eos_token_id": []})",
      "small_gemma");
  return pack(*random_model(config, {.seed = seed, .norm_deviation = 0.3}),
              {.dtype = dtype, .place = place});
}

inline TokenBatch batch_of(std::span<const Token> tokens) {
  return {.tokens = at::tensor(c10::ArrayRef<Token>(tokens.data(), tokens.size()), at::kInt)};
}

inline void commit_all(LanguageModel& model) {
  std::vector<int64_t> path(static_cast<size_t>(model.pending()));
  std::iota(path.begin(), path.end(), 0);
  model.commit(path);
}

/// Logits of token after token, each decoded alone.
inline std::vector<Tensor> decoded(LanguageModel& model, std::span<const Token> tokens) {
  std::vector<Tensor> logits;
  for (const Token& token : tokens) {
    logits.push_back(model.decode_get_logits({&token, 1})[0]);
  }
  return logits;
}

}  // namespace specdec
