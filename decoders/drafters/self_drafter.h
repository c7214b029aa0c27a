#pragma once
#include <optional>
#include <vector>

#include "core/language_model.h"
#include "decoders/drafter.h"

namespace specdec {

struct SelfDrafterOptions {
  int64_t layers = 1;               ///< of the target, from the first on
  std::optional<bool> sample = {};  ///< as DraftModelOptions::sample
};

/// Drafts with the target's own first layers, its final norm and its head (early exit:
/// self-speculative decoding, as in LayerSkip, Elhoushi et al., 2024, arXiv:2404.16710). It shares
/// the target's cache: drafted nodes are pending nodes of the target, forgotten before it verifies.
class SelfDrafter final : public Drafter, private ChildDistribution {
 public:
  /// Borrows the target.
  SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options);

  /// Refuses another target than its own, one without internals, and one that has no more layers.
  void check(const LanguageModel& target) const override;
  Draft propose(const DraftContext& context) override;
  bool draws() const override { return options_.sample.value_or(false); }

 private:
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;

  LanguageModel& target_;
  SelfDrafterOptions options_;
  std::vector<int64_t> pending_of_node_;  // of the draft in progress; -1 = not evaluated
};

}  // namespace specdec
