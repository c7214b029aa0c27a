#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/drafting_heads.h"
#include "decoders/drafters/distribution_drafter.h"

namespace specdec {

struct MedusaOptions {
  /// Draw from the heads' distributions when the target is sampled. If not, take their best tokens.
  /// Not given = wherever the shape allows it.
  std::optional<bool> sample = {};
};

/// Drafts with heads that each guess a token further ahead from one hidden state of the target
/// (Medusa, Cai et al., 2024, arXiv:2401.10774): all nodes of one depth have the same distribution,
/// so every tree is the Cartesian product that the paper has, cut to a shape, and a draft costs one
/// run of the heads, whatever its size. At most as deep as there are heads.
class MedusaDrafter final : public DistributionDrafter {
 public:
  explicit MedusaDrafter(MedusaHeads heads, const MedusaOptions& options = {});
  Needs needs() const override {
    return {.capture_layers = {}, .internals = true, .prompt_states = false, .on_device = true};
  }
  /// Refuses a target that does not give its hidden states, or whose hidden states or vocabulary
  /// have another size.
  void check(const LanguageModel& target) const override;

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  void end_draft() override { hidden_ = Tensor(); }
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override {
    return heads_.draw_chain ? heads_.draw_chain(chain, hidden_) : std::nullopt;
  }
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override {
    return heads_.draw_tree ? heads_.draw_tree(tree, hidden_) : std::nullopt;
  }
  bool expands_on_device() override { return static_cast<bool>(heads_.device_logits); }
  ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                 const Tensor& tokens) override;
  const DraftVocabulary* vocabulary() const override {
    return heads_.vocabulary ? &*heads_.vocabulary : nullptr;
  }
  /// Logits [vocab] of one head, computed when a draft first asks for them.
  const Tensor& distribution(int64_t head);

  MedusaHeads heads_;
  Tensor hidden_;                      // [1, hidden] that the draft in progress starts from
  std::vector<Tensor> distributions_;  // [heads]; undefined = not asked for yet
};

}  // namespace specdec
