#include "decoders/drafters/self_drafter.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {

SelfDrafter::SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options)
    : target_(target), options_(options) {}

void SelfDrafter::check(const LanguageModel& target) const {
  SPECDEC_CHECK(&target == &target_, "a self drafter drafts for the target that it borrows");
  const Internals* internals = target_.internals();
  if (internals == nullptr) {
    throw ConfigError(
        "drafting with the target's own first layers needs a target that can stop after them; "
        "this one cannot. Choose another drafter");
  }
  if (options_.layers < 1 || options_.layers >= internals->num_layers()) {
    throw ConfigError(fmt::format(
        "layers is {}, and the target has {}: drafting pays with fewer of them (1 to {})",
        options_.layers, internals->num_layers(), internals->num_layers() - 1));
  }
}

Tensor SelfDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  pending_of_node_.resize(partial.tokens.size(), -1);
  TokenBatch batch{.tokens = at::empty({static_cast<int64_t>(frontier.size())}, at::kInt)};
  auto* tokens = batch.tokens.data_ptr<Token>();
  int64_t pending = target_.pending();
  for (const int64_t node : frontier) {
    const auto index = static_cast<size_t>(node);
    const int64_t parent = partial.parents[index];
    batch.parents.push_back(parent < 0 ? -1 : pending_of_node_[static_cast<size_t>(parent)]);
    pending_of_node_[index] = pending++;
    *tokens++ = partial.tokens[index];
  }
  ForwardOptions options;
  options.stop_after_layer = options_.layers - 1;
  return target_.forward(batch, options).logits;
}

Draft SelfDrafter::propose(const DraftContext& context) {
  pending_of_node_.clear();
  const bool draws = options_.sample.value_or(context.shape.allows_drawn());
  Draft draft = context.shape.grow(context, *this, draws ? Siblings::kDrawn : Siblings::kBest);
  // What an early exit evaluated lacks the deeper layers' keys: verification begins afresh.
  target_.truncate(target_.length());
  return draft;
}

}  // namespace specdec
