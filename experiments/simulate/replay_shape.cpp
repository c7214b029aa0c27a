#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "experiments/simulate/simulate.h"

namespace specdec {

ReplayShape chain_shape(int64_t length) {
  if (length < 1) {
    throw ConfigError(fmt::format("a draft of {} tokens; it needs at least 1", length));
  }
  return {.name = fmt::format("chain of {}", length), .depth = length};
}

ReplayShape parse_tree_shape(const std::string& text) {
  const auto refuse = [&](const std::string& message) {
    throw ConfigError(
        fmt::format("--tree {}: {}; give the ranks on the path to each node, such "
                    "as [[0],[1],[0,0]]",
                    text, message));
  };
  ReplayShape shape{.name = "tree " + text};
  try {
    const auto json = nlohmann::json::parse(text);
    for (const auto& path : json) {
      if (!std::all_of(path.begin(), path.end(),
                       [](const auto& rank) { return rank.is_number_integer(); })) {
        refuse("is no list of lists of whole numbers");
      }
    }
    shape.tree = json.get<std::vector<std::vector<int64_t>>>();
  } catch (const nlohmann::json::exception&) {
    refuse("is no list of lists of whole numbers");
  }
  std::set<std::vector<int64_t>> paths = {{}};
  std::stable_sort(shape.tree.begin(), shape.tree.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (const auto& path : shape.tree) {
    if (path.empty() || *std::min_element(path.begin(), path.end()) < 0) {
      refuse("a path is empty or holds a negative rank");
    }
    if (!paths.insert(path).second) {
      refuse(fmt::format("the path {} is named twice", nlohmann::json(path).dump()));
    }
    if (!paths.contains({path.begin(), path.end() - 1})) {
      refuse(fmt::format("the node above {} is missing", nlohmann::json(path).dump()));
    }
    shape.depth = std::max(shape.depth, static_cast<int64_t>(path.size()));
  }
  if (shape.tree.empty()) {
    refuse("it has no nodes");
  }
  return shape;
}

}  // namespace specdec
