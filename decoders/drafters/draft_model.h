#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/language_model.h"
#include "decoders/drafters/distribution_drafter.h"
#include "decoders/drafters/pending_nodes.h"

namespace specdec {

struct DraftModelOptions {
  /// Draw from the draft model's distribution when the target is sampled. If not, always take its
  /// best tokens: then the target accepts with the probability that it gives them, instead of the
  /// overlap of the two distributions. Neither is better for every pair. Not given = wherever the
  /// shape allows it.
  std::optional<bool> sample = {};
  /// The target's vocabulary, where the two models pad the same tokens to different numbers of rows
  /// (Qwen 2.5 of 0.5 and of 7 billion parameters do): rows beyond it are left out of the draft's
  /// logits, missing ones are never drafted. 0 = the draft model's own, and the target must have
  /// the same.
  int64_t vocab_size = 0;
  /// The key of the model's cache in a config, where that is another one than the target's options
  /// make, such as "strategies[1].drafter.cache": its errors name it.
  std::string own_cache = {};
};

/// Drafts with a smaller model of the same vocabulary (Leviathan et al., 2023; Chen et al., 2023),
/// under the target's sampling parameters: chains, and trees grown level by level, as SpecInfer has
/// them (Miao et al., 2023, arXiv:2305.09781).
class DraftModelDrafter final : public DistributionDrafter {
 public:
  explicit DraftModelDrafter(std::unique_ptr<LanguageModel> model,
                             const DraftModelOptions& options = {});
  /// Refuses a target whose vocabulary has another size than the drafts.
  void check(const LanguageModel& target) const override;
  void reset() override;

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override;
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override;
  bool expands_on_device() override;
  ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                 const Tensor& tokens) override;
  void see_tokens(const Draft& draft) override;
  /// Brings the cache in line with the text, but for what a chain or tree feeds: its newest tokens.
  TokenSpan begin_on_device();
  /// Evaluates nodes of the draft, which are pending then.
  ForwardResult evaluate(const Draft& partial, std::span<const int64_t> frontier,
                         const Tensor& tokens, const ForwardOptions& options);
  /// Keeps in the cache what it shares with the text before its newest token.
  void keep_common();
  /// Feeds what the text has and the cache has not; the logits after its newest token, [1, vocab].
  Tensor catch_up();
  /// Feeds and keeps the text up to `end`, more than is cached; logits of its last token, [1,
  /// vocab], where `scored` is kLast.
  Tensor read(int64_t end, Logits scored);
  /// Reads the prompt, at a request's first draft.
  Tensor read_prompt(TokenSpan text, Logits scored);
  /// The draft model's logits [n, its vocabulary] over the drafts' vocabulary.
  Tensor fitted(const Tensor& logits) const;
  /// Keeps the drafted nodes that were committed since.
  void commit_accepted();
  /// The result of `f`, which the model evaluates.
  template <class F>
  auto of_cache(const F& f);

  std::unique_ptr<LanguageModel> model_;
  int64_t vocab_size_;  // of the drafts
  std::string own_cache_;
  TokenSpan committed_;               // of the draft in progress
  double* prompt_seconds_ = nullptr;  // the same
  std::vector<Token> cached_;         // what the model keeps
  struct Pending {                    // a drafted node that the model has evaluated
    Token token = 0;
    int64_t parent = -1;  // pending node, -1 = the last kept token
    int64_t node = -1;    // of the draft in progress, where expand_on_device evaluated it
  };
  std::vector<Pending> pending_;
  PendingNodes nodes_;  // of the draft in progress
};

}  // namespace specdec
