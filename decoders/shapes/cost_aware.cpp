#include "decoders/shapes/cost_aware.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "decoders/shapes/optimal_trees.h"

namespace specdec {
namespace {

// A decision costs some ten microseconds and the estimates move slowly, but for a request's first.
constexpr int64_t kStepsPerDecision = 8;
// Plain forwards that may be lost before anything was earned, and that can be saved up.
constexpr double kFirstCredit = 2.0;
constexpr double kMaxCredit = 64.0;

RankTree single_token() { return {.parents = {-1, 0}, .ranks = {0, 0}}; }

}  // namespace

CostAwareOptions CostAwareShape::checked(CostAwareOptions options) {
  require_config(options.max_nodes >= 1 && options.max_depth >= 1 && options.branches >= 1,
                 "tree cost_aware: max_nodes, max_depth and branches must be at least 1");
  require_config(options.prior_weight > 0.0, "tree cost_aware: prior_weight must be positive");
  require_config(0.0 < options.memory && options.memory <= 1.0,
                 "tree cost_aware: memory must be in (0, 1]");
  require_config(options.margin >= 0.0, "tree cost_aware: margin must not be negative");
  require_config(0.0 <= options.explore && options.explore <= 1.0,
                 "tree cost_aware: explore must be from 0 to 1");
  require_config(!options.target_cost.points.empty(),
                 "tree cost_aware: needs the target's cost curve");
  require_config(!options.drafter_cost || !options.drafter_cost->points.empty(),
                 "tree cost_aware: the drafter's cost curve is empty; leave it out where drafting "
                 "is free");
  (void)OptimalTrees(options.acceptance, 0, 0);  // checks the first guess
  options.acceptance.resize(static_cast<size_t>(options.branches), 0.0);
  return options;
}

CostAwareShape::CostAwareShape(CostAwareOptions options)
    : options_(checked(std::move(options))),
      acceptance_(options_.acceptance, options_.prior_weight, options_.memory),
      credit_(kFirstCredit * options_.target_cost.seconds(1, 0)) {
  if (options_.drafter_cost) {  // as it sees a text: many tokens at once
    const int64_t most = options_.drafter_cost->points.back().new_tokens;
    catch_up_ = options_.drafter_cost->seconds(most, 0) / static_cast<double>(most);
  }
}

void CostAwareShape::reset() {
  if (options_.persist) {
    acceptance_.weaken();  // the next text may be another one
  } else {
    acceptance_.forget();
    credit_ = kFirstCredit * options_.target_cost.seconds(1, 0);
  }
  plan_ = {};
  decided_ = trying_ = false;
  drafts_ = observations_ = context_ = seen_ = 0;
}

DraftLimits CostAwareShape::next(int64_t context) {
  context_ = context;
  const bool often = trying_ || drafts_ <= kStepsPerDecision;
  if (!decided_ || observations_ >= (often ? 1 : kStepsPerDecision)) {
    decide(context);
  }
  trying_ = plan_.nodes() == 0 || trying_;
  if (plan_.nodes() == 0) {
    if (trial_ + catch_up_seconds() > credit_) {
      return {};
    }
    plan_ = single_token();
  }
  return {.tokens = plan_.nodes(), .depth = plan_.depth(), .branches = plan_.branches()};
}

double CostAwareShape::drafting_seconds(int64_t nodes, int64_t depth, int64_t context) const {
  if (!options_.drafter_cost) {
    return 0.0;
  }
  const int64_t width = std::max<int64_t>(1, (nodes + depth - 1) / depth);
  return static_cast<double>(depth) * options_.drafter_cost->seconds(width, context);
}

double CostAwareShape::catch_up_seconds() const {
  return catch_up_ * static_cast<double>(std::max<int64_t>(0, context_ - seen_));
}

void CostAwareShape::decide(int64_t context) {
  const OptimalTrees trees(acceptance(), options_.max_nodes, options_.max_depth);
  double best_rate = (1.0 + options_.margin) / options_.target_cost.seconds(1, context);
  int64_t best_nodes = 0;
  int64_t best_depth = 0;
  for (int64_t nodes = 1; nodes <= options_.max_nodes; ++nodes) {
    const double verify = options_.target_cost.seconds(1 + nodes, context);
    for (int64_t depth = 1; depth <= std::min(nodes, options_.max_depth); ++depth) {
      const double seconds = verify + drafting_seconds(nodes, depth, context);
      const double rate = (1.0 + trees.expected_accepted(nodes, depth)) / seconds;
      if (rate > best_rate) {
        best_rate = rate;
        best_nodes = nodes;
        best_depth = depth;
      }
    }
  }
  plan_ = trees.tree(best_nodes, best_depth);
  plain_ = options_.target_cost.seconds(1, context);
  trial_ = drafting_seconds(1, 1, context) + options_.target_cost.seconds(2, context) -
           (1.0 + acceptance().front()) * plain_;
  decided_ = true;
  trying_ = false;
  observations_ = 0;
}

Draft CostAwareShape::grow(const DraftContext& context, ChildDistribution& distribution,
                           Siblings siblings) {
  return grow_rank_tree(plan_, context, distribution, siblings);
}

void CostAwareShape::observe(const Draft& draft, const VerifyResult& result) {
  const auto committed = static_cast<double>(result.path.size());
  credit_ = std::min(credit_ + options_.explore * committed * plain_, kMaxCredit * plain_);
  if (draft.proposed() == 0) {
    return;
  }
  const double taken = catch_up_seconds() +
                       drafting_seconds(draft.proposed(), draft.depth(), context_) +
                       options_.target_cost.seconds(draft.size(), context_);
  credit_ = std::min(credit_ + committed * plain_ - taken, kMaxCredit * plain_);
  seen_ = context_ + static_cast<int64_t>(result.path.size()) - 1;
  ++drafts_;
  ++observations_;
  acceptance_.observe(draft, result);
}

}  // namespace specdec
