#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/drafting_heads.h"
#include "decoders/drafters/distribution_drafter.h"

namespace specdec {

struct AssistantDrafterOptions {
  std::optional<bool> sample = {};  ///< see DraftModelOptions::sample
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
    return {.capture_layers = {}, .internals = true, .prompt_states = false, .on_device = true};
  }
  /// Refuses another target than its own, one without internals, and one whose hidden states or
  /// vocabulary have another size.
  void check(const LanguageModel& target) const override;

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  void end_draft() override { last_hidden_ = Tensor(); }
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override;
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override;
  bool expands_on_device() override { return static_cast<bool>(steps_.device_step); }
  ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                 const Tensor& tokens) override;
  using StepFunction = decltype(AssistantSteps::step);
  /// Steps of nodes of the draft, or of the tokens before it; `tokens` as of expand_on_device.
  AssistantSteps::Step evaluate(const StepFunction& step, const Draft& partial,
                                std::span<const int64_t> frontier, const Tensor& tokens);
  /// The newest committed token, behind those that nobody evaluated (which a grammar has forced).
  TokenSpan unseen() const;
  /// The steps of tokens behind the target's last hidden state; the newest one's.
  AssistantSteps::Step follow(const StepFunction& step, TokenSpan tokens);
  /// The hidden state that a draft which the device draws begins with, before the newest token.
  Tensor hidden_before_newest();

  LanguageModel& target_;
  AssistantSteps steps_;
  TokenSpan committed_;         // of the draft in progress
  Tensor last_hidden_;          // [1, hidden] of the target
  std::vector<Tensor> hidden_;  // [nodes] after each one's step; undefined = not asked yet
};

}  // namespace specdec
