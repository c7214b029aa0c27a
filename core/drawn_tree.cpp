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

int64_t EvaluatedNodes::size_of(int64_t level) const {
  const auto index = static_cast<size_t>(level);
  return firsts[index + 1] - firsts[index];
}

std::vector<int64_t> EvaluatedNodes::parents_in_level(int64_t level) const {
  SPECDEC_CHECK(level > 0 && level < levels(), "level {} of {}", level, levels());
  const auto index = static_cast<size_t>(level);
  std::vector<int64_t> own(parents.begin() + firsts[index], parents.begin() + firsts[index + 1]);
  for (int64_t& parent : own) {
    parent -= firsts[index - 1];
  }
  return own;
}

EvaluatedNodes evaluated_nodes(std::span<const int64_t> parents) {
  EvaluatedNodes evaluated{.nodes = {},
                           .parents = {},
                           .firsts = {0},
                           .places = std::vector<int64_t>(parents.size(), -1)};
  for (const std::vector<int64_t>& level : branching_nodes(parents)) {
    for (const int64_t node : level) {
      const auto index = static_cast<size_t>(node);
      evaluated.places[index] = std::ssize(evaluated.nodes);
      evaluated.parents.push_back(
          node == 0 ? -1 : evaluated.places[static_cast<size_t>(parents[index])]);
      evaluated.nodes.push_back(node);
    }
    evaluated.firsts.push_back(std::ssize(evaluated.nodes));
  }
  return evaluated;
}

}  // namespace specdec
