#include "decoders/shapes/rank_tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "decoders/shapes/draft_growth.h"

namespace specdec {
namespace {

/// Grows the nodes of a tree in its order, one level after the other.
class RankTreeGrowth {
 public:
  RankTreeGrowth(const RankTree& tree, const DraftContext& context, ChildDistribution& distribution,
                 Siblings siblings)
      : tree_(tree),
        draws_(siblings == Siblings::kDrawn && !context.sampling.greedy()),
        growth_(context, distribution, siblings),
        children_(tree.parents.size()),
        drafted_(tree.parents.size(), -1) {
    const std::vector<int64_t> depths = tree.depths();
    const auto fits =
        std::min<size_t>(tree.parents.size(), static_cast<size_t>(context.max_tokens) + 1);
    for (size_t node = 1; node < fits && depths[node] <= context.max_depth; ++node) {
      children_[static_cast<size_t>(tree.parents[node])].push_back(static_cast<int64_t>(node));
    }
    drafted_[0] = 0;
  }

  Draft grow() && {
    if (grow_on_device()) {
      return std::move(growth_).finish();
    }
    std::vector<int64_t> level = {0};
    while (!level.empty()) {
      level = grow_level(level);
    }
    return std::move(growth_).finish();
  }

 private:
  /// Adds the whole tree, where a device draws it.
  bool grow_on_device() {
    std::vector<int64_t> nodes = {0};
    std::vector<int64_t> parents = {-1};  // places in `nodes`
    std::vector<int64_t> ranks = {0};
    for (size_t parent = 0; parent < nodes.size(); ++parent) {
      for (const int64_t child : children_[static_cast<size_t>(nodes[parent])]) {
        nodes.push_back(child);
        parents.push_back(static_cast<int64_t>(parent));
        ranks.push_back(tree_.ranks[static_cast<size_t>(child)]);
      }
    }
    return growth_.add_drawn_tree(parents, ranks);
  }

  /// Adds the children of the level's nodes; returns them.
  std::vector<int64_t> grow_level(const std::vector<int64_t>& level) {
    std::vector<int64_t> parents;
    std::vector<int64_t> frontier;
    for (const int64_t node : level) {
      const int64_t drafted = drafted_[static_cast<size_t>(node)];
      if (drafted >= 0 && !children_[static_cast<size_t>(node)].empty()) {
        parents.push_back(node);
        frontier.push_back(drafted);
      }
    }
    std::vector<int64_t> next;
    growth_.expand(frontier);
    for (const int64_t parent : parents) {
      add_children(parent);
      const std::vector<int64_t>& children = children_[static_cast<size_t>(parent)];
      next.insert(next.end(), children.begin(), children.end());
    }
    return next;
  }

  void add_children(int64_t parent) {
    const std::vector<int64_t>& children = children_[static_cast<size_t>(parent)];
    const int64_t drafted_parent = drafted_[static_cast<size_t>(parent)];
    if (draws_) {
      const std::vector<int64_t> drawn = growth_.add_children(drafted_parent, std::ssize(children));
      for (size_t i = 0; i < drawn.size(); ++i) {
        drafted_[static_cast<size_t>(children[i])] = drawn[i];
      }
      return;
    }
    const int64_t last = tree_.ranks[static_cast<size_t>(children.back())];
    const std::vector<Candidate> best = growth_.best(drafted_parent, last + 1);
    for (const int64_t node : children) {
      const auto rank = static_cast<size_t>(tree_.ranks[static_cast<size_t>(node)]);
      if (rank < best.size()) {
        drafted_[static_cast<size_t>(node)] = growth_.add(best[rank].token, drafted_parent);
      }
    }
  }

  const RankTree& tree_;
  bool draws_;
  DraftGrowth growth_;
  std::vector<std::vector<int64_t>> children_;  // of the nodes that fit, by rank
  std::vector<int64_t> drafted_;                // [node] -> node of the draft, or -1
};

}  // namespace

std::vector<int64_t> RankTree::depths() const {
  std::vector<int64_t> depths(parents.size(), 0);
  for (size_t node = 1; node < parents.size(); ++node) {
    depths[node] = depths[static_cast<size_t>(parents[node])] + 1;
  }
  return depths;
}

int64_t RankTree::depth() const {
  const std::vector<int64_t> all = depths();
  return *std::max_element(all.begin(), all.end());
}

int64_t RankTree::branches() const { return *std::max_element(ranks.begin(), ranks.end()) + 1; }

RankTree tree_of_paths(std::vector<std::vector<int64_t>> paths) {
  std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  RankTree tree;
  std::map<std::vector<int64_t>, int64_t> nodes = {{{}, 0}};
  for (const std::vector<int64_t>& path : paths) {
    if (path.empty() || path.back() < 0) {
      throw ConfigError(fmt::format("a tree's path is [{}]; it lists ranks from 0, as [0, 1]",
                                    fmt::join(path, ", ")));
    }
    const auto parent = nodes.find({path.begin(), path.end() - 1});
    if (parent == nodes.end()) {
      throw ConfigError(fmt::format("the tree has path [{}], but not its parent [{}]",
                                    fmt::join(path, ", "),
                                    fmt::join(path.begin(), path.end() - 1, ", ")));
    }
    if (!nodes.emplace(path, tree.nodes() + 1).second) {
      throw ConfigError(fmt::format("the tree has path [{}] twice", fmt::join(path, ", ")));
    }
    tree.parents.push_back(parent->second);
    tree.ranks.push_back(path.back());
  }
  return tree;
}

RankTree tree_of_widths(std::span<const int64_t> widths, int64_t max_nodes) {
  RankTree tree;
  int64_t begin = 0;  // of the level that gets children
  for (const int64_t width : widths) {
    const int64_t end = tree.nodes() + 1;
    if (width < 1 || (end - begin) > (max_nodes - tree.nodes()) / width) {
      throw ConfigError(fmt::format("the widths [{}] do not make a tree of 1 to {} nodes",
                                    fmt::join(widths, ", "), max_nodes));
    }
    for (int64_t parent = begin; parent < end; ++parent) {
      for (int64_t rank = 0; rank < width; ++rank) {
        tree.parents.push_back(parent);
        tree.ranks.push_back(rank);
      }
    }
    begin = end;
  }
  return tree;
}

Draft grow_rank_tree(const RankTree& tree, const DraftContext& context,
                     ChildDistribution& distribution, Siblings siblings) {
  return RankTreeGrowth(tree, context, distribution, siblings).grow();
}

}  // namespace specdec
