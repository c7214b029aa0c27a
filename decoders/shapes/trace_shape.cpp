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

/// Records how a drafter that draws from q rates the text's token.
void compare(std::span<const double> p, std::span<const double> q, Token wanted,
             TraceDepth& depth) {
  const auto own = static_cast<size_t>(wanted);
  depth.rank = rank_of(wanted, q);
  depth.q = q[own];
  depth.overlap = overlap(p, q);
  depth.is_favoured = q[own] > p[own];
  for (size_t token = 0; token < p.size(); ++token) {
    depth.favoured += q[token] > p[token] ? p[token] : 0.0;
  }
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
    seen.distribution = growth.distribution(node);
    if (seen.distribution.empty()) {  // the grammar allows none of the drafter's tokens
      seen_.push_back(std::move(seen));
      return false;
    }
    seen.rank = rank_of(wanted, seen.distribution.row());
    seen_.push_back(std::move(seen));
    return seen_.back().distribution[wanted] > 0.0;
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
  // Nothing is known beyond the end of the text, and nothing is asked.
  const int64_t length = std::min(drafted_, static_cast<int64_t>(text_.size()));
  for (int64_t node = 0; node < length && see(growth, node); ++node) {
    growth.add(text_[static_cast<size_t>(node)], node);
  }
  return std::move(growth).finish();
}

TraceDepth TraceShape::depth_of(const Draft& draft, size_t i, const TokenProbs& p) const {
  const Token wanted = text_[i];
  TraceDepth depth{.p = p[wanted]};
  if (grown_ && draws_) {
    if (seen_[i].distribution.empty()) {
      return depth;
    }
    compare(p.row(), seen_[i].distribution.row(), wanted, depth);
    depth.rank = seen_[i].rank;
    return depth;
  }
  const TokenProbs* drawn_from = draft.drawn_from(static_cast<int64_t>(i));
  if (!grown_ && drawn_from != nullptr) {
    compare(p.row(), drawn_from->row(), wanted, depth);
    return depth;
  }
  const Token proposed = grown_ ? seen_[i].best : draft.tokens[i + 1];
  depth.is_favoured = proposed == wanted;
  depth.rank = grown_ ? seen_[i].rank : depth.is_favoured ? 0 : -1;
  depth.overlap = proposed < 0 ? 0.0 : p[proposed];
  depth.favoured = depth.overlap;
  return depth;
}

TracePosition TraceShape::position_of(const Draft& draft, TargetProbs& target) const {
  TracePosition position{.drafted = grown_ ? drafted_ : draft.proposed()};
  const auto longest = static_cast<int64_t>(grown_ ? seen_.size() : draft.tokens.size() - 1);
  for (int64_t i = 0; i < std::min(longest, static_cast<int64_t>(text_.size())); ++i) {
    position.depths.push_back(depth_of(draft, static_cast<size_t>(i), target.after(i)));
    if (position.depths.back().rank < 0) {
      break;
    }
  }
  return position;
}

void TraceShape::record(const Draft& draft, TargetProbs& target) {
  if (!draft.probs.empty() && draft.proposed() > 1) {
    throw ConfigError(
        "this drafter draws its tokens by itself; only drafters that leave that to the shape "
        "(ChildDistribution), or propose deterministically, can be traced deeper than 1 token");
  }
  for (int64_t node = 1; node < draft.size(); ++node) {
    SPECDEC_CHECK(draft.parents[static_cast<size_t>(node)] == node - 1,
                  "a drafter proposed a tree where a chain was asked for");
  }
  trace_.drawn = trace_.drawn || !draft.probs.empty() || (grown_ && draws_);
  trace_.width = !grown_ && draft.proposed() > 0 ? 1 : trace_.width;
  trace_.positions.push_back(position_of(draft, target));
}

}  // namespace specdec
