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
  void commit(std::span<const int64_t> path, int64_t row = 0) override;
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

// Parts of the forward that heads on a target share.

/// Input embeddings as the first layer sees them: tokens [n] int32 -> [n, hidden].
Tensor embed_tokens(const GemmaWeights& weights, const Tensor& tokens);
/// Final-normed hidden states to logits, soft cap included: [n, hidden] -> [n, vocab].
Tensor head_logits(const GemmaWeights& weights, const Tensor& hidden);
/// The rows of `values` [n, ...] that belong to the last node of each row of a batch of n nodes.
Tensor last_of_rows(const TokenBatch& batch, const Tensor& values);
/// Throws Error for a token that the model does not know.
void check_vocabulary(const GemmaWeights& weights, const Tensor& tokens);

}  // namespace specdec
