#include "decoders/shapes/optimal_trees.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {

OptimalTrees::OptimalTrees(std::span<const double> acceptance, int64_t max_nodes, int64_t max_depth)
    : ranks_(static_cast<int64_t>(acceptance.size())),
      max_nodes_(max_nodes),
      max_depth_(max_depth) {
  SPECDEC_CHECK(max_nodes >= 0 && max_depth >= 0, "trees of {} nodes and {} levels", max_nodes,
                max_depth);
  constexpr double kRounding = 1e-9;
  const double sum = std::accumulate(acceptance.begin(), acceptance.end(), 0.0);
  const bool in_range = std::all_of(acceptance.begin(), acceptance.end(), [](double probability) {
    return probability >= 0.0 && probability <= 1.0;
  });
  if (acceptance.empty() || !in_range || !(sum <= 1.0 + kRounding)) {
    throw ConfigError(fmt::format(
        "acceptance [{}] should be the probabilities, from 0 to 1, that the drafter's best, second "
        "best, ... token is accepted; only one of them can be, so that their sum is at most 1",
        fmt::join(acceptance, ", ")));
  }
  values_.assign(index(max_depth + 1, 0, 0), 0.0);
  shares_.assign(values_.size(), 0);
  for (int64_t depth = 1; depth <= max_depth; ++depth) {
    for (int64_t rank = ranks_ - 1; rank >= 0; --rank) {
      fill(depth, rank, acceptance[static_cast<size_t>(rank)]);
    }
  }
}

size_t OptimalTrees::index(int64_t depth, int64_t rank, int64_t nodes) const {
  return static_cast<size_t>((depth * (ranks_ + 1) + rank) * (max_nodes_ + 1) + nodes);
}

double& OptimalTrees::value(int64_t depth, int64_t rank, int64_t nodes) {
  return values_[index(depth, rank, nodes)];
}

double OptimalTrees::value(int64_t depth, int64_t rank, int64_t nodes) const {
  return values_[index(depth, rank, nodes)];
}

void OptimalTrees::fill(int64_t depth, int64_t rank, double probability) {
  for (int64_t nodes = 1; nodes <= max_nodes_; ++nodes) {
    double best = 0.0;
    int64_t best_share = 0;
    for (int64_t share = 1; share <= nodes; ++share) {
      const double below = value(depth - 1, 0, share - 1);
      const double total = probability * (1.0 + below) + value(depth, rank + 1, nodes - share);
      if (total > best) {
        best = total;
        best_share = share;
      }
    }
    value(depth, rank, nodes) = best;
    shares_[index(depth, rank, nodes)] = best_share;
  }
}

double OptimalTrees::expected_accepted(int64_t nodes, int64_t depth) const {
  SPECDEC_CHECK(nodes >= 0 && nodes <= max_nodes_ && depth >= 0 && depth <= max_depth_,
                "no tree of {} nodes and {} levels was computed", nodes, depth);
  return value(depth, 0, nodes);
}

RankTree OptimalTrees::tree(int64_t nodes, int64_t depth) const {
  (void)expected_accepted(nodes, depth);  // checks
  RankTree tree;
  std::vector<int64_t> left = {nodes};         // of each node, for those below it
  std::vector<int64_t> levels_left = {depth};  // below each node
  for (size_t parent = 0; parent < tree.parents.size(); ++parent) {
    const int64_t levels = levels_left[parent];
    int64_t rest = left[parent];
    for (int64_t rank = 0; levels > 0 && rank < ranks_ && rest > 0; ++rank) {
      const int64_t share = shares_[index(levels, rank, rest)];
      if (share == 0) {
        break;
      }
      tree.parents.push_back(static_cast<int64_t>(parent));
      tree.ranks.push_back(rank);
      left.push_back(share - 1);
      levels_left.push_back(levels - 1);
      rest -= share;
    }
  }
  return tree;
}

}  // namespace specdec
