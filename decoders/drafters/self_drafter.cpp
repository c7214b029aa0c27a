#include "decoders/drafters/self_drafter.h"

#include "core/error.h"

namespace specdec {

SelfDrafter::SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options)
    : DistributionDrafter(options.sample), target_(target), layers_(options.layers) {}

void SelfDrafter::check(const LanguageModel& target) const {
  SPECDEC_CHECK(&target == &target_, "a self drafter drafts for the target that it borrows");
  const Internals* internals = target_.internals();
  if (internals == nullptr) {
    throw ConfigError(
        "drafting with the target's own first layers needs a target that can stop after them; "
        "this one cannot. Choose another drafter");
  }
  if (layers_ < 1 || layers_ >= internals->num_layers()) {
    throw ConfigError(fmt::format(
        "layers is {}, and the target has {}: drafting pays with fewer of them (1 to {})", layers_,
        internals->num_layers(), internals->num_layers() - 1));
  }
}

Tensor SelfDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  ForwardOptions options;
  options.stop_after_layer = layers_ - 1;
  if (frontier.size() != 1 || frontier.front() != 0) {
    return target_.forward(nodes_.batch(partial, frontier, target_.pending()), options).logits;
  }
  // The root, and before it the tokens that a grammar has forced and nobody evaluated.
  const TokenSpan uncached = committed_.subspan(static_cast<size_t>(target_.length()));
  options.logits = Logits::kLast;
  nodes_.begin(std::ssize(uncached) - 1);
  return target_.forward({.tokens = token_tensor(uncached), .rows = {}, .parents = {}}, options)
      .logits;
}

std::optional<DraftRoom> SelfDrafter::begin_draft(const DraftContext& context) {
  committed_ = context.committed;
  return DraftRoom{.evaluated = target_.max_length() - std::ssize(context.committed)};
}

void SelfDrafter::end_draft() {
  // Nodes of an early exit lack the deeper layers' keys, so verification starts afresh.
  target_.truncate(target_.length());
}

}  // namespace specdec
