#pragma once
#include <memory>
#include <vector>

#include "core/block_model.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/feature_model.h"

namespace specdec {

/// The cached forward of a P-EAGLE head (arXiv:2602.01469) beside its target. Its items are
/// EAGLE-3's: a token with the features of the one before. The output at the last kept item gives
/// the first draft; mask tokens with the head's own features after it, in one forward, the others,
/// all independent of one another. Nothing of these is kept.
class ParallelEagleModel final : public BlockModel {
 public:
  /// options.max_length: most tokens of the target.
  ParallelEagleModel(std::shared_ptr<const EagleHead> head,
                     std::shared_ptr<const TransformerWeights> target, const KvStoreFactory& store,
                     const TransformerOptions& options);

  int64_t vocab_size() const override { return model_->vocab_size(); }
  int64_t feature_width() const override { return head_->fc.size(1); }
  int64_t depth() const override { return head_->config.drafts; }
  const DraftVocabulary* draft_vocabulary() const override { return model_->draft_vocabulary(); }
  int64_t length() const override { return model_->length(); }
  void reset() override { model_->truncate(0); }
  void keep(TokenSpan committed, const Tensor& features) override;
  void evaluate(Token newest, int64_t wanted) override;
  Tensor logits(const Draft& partial, std::span<const int64_t> nodes) override;

 private:
  std::shared_ptr<const EagleHead> head_;
  std::unique_ptr<FeatureModel> model_;
  Token newest_ = -1;
  Tensor first_;   // [1, draft vocab] after the last kept item
  Tensor logits_;  // [wanted, draft vocab] of the newest block
};

}  // namespace specdec
