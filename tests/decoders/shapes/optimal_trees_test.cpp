#include "decoders/shapes/optimal_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

using Probabilities = std::vector<double>;

/// Expected accepted tokens of a tree: the sum over nodes of the probability that the path to each
/// is accepted.
double expected(const RankTree& tree, const Probabilities& acceptance) {
  std::vector<double> reached(tree.parents.size(), 1.0);
  double sum = 0.0;
  for (size_t node = 1; node < reached.size(); ++node) {
    reached[node] = reached[static_cast<size_t>(tree.parents[node])] *
                    acceptance[static_cast<size_t>(tree.ranks[node])];
    sum += reached[node];
  }
  return sum;
}

/// The best of all trees with exactly `nodes` nodes, by trying them.
double best_by_search(const Probabilities& acceptance, int64_t nodes, int64_t depth) {
  double best = 0.0;
  RankTree tree;
  // Children are only added to the newest node's parent or to later nodes, so every tree comes up.
  const std::function<void(int64_t)> extend = [&](int64_t first_parent) {
    best = std::max(best, expected(tree, acceptance));
    if (tree.nodes() == nodes) {
      return;
    }
    for (int64_t parent = first_parent; parent <= tree.nodes(); ++parent) {
      const auto rank = std::count(tree.parents.begin(), tree.parents.end(), parent);
      if (rank < static_cast<int64_t>(acceptance.size()) &&
          tree.depths()[static_cast<size_t>(parent)] < depth) {
        tree.parents.push_back(parent);
        tree.ranks.push_back(rank);
        extend(parent);
        tree.parents.pop_back();
        tree.ranks.pop_back();
      }
    }
  };
  extend(0);
  return best;
}

TEST(OptimalTreesTest, NoTreeIsBetter) {
  CounterRandomness random(9);
  for (int trial = 0; trial < 20; ++trial) {
    Probabilities acceptance;
    double left = 1.0;
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<double> even(11, 1.0);
      acceptance.push_back(left * static_cast<double>(random.draw(even)) / 10.0);
      left -= acceptance.back();
    }
    const OptimalTrees trees(acceptance, 6, 4);
    for (const auto& [nodes, depth] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 2}, {5, 4}, {6, 2}, {6, 4}}) {
      const double value = trees.expected_accepted(nodes, depth);
      EXPECT_NEAR(value, best_by_search(acceptance, nodes, depth), 1e-12);
      const RankTree tree = trees.tree(nodes, depth);
      EXPECT_NEAR(value, expected(tree, acceptance), 1e-12);
      EXPECT_LE(tree.nodes(), nodes);
      EXPECT_LE(tree.depth(), depth);
    }
  }
}

TEST(OptimalTreesTest, ASureDrafterGetsAChainAndAnUnsureOneWidth) {
  const Probabilities sure = {0.95, 0.02};
  EXPECT_EQ(OptimalTrees(sure, 4, 4).tree(4, 4).parents, (std::vector<int64_t>{-1, 0, 1, 2, 3}));
  const Probabilities unsure = {0.3, 0.29, 0.28};
  EXPECT_EQ(OptimalTrees(unsure, 3, 3).tree(3, 3).parents, (std::vector<int64_t>{-1, 0, 0, 0}));
}

TEST(OptimalTreesTest, ALaterRankMayBeTheBetterOne) {
  const Probabilities odd = {0.0, 0.5};
  const RankTree tree = OptimalTrees(odd, 2, 1).tree(2, 1);
  EXPECT_EQ(tree.ranks, (std::vector<int64_t>{0, 0, 1}));
}

TEST(OptimalTreesTest, HopelessDraftersGetNoTree) {
  const Probabilities none = {0.0, 0.0};
  EXPECT_EQ(OptimalTrees(none, 5, 5).tree(5, 5).nodes(), 0);
}

TEST(OptimalTreesTest, ProbabilitiesOutOfRangeAreRefused) {
  for (const Probabilities& bad : std::vector<Probabilities>{{}, {1.2}, {-0.1}, {0.6, 0.5}}) {
    EXPECT_THROW(OptimalTrees(bad, 4, 4), ConfigError);
  }
}

}  // namespace
}  // namespace specdec
