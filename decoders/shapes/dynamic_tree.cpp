#include "decoders/shapes/dynamic_tree.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

/// All nodes that were found, with the probability of the path to each.
class Growth {
 public:
  Growth(const DraftContext& context, ChildDistribution& distribution, int64_t nodes)
      : growth_(DraftGrowth::of_candidates(context, distribution)), nodes_(nodes) {}

  /// Finds up to `count` children of each of the nodes; returns them all.
  std::vector<int64_t> expand(const std::vector<int64_t>& frontier, int64_t count) {
    growth_.expand(frontier, count);
    std::vector<int64_t> found;
    for (const int64_t parent : frontier) {
      for (const Candidate& child : growth_.best(parent, count)) {
        found.push_back(growth_.add(child.token, parent));
        probabilities_.push_back(probabilities_[static_cast<size_t>(parent)] * child.probability);
      }
    }
    return found;
  }

  /// The most likely `count` of the `level`, without those that cannot be verified or expanded.
  std::vector<int64_t> most_likely(const std::vector<int64_t>& level, int64_t count) const {
    const int64_t most = std::min(count, growth_.evaluations_left());
    std::vector<int64_t> kept;
    for (const int64_t node : best_nodes()) {
      if (std::ssize(kept) < most && node >= level.front()) {
        kept.push_back(node);
      }
    }
    std::sort(kept.begin(), kept.end());
    return kept;
  }

  /// The most likely nodes as a draft.
  Draft finish() && {
    std::vector<int64_t> chosen = best_nodes();
    std::sort(chosen.begin(), chosen.end());
    return std::move(growth_).finish(chosen);
  }

 private:
  /// The most likely nodes of all, best first. A node is never more likely than its parent, and of
  /// equal ones the older goes first, so the parents of all are among them.
  std::vector<int64_t> best_nodes() const {
    std::vector<int64_t> nodes(probabilities_.size() - 1);
    std::iota(nodes.begin(), nodes.end(), 1);
    std::stable_sort(nodes.begin(), nodes.end(), [&](int64_t a, int64_t b) {
      return probabilities_[static_cast<size_t>(a)] > probabilities_[static_cast<size_t>(b)];
    });
    nodes.resize(std::min(nodes.size(), static_cast<size_t>(nodes_)));
    return nodes;
  }

  DraftGrowth growth_;
  int64_t nodes_;
  std::vector<double> probabilities_ = {1.0};  // of the path to each node
};

}  // namespace

DynamicTreeShape::DynamicTreeShape(const DynamicTreeOptions& options) : options_(options) {
  if (options.nodes < 1 || options.depth < 1 || options.top_k < 1) {
    throw ConfigError(
        fmt::format("a dynamic tree of {} nodes, depth {} and top_k {}: each must be "
                    "at least 1",
                    options.nodes, options.depth, options.top_k));
  }
}

DraftLimits DynamicTreeShape::next(int64_t /*context*/) {
  return {.tokens = options_.nodes, .depth = options_.depth, .branches = options_.top_k};
}

Draft DynamicTreeShape::grow(const DraftContext& context, ChildDistribution& distribution,
                             Siblings siblings) {
  SPECDEC_CHECK(siblings == Siblings::kBest || context.sampling.greedy(),
                "a dynamic tree over drawn siblings");
  Growth growth(context, distribution, context.max_tokens);
  std::vector<int64_t> frontier = {0};
  while (!frontier.empty()) {
    const std::vector<int64_t> level = growth.expand(frontier, options_.top_k);
    frontier = level.empty() ? level : growth.most_likely(level, options_.top_k);
  }
  return std::move(growth).finish();
}

}  // namespace specdec
