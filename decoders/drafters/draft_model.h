#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/language_model.h"
#include "decoders/drafter.h"

namespace specdec {

struct DraftModelOptions {
  /// Draw from the draft model's distribution when the target is sampled. If not, always take its
  /// best tokens: then the target accepts with the probability that it gives them, instead of the
  /// overlap of the two distributions. Neither is better for every pair. Not given = wherever the
  /// shape allows it.
  std::optional<bool> sample = {};
};

/// Drafts with a smaller model of the same vocabulary (Leviathan et al., 2023; Chen et al., 2023),
/// under the target's sampling parameters: chains, and trees grown level by level, as SpecInfer has
/// them (Miao et al., 2023, arXiv:2305.09781).
class DraftModelDrafter final : public Drafter, private ChildDistribution {
 public:
  explicit DraftModelDrafter(std::unique_ptr<LanguageModel> model,
                             const DraftModelOptions& options = {});
  /// Refuses a target whose vocabulary has another size.
  void check(const LanguageModel& target) const override;
  void reset() override;
  Draft propose(const DraftContext& context) override;
  bool draws() const override { return options_.sample.value_or(false); }

 private:
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  /// Feeds what `committed` has and the cache has not; the logits after its newest token, [1,
  /// vocab].
  Tensor catch_up();
  /// Keeps the drafted nodes that were committed since.
  void commit_accepted();

  std::unique_ptr<LanguageModel> model_;
  DraftModelOptions options_;
  TokenSpan committed_;        // of the draft in progress
  std::vector<Token> cached_;  // what the model keeps
  struct Pending {             // a drafted node that the model has evaluated
    Token token = 0;
    int64_t parent = -1;  // pending node, -1 = the last kept token
  };
  std::vector<Pending> pending_;
  std::vector<int64_t> pending_of_node_;  // of the draft in progress; -1 = root or not evaluated
};

}  // namespace specdec
