#include "decoders/drafters/best_first.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

/// After any place: token 1 with 0.6, token 2 with 0.3.
std::vector<Follower> two(int64_t place, int64_t count) {
  std::vector<Follower> found = {{1, 0.6, place + 1}, {2, 0.3, place + 1}};
  found.resize(static_cast<size_t>(std::min<int64_t>(count, 2)));
  return found;
}

TEST(BestFirstTest, TakesTheMostLikelyPathsFirst) {
  const GrownDraft grown =
      grow_best_first(9, 0, {.max_tokens = 5, .max_depth = 9, .max_branches = 2}, two);
  // 0.6, 0.36, 0.3, 0.216, then 0.18: 1 2 was found before 2 1.
  EXPECT_EQ(grown.draft.tokens, (std::vector<Token>{9, 1, 1, 2, 1, 2}));
  EXPECT_EQ(grown.draft.parents, (std::vector<int64_t>{-1, 0, 1, 0, 2, 1}));
  EXPECT_EQ(grown.draft.child_probs, std::vector<int64_t>(6, -1));
  EXPECT_NEAR(grown.score, 0.6 + 0.36 + 0.3 + 0.216 + 0.18, 1e-15);
}

TEST(BestFirstTest, KeepsItsLimits) {
  EXPECT_EQ(grow_best_first(9, 0, {.max_tokens = 3, .max_depth = 9, .max_branches = 1}, two)
                .draft.parents,
            (std::vector<int64_t>{-1, 0, 1, 2}));
  EXPECT_EQ(grow_best_first(9, 0, {.max_tokens = 9, .max_depth = 1, .max_branches = 2}, two)
                .draft.parents,
            (std::vector<int64_t>{-1, 0, 0}));
  EXPECT_EQ(grow_best_first(
                9, 0, {.max_tokens = 9, .max_depth = 9, .max_branches = 2, .min_weight = 0.25}, two)
                .draft.parents,
            (std::vector<int64_t>{-1, 0, 1, 0}));
  EXPECT_EQ(grow_best_first(9, 0, {.max_tokens = 0, .max_depth = 9}, two).draft.size(), 1);
  EXPECT_EQ(grow_best_first(9, 0, {.max_tokens = 9, .max_depth = 0}, two).draft.size(), 1);
}

}  // namespace
}  // namespace specdec
