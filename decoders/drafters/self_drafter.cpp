#include "decoders/drafters/self_drafter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/kv_snapshot.h"
#include "core/stopwatch.h"

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
  if (layers.empty() || (std::ssize(layers) == all && !options.upper_half)) {
    throw ConfigError(fmt::format(
        "{} of the target's {} layers draft: give 'layers', the first so many (1 to {}), or "
        "'skip', those left out, or a cache that reads less ('cache', 'upper_half')",
        layers.empty() ? "none" : "all", all, all - 1));
  }
  return layers;
}

SelfDrafter::SelfDrafter(LanguageModel& target, const SelfDrafterOptions& options,
                         std::unique_ptr<LanguageModel> copy)
    : DistributionDrafter(options.sample),
      target_(target),
      copy_(std::move(copy)),
      model_(copy_ ? *copy_ : target),
      options_(options) {
  const Internals* internals = target.internals();
  if (internals != nullptr && copy_ == nullptr) {
    const std::vector<int64_t> layers = drafting_layers(options, internals->num_layers());
    if (std::ssize(layers) < internals->num_layers()) {
      forward_.layers = layers;
    }
    forward_.draft_adapters = options_.adapters.get();
    forward_.kv_read = options.upper_half ? KvRead::kUpperHalf : KvRead::kAll;
  }
}

void SelfDrafter::check(const LanguageModel& target) const {
  SPECDEC_CHECK(&target == &target_, "a self drafter drafts for the target that it borrows");
  const Internals* internals = target_.internals();
  if (internals == nullptr) {
    throw ConfigError(
        "drafting with the target's own layers needs a target that can leave some out or give its "
        "keys and values; this one cannot. Choose another drafter");
  }
}

template <class F>
auto SelfDrafter::of_model(const F& f) const {
  try {
    return f();
  } catch (const Error& error) {
    rethrow_of_copy(error);
  }
}

Tensor SelfDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  return evaluate(partial, frontier, {}, forward_).logits;
}

ForwardResult SelfDrafter::expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                            const Tensor& tokens) {
  ForwardOptions options = forward_;
  options.logits_use = LogitsUse::kSampler;
  return evaluate(partial, frontier, tokens, std::move(options));
}

ForwardResult SelfDrafter::evaluate(const Draft& partial, std::span<const int64_t> frontier,
                                    const Tensor& tokens, ForwardOptions options) {
  if (frontier.size() != 1 || frontier.front() != 0) {
    return forward(nodes_.batch(partial, frontier, model_.pending(), tokens), options);
  }
  if (model_.pending() > 0) {  // of a tree that a device has drafted by damaged logits
    model_.truncate(model_.length());
  }
  options.logits = Logits::kLast;
  nodes_.begin(std::ssize(uncached()) - 1);
  return forward({.tokens = token_tensor(uncached()), .rows = {}, .parents = {}}, options);
}

std::optional<DrawnChain> SelfDrafter::draw_chain(const ChainRequest& chain) {
  return of_model([&] { return model_.draw_chain(uncached(), chain, forward_); });
}

std::optional<DrawnTree> SelfDrafter::draw_tree(const TreeRequest& tree) {
  return of_model([&] { return model_.draw_tree(uncached(), tree, forward_); });
}

ForwardResult SelfDrafter::forward(const TokenBatch& batch, const ForwardOptions& options) {
  return of_model([&] { return counted(model_.forward(batch, options)); });
}

void SelfDrafter::rethrow_of_copy(const Error& error) const {
  if (copy_ == nullptr) {
    throw;
  }
  throw Error(fmt::format("drafter self: its own cache ({}, not model.cache) failed: {}",
                          options_.own_cache, error.what()));
}

void SelfDrafter::follow_target() {
  const TokenSpan kept = committed_.first(static_cast<size_t>(target_.length()));
  const bool continues = followed_.size() <= kept.size() &&
                         std::equal(followed_.begin(), followed_.end(), kept.begin());
  if (!continues || model_.length() != std::ssize(followed_)) {
    followed_.clear();
  }
  model_.truncate(std::ssize(followed_));
  try {
    model_.snapshots()->kv_follow(*target_.internals(), std::ssize(kept));
  } catch (const Error& error) {
    rethrow_of_copy(error);
  }
  followed_.assign(kept.begin(), kept.end());
}

std::optional<DraftRoom> SelfDrafter::begin_draft(const DraftContext& context) {
  committed_ = context.committed;
  const int64_t room = model_.max_length() - std::ssize(context.committed);
  if (room < 0) {
    return std::nullopt;
  }
  if (copy_) {
    const ScopedSeconds timer(followed_.empty() ? context.prompt_seconds : nullptr);
    follow_target();
  }
  return DraftRoom{.evaluated = room};
}

void SelfDrafter::end_draft() {
  // Drafted nodes lack the deeper layers' keys, or have not the target's, so verification starts
  // afresh.
  model_.truncate(model_.length());
}

}  // namespace specdec
