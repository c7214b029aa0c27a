#include "decoders/drafters/lookahead.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "tests/support/retrieval.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

TEST(NgramPoolTest, KeepsTheNewestOfEachFirstToken) {
  NgramPool pool(2);
  pool.add(1, {2, 3});
  pool.add(1, {4, 5});
  pool.add(1, {2, 3});  // becomes the newest
  EXPECT_EQ(pool.after(1), (std::vector<Tokens>{{4, 5}, {2, 3}}));
  pool.add(1, {6, 7});
  EXPECT_EQ(pool.after(1), (std::vector<Tokens>{{2, 3}, {6, 7}}));
  EXPECT_TRUE(pool.after(2).empty());
  pool.clear();
  EXPECT_TRUE(pool.after(1).empty());
}

constexpr int64_t kLookaheadVocab = 50;

/// A target whose best next token depends on the newest one alone: token * 3 + 1.
Token best_after(Token token) { return static_cast<Token>((token * 3 + 1) % kLookaheadVocab); }

/// The draft as the target sees it; `accepted` of its first path's nodes are kept.
StepResult verified(const Draft& draft) {
  StepResult step{.draft = draft, .result = {}, .verified = {.path = {0}}};
  step.result.logits = at::zeros({draft.size(), kLookaheadVocab});
  for (int64_t node = 0; node < draft.size(); ++node) {
    step.result.logits[node][best_after(draft.tokens[static_cast<size_t>(node)])] = 1.0;
  }
  return step;
}

/// Lookahead as the paper has it, written down with lists: after `steps` steps, the window's
/// iterations. Every step commits one token.
std::vector<Tokens> jacobi(const Tokens& prompt, int64_t window, int64_t ngram, int64_t steps) {
  const auto size = window + ngram - 3;
  std::vector<Tokens> levels = {Tokens(prompt.end() - size, prompt.end())};
  Token root = prompt.back();
  for (int64_t step = 0; step < steps; ++step) {
    Tokens newest;
    for (size_t column = 0; column <= levels[0].size(); ++column) {
      const Token end = levels.size() > 1 ? levels.back()[column]
                        : column == 0     ? root
                                          : levels[0][column - 1];
      newest.push_back(best_after(end));
    }
    const bool full = static_cast<int64_t>(levels.size()) == ngram - 1;
    levels.push_back(newest);
    if (full) {
      levels.erase(levels.begin());
      levels[0].erase(levels[0].begin());
    } else {
      for (Tokens& level : levels) {
        level.erase(level.begin());
      }
    }
    root = best_after(root);
  }
  return levels;
}

TEST(LookaheadTest, TheWindowFollowsTheJacobiIteration) {
  constexpr int64_t kWindow = 4;
  constexpr int64_t kNgram = 4;
  LookaheadDrafter drafter({.window = kWindow, .ngram = kNgram, .guesses = 2});
  Tokens committed = {11, 12, 13, 14, 15, 16};
  const Tokens prompt = committed;
  StepResult step;
  for (int64_t i = 0; i < 8; ++i) {
    const Draft draft = propose_within(drafter, committed, {60, 20, 9}, i == 0 ? nullptr : &step);
    const auto levels = jacobi(prompt, kWindow, kNgram, i);
    EXPECT_EQ(static_cast<int64_t>(levels[0].size()),
              std::max(kWindow + kNgram - 3 - i, kWindow - 1));
    const auto paths = paths_of(draft);
    Tokens column_root;
    for (size_t column = 0; column <= levels[0].size(); ++column) {
      if (column > 0) {
        column_root.push_back(levels[0][column - 1]);
      }
      Tokens path = column_root;
      for (size_t level = 1; level < levels.size(); ++level) {
        path.push_back(levels[level][column]);
      }
      EXPECT_TRUE(path.empty() || std::count(paths.begin(), paths.end(), path) == 1)
          << "step " << i << ", column " << column;
    }
    step = verified(draft);
    committed.push_back(best_after(committed.back()));
  }
}

TEST(LookaheadTest, NgramsOfTheIterationsAreGuessedWhenTheirFirstTokenComes) {
  // The best token depends on the newest one alone, so an n-gram of a column is right. The window
  // begins with 21, 14, 43, ..., which the output reaches only later; once it is full, the pool
  // knows what follows 43.
  LookaheadDrafter drafter({.window = 5, .ngram = 4, .guesses = 3});
  Tokens committed = {40, 21, 14, 43, 30, 41, 1};
  StepResult step;
  Draft draft;
  for (int i = 0; committed.back() != 43; ++i) {
    draft = propose_within(drafter, committed, {60, 20, 9}, i == 0 ? nullptr : &step);
    step = verified(draft);
    committed.push_back(best_after(committed.back()));
  }
  draft = propose_within(drafter, committed, {60, 20, 9}, &step);
  Tokens truth;
  Token token = committed.back();
  for (int i = 0; i < 3; ++i) {
    token = best_after(token);
    truth.push_back(token);
  }
  const auto paths = paths_of(draft);
  EXPECT_EQ(std::count(paths.begin(), paths.end(), truth), 1);
}

TEST(LookaheadTest, NgramsOfThePromptWhenAsked) {
  const Tokens committed = {1, 2, 3, 4, 1, 2, 5, 6, 1};
  const auto roots = [&](bool asked, const DraftLimits& limits) {
    LookaheadDrafter drafter({.window = 2, .ngram = 3, .guesses = 4, .pool_from_prompt = asked});
    return paths_of(propose_within(drafter, committed, limits));
  };
  EXPECT_EQ(roots(true, {5, 2, 9}), (std::vector<Tokens>{{2}, {2, 5}, {2, 3}, {6}, {6, 1}}))
      << "two for the window";
  EXPECT_EQ(roots(true, {4, 1, 9}), (std::vector<Tokens>{{2}, {1}})) << "a narrower window";
  EXPECT_EQ(roots(false, {5, 2, 9}), (std::vector<Tokens>{{6}, {6, 1}}));
}

TEST(LookaheadTest, KeepsTheLimitsAndBranches) {
  FakeModel target(kLookaheadVocab, random_table(kLookaheadVocab, 3, 1), 256);
  for (const DraftLimits& limits :
       {DraftLimits{12, 6, 3}, DraftLimits{55, 10, 9}, DraftLimits{3, 3, 3}, DraftLimits{1, 1, 4},
        DraftLimits{9, 4, 2}}) {
    LookaheadDrafter drafter({.ngram = limits.branches == 2 ? 2 : 5, .pool_from_prompt = true});
    Tokens committed = {3, 1, 4, 1, 5, 9, 2, 6};
    StepResult step;
    for (int i = 0; i < 20; ++i) {
      const Draft draft = propose_within(drafter, committed, limits, i == 0 ? nullptr : &step);
      EXPECT_LE(draft.proposed(), limits.tokens);
      const auto depths = draft.depths();
      EXPECT_LE(*std::max_element(depths.begin(), depths.end()), limits.depth);
      for (int64_t node = 0; node < draft.size(); ++node) {
        EXPECT_LE(static_cast<int64_t>(draft.children(node).size()), limits.branches);
      }
      step = verified(draft);
      committed.push_back(best_after(committed.back()));
    }
  }
}

TEST(LookaheadTest, SavesForwardsOnATextThatRepeatsItself) {
  FakeModel target(kLookaheadVocab, random_table(kLookaheadVocab, 5, 1), 512);
  const auto steps = [&](const LookaheadOptions& options) {
    SpeculativeDecoding decoding(target, std::make_unique<LookaheadDrafter>(options),
                                 std::make_unique<ExactMatchVerifier>(),
                                 std::make_unique<Room>(DraftLimits{63, 20, 12}));
    const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 100}};
    CounterRandomness random(1);
    return decoding.generate(task.request(random)).steps.size();
  };
  EXPECT_LT(steps({}), 60U);
}

TEST(LookaheadTest, RefusesChainsAndOptionsOutOfRange) {
  EXPECT_THROW(LookaheadDrafter({.window = 0}), ConfigError);
  EXPECT_THROW(LookaheadDrafter({.ngram = 1}), ConfigError);
  EXPECT_THROW(LookaheadDrafter({.guesses = 0}), ConfigError);
  LookaheadDrafter drafter;
  EXPECT_THROW(propose_within(drafter, Tokens{1, 2}, {5, 5, 1}), ConfigError);
}

TEST(LookaheadTest, RestsInStepsWithTooFewBranches) {
  EXPECT_EQ(LookaheadOptions{.ngram = 2}.least_branches(), 2);
  EXPECT_EQ(LookaheadOptions{.ngram = 3}.least_branches(), 3);
  const Tokens committed = {1, 2, 1, 2};
  const auto proposed = [&](int64_t ngram, int64_t branches) {
    LookaheadDrafter drafter({.window = 1, .ngram = ngram, .pool_from_prompt = true});
    return propose_within(drafter, committed, {5, 5, branches}).proposed();
  };
  EXPECT_EQ(proposed(3, 2), 0);
  EXPECT_GT(proposed(3, 3), 0);
  EXPECT_GT(proposed(2, 2), 0);
}

}  // namespace
}  // namespace specdec
