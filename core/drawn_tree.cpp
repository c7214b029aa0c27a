#include "core/drawn_tree.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

std::vector<std::vector<int64_t>> branching_nodes(std::span<const int64_t> parents) {
  SPECDEC_CHECK(!parents.empty() && parents.front() == -1, "a tree without a root");
  std::vector<std::vector<int64_t>> levels;
  std::vector<size_t> depths = {0};
  for (size_t node = 1; node < parents.size(); ++node) {
    const int64_t parent = parents[node];
    SPECDEC_CHECK(
        parent >= std::max<int64_t>(parents[node - 1], 0) && parent < static_cast<int64_t>(node),
        "node {} of a tree follows node {}, out of order", node, parent);
    const size_t depth = depths[static_cast<size_t>(parent)];
    depths.push_back(depth + 1);
    levels.resize(std::max(levels.size(), depth + 1));
    if (levels[depth].empty() || levels[depth].back() != parent) {
      levels[depth].push_back(parent);
    }
  }
  return levels;
}

}  // namespace specdec
