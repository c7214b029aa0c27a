#include "decoders/drafters/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "decoders/shapes/draft_length.h"
#include "tests/support/draft_bench.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

Tokens propose(PromptLookupDrafter& drafter, const Tokens& committed, int64_t max_tokens) {
  FixedDraftLength shape(std::max<int64_t>(1, max_tokens));
  DraftBench bench;
  const Draft draft = drafter.propose(bench.context(committed, shape, {max_tokens, max_tokens, 1}));
  EXPECT_EQ(draft.tokens.front(), committed.back());
  EXPECT_EQ(draft.child_probs, std::vector<int64_t>(draft.tokens.size(), -1));
  for (int64_t node = 0; node < draft.size(); ++node) {
    EXPECT_EQ(draft.parents[static_cast<size_t>(node)], node - 1);
  }
  return {draft.tokens.begin() + 1, draft.tokens.end()};
}

Tokens propose(const Tokens& committed, int64_t max_tokens,
               const PromptLookupOptions& options = {}) {
  PromptLookupDrafter drafter(options);
  return propose(drafter, committed, max_tokens);
}

/// The definition: every earlier occurrence of every suffix is looked at.
Tokens searched(const Tokens& committed, int64_t max_tokens, const PromptLookupOptions& options) {
  const auto size = static_cast<int64_t>(committed.size());
  for (int64_t n = std::min(options.max_ngram, size - 1); n >= options.min_ngram; --n) {
    int64_t best = -1;
    for (int64_t next = size - 1; next >= n; --next) {  // what follows the occurrence
      if (std::equal(committed.end() - n, committed.end(), committed.begin() + next - n)) {
        best = next;
        if (size - next >= max_tokens) {
          break;
        }
      }
    }
    if (best >= 0) {
      return {committed.begin() + best, committed.begin() + std::min(size, best + max_tokens)};
    }
  }
  return {};
}

TEST(PromptLookupTest, ContinuesTheLongestMatch) {
  // "1 2" is followed by 7 later on, but "9 1 2" only by 5.
  EXPECT_EQ(propose({9, 1, 2, 5, 6, 1, 2, 7, 8, 9, 1, 2}, 2), (Tokens{5, 6}));
}

TEST(PromptLookupTest, TakesTheNewestOfEqualMatches) {
  EXPECT_EQ(propose({1, 2, 5, 5, 0, 1, 2, 7, 7, 0, 3, 1, 2}, 2), (Tokens{7, 7}));
}

TEST(PromptLookupTest, PrefersAMatchWithEnoughToSay) {
  // The newest "1 2" before the last one is followed by two tokens only.
  EXPECT_EQ(propose({4, 1, 2, 8, 3, 3, 9, 1, 2, 1, 2}, 2), (Tokens{1, 2}));
  EXPECT_EQ(propose({4, 1, 2, 8, 3, 3, 9, 1, 2, 1, 2}, 3), (Tokens{8, 3, 3}));
  EXPECT_EQ(propose({6, 6, 6}, 5), Tokens{6}) << "or the one with the most";
}

TEST(PromptLookupTest, WithoutAMatchItProposesNothing) {
  EXPECT_TRUE(propose({1, 2, 3, 4, 5}, 3).empty());
  EXPECT_TRUE(propose({1}, 3).empty());
  EXPECT_TRUE(propose({1, 5, 1}, 3).empty()) << "one token is no match of two";
  EXPECT_EQ(propose({1, 5, 1}, 3, {.min_ngram = 1, .max_ngram = 4}), (Tokens{5, 1}));
}

TEST(PromptLookupTest, FollowsTheOutputAsItGrows) {
  PromptLookupDrafter drafter({.min_ngram = 1, .max_ngram = 3});
  Tokens committed = {1, 2, 3, 1};
  EXPECT_EQ(propose(drafter, committed, 2), (Tokens{2, 3}));
  committed.insert(committed.end(), {2, 9, 9, 2, 9});
  EXPECT_EQ(propose(drafter, committed, 2), (Tokens{9, 2}));
  drafter.reset();
  EXPECT_TRUE(propose(drafter, {2, 9}, 2).empty());
  EXPECT_EQ(propose(drafter, {5, 4, 5}, 2), (Tokens{4, 5})) << "another text without a reset";
}

TEST(PromptLookupTest, EqualsTheDefinitionOnRandomTexts) {
  for (const PromptLookupOptions& options :
       {PromptLookupOptions{.min_ngram = 1, .max_ngram = 1}, PromptLookupOptions{},
        PromptLookupOptions{.min_ngram = 1, .max_ngram = 5}}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      PromptLookupDrafter drafter(options);
      CounterRandomness random(seed);
      const std::vector<double> weights(3 + seed, 1.0);
      Tokens committed;
      while (committed.size() < 120) {
        committed.push_back(static_cast<Token>(random.draw(weights)));
        const auto wanted = static_cast<int64_t>(1 + committed.size() % 5);
        if (committed.size() % 3 != 0) {  // steps of several tokens
          EXPECT_EQ(propose(drafter, committed, wanted), searched(committed, wanted, options))
              << committed.size() << " tokens, seed " << seed;
        }
      }
    }
  }
}

TEST(PromptLookupTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(PromptLookupDrafter({.min_ngram = 0, .max_ngram = 3}), ConfigError);
  EXPECT_THROW(PromptLookupDrafter({.min_ngram = 4, .max_ngram = 3}), ConfigError);
}

}  // namespace
}  // namespace specdec
