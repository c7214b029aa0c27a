#include "decoders/drafters/self_drafter.h"

#include <fmt/ranges.h>

#include <set>

#include "core/error.h"

namespace specdec {

std::vector<int64_t> drafting_layers(const SelfDrafterOptions& options, int64_t all) {
  const int64_t first = options.layers == 0 ? all : options.layers;
  const std::set<int64_t> skipped(options.skip.begin(), options.skip.end());
  if (first < 1 || first > all) {
    throw ConfigError(fmt::format("layers is {}, and the target has {}: give 1 to {}",
                                  options.layers, all, all - 1));
  }
  if (skipped.size() < options.skip.size() ||
      (!skipped.empty() && (*skipped.begin() < 0 || *skipped.rbegin() >= first))) {
    throw ConfigError(fmt::format("skip is [{}]: name layers from 0 to {}, each once",
                                  fmt::join(options.skip, ", "), first - 1));
  }
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < first; ++layer) {
    if (!skipped.contains(layer)) {
      layers.push_back(layer);
    }
  }
  if (layers.empty() || std::ssize(layers) == all) {
    throw ConfigError(fmt::format(
        "{} of the target's {} layers draft: give 'layers', the first so many (1 to {}), or "
        "'skip', those left out",
        layers.empty() ? "none" : "all", all, all - 1));
  }
  return layers;
}

SelfDrafter::SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options)
    : DistributionDrafter(options.sample), target_(target), options_(options) {
  if (const Internals* internals = target.internals()) {
    forward_.layers = drafting_layers(options, internals->num_layers());
    forward_.draft_adapters = options_.adapters.get();
  }
}

void SelfDrafter::check(const LanguageModel& target) const {
  SPECDEC_CHECK(&target == &target_, "a self drafter drafts for the target that it borrows");
  const Internals* internals = target_.internals();
  if (internals == nullptr) {
    throw ConfigError(
        "drafting with some of the target's own layers needs a target that can leave the others "
        "out; this one cannot. Choose another drafter");
  }
}

Tensor SelfDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  ForwardOptions options = forward_;
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
