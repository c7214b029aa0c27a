#pragma once
#include <memory>
#include <vector>

#include "core/language_model.h"
#include "decoders/drafter.h"

namespace specdec {

struct DraftModelOptions {
  /// Draw from the draft model's law when the target is sampled. If not, always take its best
  /// token: then the target accepts with the probability that it gives this token, instead of the
  /// overlap of the two laws. Neither is better for every pair.
  bool sample = true;
};

/// Drafts a chain with a smaller model of the same vocabulary (Leviathan et al., 2023; Chen et al.,
/// 2023), under the target's sampling parameters.
class DraftModelDrafter final : public Drafter {
 public:
  explicit DraftModelDrafter(std::unique_ptr<LanguageModel> model,
                             const DraftModelOptions& options = {});
  /// Refuses a target whose vocabulary has another size.
  void check(const LanguageModel& target) const override;
  void reset() override;
  Draft propose(const DraftContext& context) override;

 private:
  /// Feeds what `committed` has and the cache has not; the logits after its newest token.
  Tensor catch_up(TokenSpan committed);
  /// Appends a child of the chain's last node, chosen or drawn from the model's law.
  void add_token(const DraftContext& context, const Tensor& logits, bool draws, Draft& draft);

  std::unique_ptr<LanguageModel> model_;
  DraftModelOptions options_;
  std::vector<Token> cached_;  // what the model's cache holds
};

}  // namespace specdec
