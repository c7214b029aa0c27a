#include "decoders/drafters/suffix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace specdec {

SuffixDrafter::SuffixDrafter(const SuffixOptions& options,
                             std::shared_ptr<const SuffixAutomaton> corpus)
    : options_(options), corpus_(std::move(corpus)) {
  const bool valid = options.min_match >= 1 && options.max_depth >= 1 && options.factor >= 0.0 &&
                     std::isfinite(options.factor) && std::isfinite(options.offset) &&
                     options.min_probability >= 0.0 && options.min_probability <= 1.0;
  if (!valid) {
    throw ConfigError(
        fmt::format("suffix needs min_match and max_depth of at least 1, factor of at least 0 and "
                    "min_probability from 0 to 1, not {}, {}, {} and {}",
                    options.min_match, options.max_depth, options.factor, options.min_probability));
  }
}

void SuffixDrafter::reset() {
  text_ = SuffixAutomaton();
  tokens_.clear();
  in_corpus_ = {};
}

void SuffixDrafter::update(TokenSpan committed) {
  const bool continues = committed.size() >= tokens_.size() &&
                         std::equal(tokens_.begin(), tokens_.end(), committed.begin());
  if (!continues) {
    reset();
  }
  for (const Token token : committed.subspan(tokens_.size())) {
    text_.append(token);
    if (corpus_ != nullptr) {
      in_corpus_ = corpus_->extend(in_corpus_, token);
    }
  }
  tokens_.insert(tokens_.end(), committed.begin() + static_cast<int64_t>(tokens_.size()),
                 committed.end());
}

void SuffixDrafter::try_matches(const SuffixAutomaton& text, SuffixAutomaton::Match match,
                                const DraftContext& context, GrownDraft& best) const {
  const Followers followers = [&](int64_t state, int64_t count) {
    return text.followers(state, count);
  };
  for (; match.length >= options_.min_match; match = text.shorter(match)) {
    const double wanted = options_.factor * static_cast<double>(match.length) + options_.offset;
    const BestFirstLimits limits{
        .max_tokens = static_cast<int64_t>(
            std::clamp(std::floor(wanted), 0.0, static_cast<double>(context.max_tokens))),
        .max_depth = std::min(context.max_depth, options_.max_depth),
        .max_branches = context.max_branches,
        .min_weight = options_.min_probability};
    // At most as many tokens can be accepted as a path is deep or a draft has tokens.
    if (static_cast<double>(limits.max_tokens) <= best.score) {
      return;
    }
    GrownDraft grown = grow_best_first(context.committed.back(), match.state, limits, followers);
    if (grown.score > best.score) {
      best = std::move(grown);
    }
  }
}

Draft SuffixDrafter::propose(const DraftContext& context) {
  update(context.committed);
  GrownDraft best{.draft = Draft::root(context.committed.back())};
  try_matches(text_, text_.newest_repeat(), context, best);
  if (corpus_ != nullptr) {
    try_matches(*corpus_, in_corpus_, context, best);
  }
  return std::move(best.draft);
}

}  // namespace specdec
