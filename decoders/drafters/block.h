#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/block_model.h"
#include "decoders/drafters/distribution_drafter.h"
#include "decoders/drafters/target_features.h"

namespace specdec {

struct BlockDrafterOptions {
  std::optional<bool> sample = {};           ///< see DraftModelOptions::sample
  std::vector<int64_t> capture_layers = {};  ///< the target's residual streams that it is fed
  /// A draft ends where the head predicts less than this probability that its next token is
  /// accepted, from what was drafted before that token is (DSpark); 0 = it does not.
  double confidence_threshold = 0.0;
};

/// Drafts with a head that evaluates a block of tokens in one forward (DFlash, arXiv:2602.06036,
/// and what came of it): a draft costs one forward of the head's layers, however long it is. The
/// block is evaluated whole, and the draft is what fits of it.
class BlockDrafter final : public DistributionDrafter {
 public:
  BlockDrafter(std::unique_ptr<BlockModel> model, BlockDrafterOptions options);
  Needs needs() const override { return {.capture_layers = target_features_.capture_layers()}; }
  /// Refuses a target of another vocabulary, or without the streams that the head is fed.
  void check(const LanguageModel& target) const override;
  void reset() override;
  void skip(const DraftContext& context) override { target_features_.collect(context); }

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override {
    return model_->logits(partial, frontier);
  }
  bool ends(const Draft& partial, int64_t node) override;
  bool leaves_out_tokens() const override { return model_->leaves_out_tokens(); }
  const DraftVocabulary* vocabulary() const override { return model_->draft_vocabulary(); }
  /// Brings the head's cache in line with what is committed.
  void catch_up(const DraftContext& context);

  std::unique_ptr<BlockModel> model_;
  TargetFeatures target_features_;
  double confidence_threshold_;
};

}  // namespace specdec
