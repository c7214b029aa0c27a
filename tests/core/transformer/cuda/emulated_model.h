#pragma once
#include <ATen/ATen.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "core/families/model.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/transformer/transformer_model.h"

/// Models on the ops of CUDA, for tests. The emulation's device memory is the host's.
namespace specdec {

inline const Placement kEmulated{at::kCPU, WeightLayout::kRows};

inline std::shared_ptr<const TransformerWeights> load_rows(
    const std::filesystem::path& path, std::optional<at::ScalarType> dtype = {}) {
  return load_model(path, {.dtype = dtype, .place = kEmulated});
}

inline TransformerOptions emulated() { return {.ops = cuda_ops(at::kCPU)}; }

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
