#include "decoders/shapes/rank_tree.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "decoders/drafter.h"
#include "decoders/shapes/static_tree.h"
#include "tests/support/draft_bench.h"
#include "tests/support/table_distribution.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Paths = std::vector<std::vector<int64_t>>;

constexpr int64_t kRankVocab = 7;

const std::vector<Token> kRankCommitted = {1, 2, 3};

/// A draft of the tree over a random table, and what the drafter was asked.
struct Grown {
  Draft draft;
  TableDistribution distribution;
};

Grown grow_ranked(const RankTree& tree, const SamplingParams& sampling, Siblings siblings,
                  int64_t max_tokens = 99, int64_t max_depth = 99) {
  StaticTreeShape shape(tree);
  DraftBench bench(3, sampling);
  const DraftContext context =
      bench.context(kRankCommitted, shape, {max_tokens, max_depth, tree.branches()});
  Grown grown{{}, TableDistribution(random_table(kRankVocab, 5, 3), kRankCommitted)};
  grown.draft = shape.grow(context, grown.distribution, siblings);
  return grown;
}

std::vector<Token> by_rank(const std::vector<Token>& history) {
  const std::vector<double> logits = random_table(kRankVocab, 5, 3)(history);
  std::vector<Token> tokens(kRankVocab);
  for (Token token = 0; token < kRankVocab; ++token) {
    tokens[static_cast<size_t>(token)] = token;
  }
  std::stable_sort(tokens.begin(), tokens.end(), [&](Token a, Token b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return tokens;
}

TEST(RankTreeTest, PathsAreOrderedLevelByLevel) {
  const RankTree tree = tree_of_paths({{1, 0}, {0}, {0, 2}, {1}, {1, 0, 3}});
  EXPECT_EQ(tree.parents, (std::vector<int64_t>{-1, 0, 0, 1, 2, 4}));
  EXPECT_EQ(tree.ranks, (std::vector<int64_t>{0, 0, 1, 2, 0, 3}));
  EXPECT_EQ(tree.nodes(), 5);
  EXPECT_EQ(tree.depth(), 3);
  EXPECT_EQ(tree.branches(), 4);
}

TEST(RankTreeTest, BadPathsAreRefused) {
  EXPECT_THAT(
      [] {
        tree_of_paths({{0}, {1, 0}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("path [1, 0], but not its parent [1]")));
  EXPECT_THAT([] { tree_of_paths({{0}, {0}}); }, ThrowsMessage<ConfigError>(HasSubstr("twice")));
  EXPECT_THAT([] { tree_of_paths({{-1}}); }, ThrowsMessage<ConfigError>(HasSubstr("ranks from 0")));
  EXPECT_THAT([] { tree_of_paths(Paths{{}}); },
              ThrowsMessage<ConfigError>(HasSubstr("ranks from 0")));
  EXPECT_THAT([] { StaticTreeShape(tree_of_paths({})); },
              ThrowsMessage<ConfigError>(HasSubstr("beside its root")));
}

TEST(RankTreeTest, WidthsMakeAFullTree) {
  const std::vector<int64_t> widths = {3, 2};
  const RankTree tree = tree_of_widths(widths, 9);
  EXPECT_EQ(tree.nodes(), 9);
  EXPECT_EQ(tree.parents, (std::vector<int64_t>{-1, 0, 0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_THROW(tree_of_widths(widths, 8), ConfigError);
  const std::vector<int64_t> huge(40, 64);
  EXPECT_THROW(tree_of_widths(huge, 1024), ConfigError);
}

TEST(RankTreeTest, ChosenChildrenHaveTheirRanks) {
  const RankTree tree = tree_of_paths({{0}, {2}, {2, 1}, {2, 1, 0}});
  for (const double temperature : {0.0, 1.0}) {
    const Grown grown = grow_ranked(tree, {.temperature = temperature}, Siblings::kBest);
    ASSERT_EQ(grown.draft.parents, tree.parents);
    for (int64_t node = 1; node < grown.draft.size(); ++node) {
      const auto index = static_cast<size_t>(node);
      const std::vector<Token> ranked =
          by_rank(grown.distribution.history(grown.draft, tree.parents[index]));
      EXPECT_EQ(grown.draft.tokens[index], ranked[static_cast<size_t>(tree.ranks[index])]);
    }
    EXPECT_EQ(grown.draft.child_probs, std::vector<int64_t>(5, -1));
  }
}

TEST(RankTreeTest, AsksOncePerLevelAndNeverForLeaves) {
  const RankTree tree = tree_of_paths({{0}, {1}, {0, 0}, {1, 0}, {1, 0, 0}});
  const Grown grown = grow_ranked(tree, {}, Siblings::kBest);
  EXPECT_EQ(grown.distribution.frontiers(), (std::vector<std::vector<int64_t>>{{0}, {1, 2}, {4}}));
}

TEST(RankTreeTest, DrawnSiblingsDifferAndNameTheirDistribution) {
  const RankTree tree = tree_of_paths({{0}, {1}, {2}, {1, 0}, {1, 1}});
  const Grown grown = grow_ranked(tree, {.temperature = 1.0}, Siblings::kDrawn);
  ASSERT_EQ(grown.draft.parents, tree.parents);
  EXPECT_EQ(grown.draft.child_probs, (std::vector<int64_t>{0, -1, 1, -1, -1, -1}));
  for (const int64_t node : {0, 2}) {
    std::set<Token> tokens;
    for (const int64_t child : grown.draft.children(node)) {
      tokens.insert(grown.draft.tokens[static_cast<size_t>(child)]);
    }
    EXPECT_EQ(tokens.size(), grown.draft.children(node).size());
    std::vector<double> distribution(kRankVocab);
    const std::vector<Token> history = grown.distribution.history(grown.draft, node);
    const std::vector<double> logits = random_table(kRankVocab, 5, 3)(history);
    target_distribution(std::span<const double>(logits), history, {.temperature = 1.0},
                        distribution);
    EXPECT_EQ(grown.draft.drawn_from(node)->row(), distribution);
  }
}

TEST(RankTreeTest, WhatDoesNotFitIsNotDrawn) {
  const std::vector<int64_t> widths = {2, 2, 2};
  const RankTree tree = tree_of_widths(widths, 99);
  for (const Siblings siblings : {Siblings::kBest, Siblings::kDrawn}) {
    const Grown shallow = grow_ranked(tree, {.temperature = 1.0}, siblings, 99, 2);
    EXPECT_EQ(shallow.draft.proposed(), 6);
    const Grown small = grow_ranked(tree, {.temperature = 1.0}, siblings, 3);
    EXPECT_EQ(small.draft.parents, (std::vector<int64_t>{-1, 0, 0, 1}));
  }
}

TEST(RankTreeTest, TokensWithoutMassAreNotProposed) {
  const std::vector<int64_t> widths = {4, 4};
  for (const Siblings siblings : {Siblings::kBest, Siblings::kDrawn}) {
    const Grown grown =
        grow_ranked(tree_of_widths(widths, 99), {.temperature = 1.0, .top_k = 2}, siblings);
    EXPECT_EQ(grown.draft.proposed(), 2 + 4);
  }
}

}  // namespace
}  // namespace specdec
