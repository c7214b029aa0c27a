#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "decoders/drafters/distribution_drafter.h"

namespace specdec {

struct AssistantDrafterOptions {
  std::optional<bool> sample = {};  ///< see DraftModelOptions::sample
};

/// A head that reads the target's keys and values and keeps none of its own.
struct AssistantSteps {
  int64_t hidden_size = 0;  ///< of the target
  int64_t vocab_size = 0;
  int64_t older_keys = 0;  ///< that its sliding layers see beyond the target's windows
  struct Step {
    Tensor logits;  ///< [n, vocab]
    Tensor hidden;  ///< [n, hidden] of the steps after
  };
  /// One step of n nodes, from their tokens' embeddings [n, hidden] as the target's first layer
  /// sees them and the hidden states [n, hidden] before them, over the kept tokens of the target's
  /// row 0.
  std::function<Step(const Tensor& embeddings, const Tensor& hidden, const Internals& target)> step;
};

/// Drafts with Gemma 4's assistant: each node is one step from its parent's hidden state, the first
/// from the target's last one. All nodes have one position and see the same keys, those of verified
/// tokens only; so a node costs one step whatever the draft's shape, and nothing is left to undo.
class AssistantDrafter final : public DistributionDrafter {
 public:
  /// Borrows the target, whose cache it reads.
  AssistantDrafter(LanguageModel& target, AssistantSteps steps,
                   const AssistantDrafterOptions& options = {});
  Needs needs() const override {
    return {.capture_layers = {}, .internals = true, .prompt_states = false};
  }
  /// Refuses another target than its own, one without internals, and one whose hidden states or
  /// vocabulary have another size.
  void check(const LanguageModel& target) const override;

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  AssistantSteps::Step step(TokenSpan tokens, const Tensor& hidden) const;
  /// The step of the newest committed token, after those that nobody evaluated (which a grammar has
  /// forced).
  Tensor begin();

  LanguageModel& target_;
  AssistantSteps steps_;
  TokenSpan committed_;         // of the draft in progress
  Tensor last_hidden_;          // [1, hidden] of the target
  std::vector<Tensor> hidden_;  // [nodes] after each one's step; undefined = not asked yet
};

}  // namespace specdec
