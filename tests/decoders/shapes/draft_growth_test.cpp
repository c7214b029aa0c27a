#include "decoders/shapes/draft_growth.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/shapes/draft_length.h"
#include "tests/support/draft_bench.h"
#include "tests/support/table_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kGrowthVocab = 5;
const std::vector<Token> kGrowthCommitted = {1, 2};

/// A context with these limits, and a drafter to grow drafts with.
struct GrowthBench : DraftBench {
  GrowthBench() : DraftBench(3, {.temperature = 1.0}) {}

  DraftContext context(int64_t max_tokens, int64_t max_depth, int64_t max_evaluated) {
    return DraftBench::context(kGrowthCommitted, shape, {max_tokens, max_depth, 9}, max_evaluated);
  }
  /// Evaluated nodes, the root not counted.
  int64_t evaluated() const {
    int64_t sum = -1;
    for (const std::vector<int64_t>& frontier : distribution.frontiers()) {
      sum += std::ssize(frontier);
    }
    return sum;
  }

  FixedDraftLength shape{1};
  TableDistribution distribution{random_table(kGrowthVocab, 4, 3), kGrowthCommitted};
};

/// The loop of the class's documentation: it knows no limits.
Draft grow_binary(const DraftContext& context, ChildDistribution& distribution, Siblings siblings) {
  DraftGrowth growth(context, distribution, siblings);
  std::vector<int64_t> level = {0};
  while (!level.empty()) {
    growth.expand(level);
    std::vector<int64_t> next;
    for (const int64_t node : level) {
      const std::vector<int64_t> children = growth.add_children(node, 2);
      next.insert(next.end(), children.begin(), children.end());
    }
    level = next;
  }
  return std::move(growth).finish();
}

TEST(DraftGrowthTest, AShapeThatKnowsNoLimitsStaysWithinThem) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  for (const Siblings siblings : {Siblings::kDrawn, Siblings::kBest}) {
    for (const double temperature : {0.0, 1.0}) {
      const auto grown = [&](int64_t tokens, int64_t depth, int64_t evaluated) {
        GrowthBench bench;
        bench.sampling.temperature = temperature;
        const Draft draft =
            grow_binary(bench.context(tokens, depth, evaluated), bench.distribution, siblings);
        return std::vector<int64_t>{draft.proposed(), draft.depth(), bench.evaluated()};
      };
      EXPECT_EQ(grown(99, 3, kAny), (std::vector<int64_t>{14, 3, 6}));
      EXPECT_EQ(grown(5, 9, kAny), (std::vector<int64_t>{5, 2, 2}));
      EXPECT_EQ(grown(99, 9, 2), (std::vector<int64_t>{6, 2, 2}));
      EXPECT_EQ(grown(99, 9, 0), (std::vector<int64_t>{2, 1, 0}));
      EXPECT_EQ(grown(1, 1, kAny), (std::vector<int64_t>{1, 1, 0}));
    }
  }
}

TEST(DraftGrowthTest, WhatDoesNotFitIsNeverDrawn) {
  // One child fits: the second draw would have moved the randomness on.
  GrowthBench cut;
  const DraftContext context = cut.context(1, 9, 9);
  DraftGrowth growth(context, cut.distribution, Siblings::kDrawn);
  growth.expand(std::vector<int64_t>{0});
  EXPECT_EQ(growth.add_children(0, 4).size(), 1U);
  const Token next = static_cast<Token>(cut.random.draw(std::vector<double>(9, 1.0)));
  GrowthBench single;
  const DraftContext other = single.context(9, 9, 9);
  DraftGrowth one(other, single.distribution, Siblings::kDrawn);
  one.expand(std::vector<int64_t>{0});
  EXPECT_EQ(one.add_children(0, 1).size(), 1U);
  EXPECT_EQ(next, static_cast<Token>(single.random.draw(std::vector<double>(9, 1.0))));
}

TEST(DraftGrowthTest, ANodeThatWasNotExpandedHasNothing) {
  GrowthBench bench;
  const DraftContext context = bench.context(9, 9, 9);
  DraftGrowth growth(context, bench.distribution, Siblings::kDrawn);
  EXPECT_TRUE(growth.add_children(0, 2).empty());
  EXPECT_TRUE(growth.best(0, 2).empty());
  EXPECT_TRUE(growth.distribution(0).empty());
  EXPECT_FALSE(growth.logits(0).defined());
  growth.expand(std::vector<int64_t>{0});
  EXPECT_TRUE(growth.logits(0).defined());
  EXPECT_THROW(growth.expand(std::vector<int64_t>{0}), InternalError);
}

TEST(DraftGrowthTest, CandidatesAreKeptByName) {
  GrowthBench bench;
  const DraftContext context = bench.context(2, 9, 9);
  const auto found = [&] {
    DraftGrowth growth = DraftGrowth::of_candidates(context, bench.distribution);
    growth.expand(std::vector<int64_t>{0});
    const std::vector<int64_t> level = growth.add_children(0, 3);
    growth.expand(level);
    growth.add_children(level[1], 2);
    return growth;
  };
  EXPECT_EQ(found().draft().proposed(), 5) << "more than the context allows";
  const std::vector<int64_t> kept = {2, 4};
  EXPECT_EQ(found().finish(kept).parents, (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_THROW(found().finish(), InternalError);
  EXPECT_THROW(found().finish(std::vector<int64_t>{1, 2, 3}), InternalError) << "too many";
  EXPECT_THROW(found().finish(std::vector<int64_t>{4}), InternalError) << "without its parent";
}

}  // namespace
}  // namespace specdec
