#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "decoders/shapes/rank_tree.h"

namespace specdec {

/// The trees that accept the most tokens, for every number of nodes and every depth, by the dynamic
/// programming of Sequoia (Chen et al., 2024, arXiv:2402.12374, section 3.1): the probability that
/// the child of rank r is accepted, once its parent is, is taken to be the same at every node.
class OptimalTrees {
 public:
  /// Finds the trees for acceptance[r], the probability of rank r; they need not decrease, but
  /// their sum is at most one. Costs about max_depth * ranks * max_nodes^2 / 2 multiplications.
  /// Throws ConfigError for probabilities out of range.
  OptimalTrees(std::span<const double> acceptance, int64_t max_nodes, int64_t max_depth);

  /// Expected accepted tokens of the best tree of at most `nodes` nodes and `depth` levels.
  double expected_accepted(int64_t nodes, int64_t depth) const;
  /// Tree of that many nodes and levels. It has fewer nodes where more would never be accepted.
  RankTree tree(int64_t nodes, int64_t depth) const;

 private:
  /// Best value of the children of rank `rank` and above of a node with `depth` levels below it,
  /// when `nodes` nodes are left for them.
  double& value(int64_t depth, int64_t rank, int64_t nodes);
  double value(int64_t depth, int64_t rank, int64_t nodes) const;
  size_t index(int64_t depth, int64_t rank, int64_t nodes) const;
  void fill(int64_t depth, int64_t rank, double probability);

  int64_t ranks_;
  int64_t max_nodes_;
  int64_t max_depth_;
  std::vector<double> values_;
  std::vector<int64_t> shares_;  // nodes of the subtree that the child of that rank roots; 0 = none
};

}  // namespace specdec
