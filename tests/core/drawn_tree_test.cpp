#include "core/drawn_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

/// Parents of up to 30 nodes, level by level.
std::vector<int64_t> random_parents(std::mt19937& random) {
  std::vector<int64_t> parents = {-1};
  const auto count = 1 + static_cast<int64_t>(random() % 30);
  for (int64_t node = 1; node < count; ++node) {
    const int64_t first = std::max<int64_t>(parents.back(), 0);
    const auto step = static_cast<int64_t>(random() % 3);
    parents.push_back(std::min(first + step, node - 1));
  }
  return parents;
}

TEST(DrawnTreeTest, EvaluatedNodesAreThoseWithChildren) {
  const EvaluatedNodes found =
      evaluated_nodes(std::vector<int64_t>{-1, 0, 0, 0, 1, 1, 1, 2, 3, 3, 6, 7, 7});
  EXPECT_EQ(found.nodes, (std::vector<int64_t>{0, 1, 2, 3, 6, 7}));
  EXPECT_EQ(found.parents, (std::vector<int64_t>{-1, 0, 0, 0, 1, 2}));
  EXPECT_EQ(found.firsts, (std::vector<int64_t>{0, 1, 4, 6}));
  EXPECT_EQ(found.places, (std::vector<int64_t>{0, 1, 2, 3, -1, -1, 4, 5, -1, -1, -1, -1, -1}));
  EXPECT_EQ(found.levels(), 3);
  EXPECT_EQ(found.size_of(1), 3);
  EXPECT_EQ(found.parents_in_level(1), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(found.parents_in_level(2), (std::vector<int64_t>{0, 1}));
}

TEST(DrawnTreeTest, ARootAloneIsNotEvaluated) {
  const EvaluatedNodes found = evaluated_nodes(std::vector<int64_t>{-1});
  EXPECT_EQ(found.levels(), 0);
  EXPECT_TRUE(found.nodes.empty());
  EXPECT_EQ(found.places, std::vector<int64_t>{-1});
}

TEST(DrawnTreeTest, PlacesFollowTheTree) {
  std::mt19937 random(3);
  for (int tree = 0; tree < 300; ++tree) {
    const std::vector<int64_t> parents = random_parents(random);
    const EvaluatedNodes found = evaluated_nodes(parents);
    ASSERT_TRUE(std::is_sorted(found.nodes.begin(), found.nodes.end()));
    for (size_t node = 0; node < parents.size(); ++node) {
      const auto number = static_cast<int64_t>(node);
      const int64_t place = found.places[node];
      ASSERT_EQ(place >= 0, std::count(parents.begin(), parents.end(), number) > 0);
      if (place >= 0) {
        ASSERT_EQ(found.nodes[static_cast<size_t>(place)], number);
        const int64_t parent = found.parents[static_cast<size_t>(place)];
        ASSERT_EQ(parent < 0 ? -1 : found.nodes[static_cast<size_t>(parent)], parents[node]);
      }
    }
    for (int64_t level = 1; level < found.levels(); ++level) {
      const std::vector<int64_t> above = found.parents_in_level(level);
      ASSERT_EQ(std::ssize(above), found.size_of(level));
      for (size_t i = 0; i < above.size(); ++i) {
        const int64_t place = found.firsts[static_cast<size_t>(level)] + static_cast<int64_t>(i);
        ASSERT_LT(above[i], found.size_of(level - 1));
        ASSERT_EQ(found.firsts[static_cast<size_t>(level) - 1] + above[i],
                  found.parents[static_cast<size_t>(place)]);
      }
    }
  }
}

TEST(DrawnTreeTest, RefusesOtherOrders) {
  for (const std::vector<int64_t>& parents :
       std::vector<std::vector<int64_t>>{{}, {0}, {-1, 0, 1, 0}, {-1, 1}, {-1, -1}}) {
    EXPECT_THROW(evaluated_nodes(parents), InternalError);
  }
}

}  // namespace
}  // namespace specdec
