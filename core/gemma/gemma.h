#pragma once
#include <memory>

#include "core/gemma/weights.h"
#include "core/language_model.h"

namespace specdec {

struct GemmaOptions {
  int64_t max_length = 0;  ///< most tokens of a row; 0 = the config's max_position_embeddings
  int64_t page_size = 16;  ///< tokens a page of the cache
};

/// The cached forward of Gemma 1, 2 and 3: weights + paged cache + workspace. Cheap to make, one
/// per thread; weights are shared.
class GemmaModel final : public LanguageModel {
 public:
  explicit GemmaModel(std::shared_ptr<const GemmaWeights> weights,
                      const GemmaOptions& options = {});
  ~GemmaModel() override;

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void keep(std::span<const int64_t> path, int64_t row = 0) override;
  void truncate(int64_t length, int64_t row = 0) override;
  void reorder(std::span<const int64_t> parents) override;
  int64_t length(int64_t row = 0) const override;
  int64_t pending(int64_t row = 0) const override;
  int64_t vocab_size() const override;
  int64_t max_length() const override;
  Internals* internals() override;

  const GemmaWeights& weights() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace specdec
