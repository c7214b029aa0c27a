#pragma once
#include <optional>
#include <vector>

#include "core/language_model.h"
#include "decoders/drafters/distribution_drafter.h"
#include "decoders/drafters/pending_nodes.h"

namespace specdec {

struct SelfDrafterOptions {
  int64_t layers = 1;               ///< of the target, from the first on
  std::optional<bool> sample = {};  ///< as DraftModelOptions::sample
};

/// Drafts with the target's own first layers, its final norm and its head (early exit:
/// self-speculative decoding, as in LayerSkip, Elhoushi et al., 2024, arXiv:2404.16710). It shares
/// the target's cache: drafted nodes are pending nodes of the target, forgotten before it verifies.
class SelfDrafter final : public DistributionDrafter {
 public:
  /// Borrows the target.
  SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options);

  /// Refuses another target than its own, one without internals, and one that has no more layers.
  void check(const LanguageModel& target) const override;

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  void end_draft() override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;

  LanguageModel& target_;
  int64_t layers_;
  TokenSpan committed_;  // of the draft in progress
  PendingNodes nodes_;
};

}  // namespace specdec
