#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "decoders/draft_shape.h"

namespace specdec {

/// A tree whose nodes are named by rank: child r of a node is the drafter's r-th best (or r-th
/// drawn) token after it, from 0. Node 0 is the root; parents come before their children, level by
/// level.
struct RankTree {
  std::vector<int64_t> parents = {-1};  ///< [n]
  std::vector<int64_t> ranks = {0};     ///< [n]; the root's is not read

  int64_t nodes() const { return static_cast<int64_t>(parents.size()) - 1; }  ///< beside the root
  std::vector<int64_t> depths() const;
  int64_t depth() const;
  /// Most children of a node, counting ranks that are left out.
  int64_t branches() const;
};

/// The tree of these paths, each a list of ranks from the root (Medusa's way of writing trees: Cai
/// et al., 2024, arXiv:2401.10774, section 2.1.2). Throws ConfigError for an empty path, a negative
/// rank, a path given twice, or one whose parent is not given.
RankTree tree_of_paths(std::vector<std::vector<int64_t>> paths);

/// Every node of depth d has widths[d] children. Throws ConfigError for a width below 1, or a tree
/// of more than `max_nodes` nodes.
RankTree tree_of_widths(std::span<const int64_t> widths, int64_t max_nodes);

/// Grows the tree: siblings drawn, or of the given ranks. Nodes that do not fit the context's
/// limits are left out before anything is drawn, the deepest first. Drawn siblings have no rank; a
/// node then gets as many as the tree has children of it.
Draft grow_rank_tree(const RankTree& tree, const DraftContext& context,
                     ChildDistribution& distribution, Siblings siblings);

}  // namespace specdec
