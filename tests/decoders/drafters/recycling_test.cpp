#include "decoders/drafters/recycling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/draft_bench.h"
#include "tests/support/fake_model.h"
#include "tests/support/retrieval.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

/// A verified draft: `next` names each node's most likely tokens, best first.
StepResult step(Draft draft, const std::vector<Tokens>& next, std::vector<int64_t> path) {
  StepResult result{.draft = std::move(draft), .result = {}, .verified = {.path = std::move(path)}};
  result.result.logits = at::zeros({result.draft.size(), 10});
  for (size_t node = 0; node < next.size(); ++node) {
    for (size_t rank = 0; rank < next[node].size(); ++rank) {
      result.result.logits[static_cast<int64_t>(node)][next[node][rank]] =
          10.0 - static_cast<double>(rank);
    }
  }
  return result;
}

TEST(RecyclingTest, DraftsWhatTheTargetThoughtLikelyAtTheLastPlace) {
  RecyclingDrafter drafter({.candidates = 2});
  EXPECT_EQ(propose_within(drafter, Tokens{3}, {4, 4, 2}).size(), 1) << "nothing is known";
  Draft draft = Draft::root(3);
  draft.add(4, 0);
  const StepResult first = step(draft, {{5, 6}, {7, 3}}, {0});  // 4 was refused
  const Draft next = propose_within(drafter, Tokens{3, 5, 3}, {4, 4, 2}, &first);
  EXPECT_EQ(paths_of(next), (std::vector<Tokens>{{5}, {6}}));
  drafter.reset();
  EXPECT_EQ(propose_within(drafter, Tokens{3}, {4, 4, 2}).size(), 1) << "a new request";
}

TEST(RecyclingTest, RefusedTokensTeachTooButAcceptedOnesCount) {
  RecyclingDrafter drafter({.candidates = 1});
  Draft draft = Draft::root(1);
  draft.add(2, 0);
  draft.add(2, 0);
  draft.add(3, 0);
  const StepResult first = step(draft, {{2}, {8}, {9}, {1}}, {0, 1});
  const Draft next = propose_within(drafter, Tokens{3}, {4, 4, 1}, &first);
  EXPECT_EQ(paths_of(next), (std::vector<Tokens>{{1}, {1, 2}, {1, 2, 8}}))
      << "2 was accepted at node 1, so node 2 does not count";
}

TEST(RecyclingTest, SkippedStepsTeachToo) {
  RecyclingDrafter drafter({.candidates = 1});
  const StepResult plain = step(Draft::root(1), {{4}}, {0});
  Room room({1, 1, 1});
  DraftBench bench;
  const Tokens committed = {1, 4};
  DraftContext context = bench.context(committed, room, {0, 0, 1});
  context.last_step = &plain;
  drafter.skip(context);
  EXPECT_EQ(paths_of(propose_within(drafter, Tokens{1}, {4, 4, 1})), (std::vector<Tokens>{{4}}));
}

TEST(RecyclingTest, TheTableOutlivesARequestWhenAsked) {
  RecyclingDrafter drafter({.candidates = 1, .persist = true});
  const StepResult first = step(Draft::root(1), {{4}}, {0});
  (void)propose_within(drafter, Tokens{1, 4}, {4, 4, 1}, &first);
  drafter.reset();
  EXPECT_EQ(paths_of(propose_within(drafter, Tokens{1}, {4, 4, 1})), (std::vector<Tokens>{{4}}));
}

/// The 80 paths of ranks of the authors' tree, by their parents: how many children of ranks 0, 1,
/// ... a path has.
std::vector<Tokens> paper_tree() {
  const std::vector<std::pair<Tokens, Token>> children = {{{}, 8},
                                                          {{0}, 8},
                                                          {{1}, 4},
                                                          {{2}, 3},
                                                          {{3}, 2},
                                                          {{4}, 1},
                                                          {{5}, 1},
                                                          {{6}, 1},
                                                          {{7}, 1},
                                                          {{0, 0}, 8},
                                                          {{0, 1}, 3},
                                                          {{0, 2}, 2},
                                                          {{0, 3}, 1},
                                                          {{0, 4}, 1},
                                                          {{0, 5}, 1},
                                                          {{0, 6}, 1},
                                                          {{0, 7}, 1},
                                                          {{1, 0}, 2},
                                                          {{1, 1}, 1},
                                                          {{2, 0}, 1},
                                                          {{3, 0}, 1},
                                                          {{4, 0}, 1},
                                                          {{5, 0}, 1},
                                                          {{0, 0, 0}, 5},
                                                          {{0, 0, 1}, 2},
                                                          {{0, 0, 2}, 1},
                                                          {{0, 0, 3}, 1},
                                                          {{0, 0, 4}, 1},
                                                          {{0, 1, 0}, 1},
                                                          {{0, 2, 0}, 1},
                                                          {{1, 0, 0}, 1},
                                                          {{2, 0, 0}, 1},
                                                          {{3, 0, 0}, 1},
                                                          {{0, 0, 0, 0}, 3},
                                                          {{0, 0, 0, 1}, 1},
                                                          {{0, 0, 0, 2}, 1},
                                                          {{0, 0, 1, 0}, 1},
                                                          {{0, 1, 0, 0}, 1},
                                                          {{1, 0, 0, 0}, 1},
                                                          {{0, 0, 0, 0, 0}, 2},
                                                          {{0, 0, 0, 1, 0}, 1}};
  std::vector<Tokens> paths;
  for (const auto& [parent, count] : children) {
    for (Token rank = 0; rank < count; ++rank) {
      paths.push_back(parent);
      paths.back().push_back(rank);
    }
  }
  return paths;
}

TEST(RecyclingTest, TheTreeIsNearlyThePapers) {
  RecyclingDrafter drafter;
  // Every token's most likely successors are 0, 1, 2, ...: a path of tokens is one of ranks.
  Draft all = Draft::root(0);
  for (Token token = 1; token < 8; ++token) {
    all.add(token, 0);
  }
  const StepResult first = step(all, std::vector<Tokens>(8, Tokens{0, 1, 2, 3, 4, 5, 6, 7}), {0});
  const auto drafted = paths_of(propose_within(drafter, Tokens{0}, {80, 20, 20}, &first));
  ASSERT_EQ(drafted.size(), 80U);
  const auto paper = paper_tree();
  ASSERT_EQ(paper.size(), 80U);
  EXPECT_EQ(std::count_if(drafted.begin(), drafted.end(),
                          [&](const Tokens& path) {
                            return std::count(paper.begin(), paper.end(), path) > 0;
                          }),
            69);
}

TEST(RecyclingTest, RefusesNoCandidates) {
  EXPECT_THROW(RecyclingDrafter({.candidates = 0}), ConfigError);
}

}  // namespace
}  // namespace specdec
