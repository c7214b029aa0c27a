#include "decoders/shapes/trace_shape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "decoders/analysis/draft_overlap.h"
#include "decoders/shapes/draft_growth.h"

namespace specdec {
namespace {

/// Tokens that come before `token` when the most likely come first, equal ones by their id.
int64_t rank_of(Token token, std::span<const double> distribution) {
  const double own = distribution[static_cast<size_t>(token)];
  int64_t rank = 0;
  for (size_t i = 0; i < distribution.size(); ++i) {
    rank +=
        distribution[i] > own || (distribution[i] == own && i < static_cast<size_t>(token)) ? 1 : 0;
  }
  return rank;
}

}  // namespace

TraceShape::TraceShape(const TraceOptions& options) : options_(options) {
  if (options.depth < 1 || options.width < 1) {
    throw ConfigError(fmt::format("a trace of depth {} and width {}; both must be at least 1",
                                  options.depth, options.width));
  }
  trace_.depth = options.depth;
  trace_.width = options.width;
}

void TraceShape::follow(TokenSpan text) {
  text_ = text;
  grown_ = false;
  drafted_ = 0;
  seen_.clear();
}

DraftLimits TraceShape::next(int64_t /*context*/) {
  return {.tokens = options_.depth, .depth = options_.depth, .branches = 1};
}

bool TraceShape::see(DraftGrowth& growth, int64_t node) {
  growth.expand({&node, 1});
  const Token wanted = text_[static_cast<size_t>(node)];
  Seen seen;
  if (growth.draws()) {
    const auto distribution = growth.distribution(node);
    seen.distribution.assign(distribution.begin(), distribution.end());
    seen.rank = rank_of(wanted, distribution);
    seen_.push_back(std::move(seen));
    return seen_.back().distribution[static_cast<size_t>(wanted)] > 0.0;
  }
  const std::vector<Candidate> best = growth.best(node, options_.width);
  const auto found = std::find_if(best.begin(), best.end(), [&](const Candidate& candidate) {
    return candidate.token == wanted;
  });
  seen.best = best.empty() ? -1 : best.front().token;
  seen.rank = found == best.end() ? -1 : found - best.begin();
  seen_.push_back(std::move(seen));
  return found != best.end();
}

Draft TraceShape::grow(const DraftContext& context, ChildDistribution& distribution,
                       Siblings siblings) {
  DraftGrowth growth(context, distribution, siblings);
  grown_ = true;
  draws_ = growth.draws();
  drafted_ = std::min(context.max_tokens, context.max_depth);
  if (context.max_evaluated < drafted_) {
    drafted_ = context.max_evaluated + 1;  // the deepest token is not evaluated
  }
  // Beyond the end of the text nothing can be told, and nothing is asked.
  const int64_t length = std::min(drafted_, static_cast<int64_t>(text_.size()));
  for (int64_t node = 0; node < length && see(growth, node); ++node) {
    growth.add(text_[static_cast<size_t>(node)], node);
  }
  return std::move(growth).finish();
}

TracePosition TraceShape::position_of(const Draft& draft, TargetProbs& target) const {
  TracePosition position{.drafted = grown_ ? drafted_ : draft.proposed()};
  const auto longest = static_cast<int64_t>(grown_ ? seen_.size() : draft.tokens.size() - 1);
  for (int64_t i = 0; i < std::min(longest, static_cast<int64_t>(text_.size())); ++i) {
    const auto index = static_cast<size_t>(i);
    const auto p = target.after(i);
    const auto wanted = static_cast<size_t>(text_[index]);
    TraceDepth depth{.p = p[wanted]};
    if (!grown_) {
      const Token proposed = draft.tokens[index + 1];
      depth.rank = proposed == text_[index] ? 0 : -1;
      depth.overlap = p[static_cast<size_t>(proposed)];
    } else if (draws_) {
      depth.rank = seen_[index].rank;
      depth.q = seen_[index].distribution[wanted];
      depth.overlap = overlap(p, seen_[index].distribution);
    } else {
      depth.rank = seen_[index].rank;
      depth.overlap = seen_[index].best < 0 ? 0.0 : p[static_cast<size_t>(seen_[index].best)];
    }
    position.depths.push_back(depth);
    if (depth.rank < 0) {
      break;
    }
  }
  return position;
}

void TraceShape::record(const Draft& draft, TargetProbs& target) {
  if (draft.probs.defined()) {
    throw ConfigError(
        "this drafter draws its tokens by itself; only drafters that leave that to the shape "
        "(ChildDistribution), or propose deterministically, can be traced");
  }
  for (int64_t node = 1; node < draft.size(); ++node) {
    SPECDEC_CHECK(draft.parents[static_cast<size_t>(node)] == node - 1,
                  "a drafter proposed a tree where a chain was asked for");
  }
  trace_.drawn = trace_.drawn || (grown_ && draws_);
  trace_.width = !grown_ && draft.proposed() > 0 ? 1 : trace_.width;
  trace_.positions.push_back(position_of(draft, target));
}

}  // namespace specdec
