#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/language_model.h"
#include "decoders/drafters/distribution_drafter.h"
#include "decoders/drafters/pending_nodes.h"

namespace specdec {

struct SelfDrafterOptions {
  int64_t layers = 0;              ///< the target's first ones draft; 0 = all
  std::vector<int64_t> skip = {};  ///< layers left out, numbered from 0
  /// Drafts read the upper halves of the target's hierarchical cache (ForwardOptions::kv_read).
  bool upper_half = false;
  /// Applied to what drafts alone, beside the target's own; adapters for the target's weights that
  /// change these layers (see ForwardOptions::draft_adapters). nullptr = none.
  std::shared_ptr<const AdapterStack> adapters = {};
  std::optional<bool> sample = {};          ///< see DraftModelOptions::sample
  std::string own_cache = "drafter.cache";  ///< of a copy; see DraftModelOptions::own_cache
};

/// The layers that draft, ascending, of a target that has `all`. Throws ConfigError: none, all of
/// them where they read what the target reads, a layer that the target has not or that is skipped
/// twice.
std::vector<int64_t> drafting_layers(const SelfDrafterOptions& options, int64_t all);

/// Drafts with some of the target's own layers, its final norm and its head (self-speculative
/// decoding): the first ones (early exit: LayerSkip, Elhoushi et al., 2024, arXiv:2404.16710), or
/// all but some (Draft & Verify, Zhang et al., 2023, arXiv:2309.08168), with adapters of its own or
/// without; or with all, which read the upper halves of the cache (QuantSpec, Tiwari et al., 2025,
/// arXiv:2502.10424). It shares the target's cache: drafted nodes are pending nodes of the target,
/// forgotten before it verifies, so that kept keys and values are never those of the draft.
///
/// Or a copy of the target, with a lossy cache, drafts with all layers. Its cache then follows the
/// target's: it keeps what the target has kept, rounded, and nothing of its own forwards.
class SelfDrafter final : public DistributionDrafter {
 public:
  /// Borrows the target. `copy`: a model of the target's weights, or nullptr.
  SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options,
              std::unique_ptr<LanguageModel> copy = nullptr);

  /// Refuses another target than its own, and one without internals.
  void check(const LanguageModel& target) const override;
  void reset() override { followed_.clear(); }

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  void end_draft() override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override;
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override;
  bool expands_on_device() override { return model_.draws_drafts(); }
  ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                 const Tensor& tokens) override;
  /// Evaluates nodes of the draft, or the tokens that come before it.
  ForwardResult evaluate(const Draft& partial, std::span<const int64_t> frontier,
                         const Tensor& tokens, ForwardOptions options);
  /// Tokens of the text that the model does not keep: the root, and before it those that a grammar
  /// has forced and nobody evaluated.
  TokenSpan uncached() const { return committed_.subspan(static_cast<size_t>(model_.length())); }
  /// The copy keeps what the target has kept of `committed`.
  void follow_target();
  /// The result of `f`, which the model that drafts evaluates.
  template <class F>
  auto of_model(const F& f) const;
  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options);
  /// Throws the error that is being caught: one of the copy names the drafter's cache as the place.
  [[noreturn]] void rethrow_of_copy(const Error& error) const;

  LanguageModel& target_;
  std::unique_ptr<LanguageModel> copy_;
  LanguageModel& model_;         // that drafts: the target or the copy
  std::vector<Token> followed_;  // what the copy keeps
  SelfDrafterOptions options_;
  ForwardOptions forward_;
  TokenSpan committed_;  // of the draft in progress
  PendingNodes nodes_;
};

}  // namespace specdec
