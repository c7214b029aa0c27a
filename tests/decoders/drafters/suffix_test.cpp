#include "decoders/drafters/suffix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "tests/support/retrieval.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

std::shared_ptr<SuffixAutomaton> automaton(const Tokens& text) {
  auto made = std::make_shared<SuffixAutomaton>();
  for (const Token token : text) {
    made->append(token);
  }
  return made;
}

/// Places in `text` right after an occurrence of `part`.
std::vector<size_t> ends(const Tokens& text, const Tokens& part) {
  std::vector<size_t> found;
  for (size_t end = part.size(); end <= text.size(); ++end) {
    if (std::equal(part.begin(), part.end(),
                   text.begin() + static_cast<int64_t>(end - part.size()))) {
      found.push_back(end);
    }
  }
  return found;
}

/// How often each token follows `part`.
std::map<Token, double> searched_followers(const Tokens& text, const Tokens& part) {
  std::map<Token, double> counts;
  double total = 0.0;
  for (const size_t end : ends(text, part)) {
    if (end < text.size()) {
      counts[text[end]] += 1.0;
      total += 1.0;
    }
  }
  for (auto& [token, count] : counts) {
    count /= total;
  }
  return counts;
}

Tokens random_text(uint64_t seed, size_t size, size_t vocab) {
  CounterRandomness random(seed);
  Tokens text;
  while (text.size() < size) {
    text.push_back(static_cast<Token>(random.draw(std::vector<double>(vocab, 1.0))));
  }
  return text;
}

void expect_as_searched(const SuffixAutomaton& made, SuffixAutomaton::Match match,
                        const Tokens& text, const Tokens& part) {
  ASSERT_EQ(match.length, static_cast<int64_t>(part.size()));
  EXPECT_EQ(made.occurrences(match.state), static_cast<int64_t>(ends(text, part).size()));
  std::map<Token, double> followers;
  double last = 1.0;
  for (const Follower& follower : made.followers(match.state, 100)) {
    followers[follower.token] = follower.weight;
    EXPECT_LE(follower.weight, last);
    last = follower.weight;
  }
  const auto searched = searched_followers(text, part);
  ASSERT_EQ(followers.size(), searched.size());
  for (const auto& [token, share] : searched) {
    EXPECT_NEAR(followers[token], share, 1e-15);
  }
}

TEST(SuffixAutomatonTest, EqualsASearchOnRandomTexts) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Tokens text = random_text(seed, 70, 2 + seed % 3);
    SuffixAutomaton made;
    for (size_t size = 1; size <= text.size(); ++size) {
      made.append(text[size - 1]);
      const Tokens so_far(text.begin(), text.begin() + static_cast<int64_t>(size));
      size_t longest = 0;
      for (size_t n = 1; n < size; ++n) {
        const Tokens suffix(so_far.end() - static_cast<int64_t>(n), so_far.end());
        longest = ends(so_far, suffix).size() > 1 ? n : longest;
      }
      auto match = made.newest_repeat();
      ASSERT_EQ(match.length, static_cast<int64_t>(longest)) << "seed " << seed << ", " << size;
      for (; match.length > 0; match = made.shorter(match)) {
        expect_as_searched(made, match, so_far, {so_far.end() - match.length, so_far.end()});
      }
    }
    EXPECT_EQ(made.size(), 70);
  }
}

TEST(SuffixAutomatonTest, AMovingStateFollowsAnotherText) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Tokens text = random_text(seed, 60, 3);
    const Tokens other = random_text(seed + 100, 60, 4);  // token 3 is unknown
    const auto made = automaton(text);
    SuffixAutomaton::Match match;
    for (size_t size = 1; size <= other.size(); ++size) {
      match = made->extend(match, other[size - 1]);
      const Tokens so_far(other.begin(), other.begin() + static_cast<int64_t>(size));
      size_t longest = 0;
      for (size_t n = 1; n <= size; ++n) {
        const Tokens suffix(so_far.end() - static_cast<int64_t>(n), so_far.end());
        longest = ends(text, suffix).empty() ? longest : n;
      }
      ASSERT_EQ(match.length, static_cast<int64_t>(longest));
      if (longest > 0) {
        expect_as_searched(*made, match, text,
                           {so_far.end() - static_cast<int64_t>(longest), so_far.end()});
      }
    }
  }
}

TEST(SuffixAutomatonTest, NothingGoesAcrossABorder) {
  SuffixAutomaton made;
  for (const Token token : {1, 2, 3}) {
    made.append(token);
  }
  made.append_border();
  for (const Token token : {4, 1, 2}) {
    made.append(token);
  }
  made.append_border();
  auto match = made.extend(made.extend({}, 1), 2);
  EXPECT_EQ(match.length, 2);
  EXPECT_EQ(made.occurrences(match.state), 2);
  const auto followers = made.followers(match.state, 9);  // the border is none
  ASSERT_EQ(followers.size(), 1U);
  EXPECT_EQ(followers[0].token, 3);
  EXPECT_EQ(followers[0].weight, 1.0);
  match = made.extend(made.extend({}, 3), 4);
  EXPECT_EQ(match.length, 1) << "3 and 4 are in two documents";
}

TEST(SuffixAutomatonTest, OneTokenThroughoutStaysSmall) {
  SuffixAutomaton made;
  for (int i = 0; i < 3000; ++i) {
    made.append(7);
  }
  EXPECT_EQ(made.newest_repeat().length, 2999);
  EXPECT_EQ(made.occurrences(made.newest_repeat().state), 2);
}

Tokens chain(SuffixDrafter& drafter, const Tokens& committed, int64_t tokens = 9) {
  const Draft draft = propose_within(drafter, committed, {tokens, tokens, 1});
  for (int64_t node = 0; node < draft.size(); ++node) {
    EXPECT_EQ(draft.parents[static_cast<size_t>(node)], node - 1);
  }
  return {draft.tokens.begin() + 1, draft.tokens.end()};
}

Tokens chain(const Tokens& committed, const SuffixOptions& options = {}, int64_t tokens = 9) {
  SuffixDrafter drafter(options);
  return chain(drafter, committed, tokens);
}

TEST(SuffixTest, ALongerMatchDraftsMore) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto with = [&](std::initializer_list<Token> end) {
    Tokens committed = text;
    committed.insert(committed.end(), end);
    return committed;
  };
  EXPECT_EQ(chain(with({3})), (Tokens{4}));
  EXPECT_EQ(chain(with({2, 3})), (Tokens{4, 5}));
  EXPECT_EQ(chain(with({1, 2, 3})), (Tokens{4, 5, 6}));
  EXPECT_EQ(chain(with({1, 2, 3}), {.factor = 0.5}), (Tokens{4}));
  EXPECT_EQ(chain(with({1, 2, 3}), {.factor = 1.0, .offset = 1.0}), (Tokens{4, 5, 6, 7}));
  EXPECT_EQ(chain(with({1, 2, 3}), {.max_depth = 2}), (Tokens{4, 5}));
  EXPECT_EQ(chain(with({1, 2, 3}), {}, 1), (Tokens{4}));
  EXPECT_EQ(chain(with({2, 3}), {.min_match = 3}), Tokens{});
  EXPECT_EQ(chain(with({9})), Tokens{});
}

TEST(SuffixTest, FollowsTheMoreFrequentTokenThenTheNewer) {
  EXPECT_EQ(chain({1, 5, 1, 5, 1, 6, 1}), (Tokens{5}));
  EXPECT_EQ(chain({1, 5, 1, 6, 1}), (Tokens{6}));
}

TEST(SuffixTest, UnlikelyPathsEndTheDraft) {
  // After 1 come 2, 3 and 4 once each.
  const Tokens committed = {1, 2, 0, 1, 3, 9, 1, 4, 8, 1};
  EXPECT_EQ(chain(committed, {.min_probability = 0.3}), Tokens{4});
  EXPECT_EQ(chain(committed, {.min_probability = 0.4}), Tokens{});
}

TEST(SuffixTest, AShorterMatchThatPromisesMoreWins) {
  // "7 1" was followed by 2 and by 3; "1" alone by 4, often, and 4 always by 5.
  Tokens committed = {7, 1, 2, 7, 1, 3};
  for (int i = 0; i < 20; ++i) {
    committed.insert(committed.end(), {static_cast<Token>(10 + i), 1, 4, 5});
  }
  committed.insert(committed.end(), {7, 1});
  EXPECT_EQ(chain(committed, {.offset = 1.0}), (Tokens{4, 5}));
  EXPECT_EQ(chain(committed, {.min_match = 2, .offset = 1.0})[0], 3);
}

TEST(SuffixTest, WithBranchesItDraftsATree) {
  SuffixDrafter drafter;
  // "8 9 1" was followed by 2, twice, and by 3; "8 9 1 2" by 8 and by 7.
  const Tokens committed = {8, 9, 1, 2, 8, 9, 1, 3, 8, 9, 1, 2, 7, 8, 9, 1};
  const Draft draft = propose_within(drafter, committed, {3, 9, 2});
  EXPECT_EQ(paths_of(draft), (std::vector<Tokens>{{2}, {3}, {2, 7}}));
  const Draft wide = propose_within(drafter, committed, {4, 1, 2});
  EXPECT_EQ(paths_of(wide), (std::vector<Tokens>{{2}, {3}}));
}

TEST(SuffixTest, ACorpusHelpsWhereTheTextDoesNot) {
  SuffixDrafter drafter({}, automaton({5, 6, 7, 8, 9}));
  EXPECT_EQ(chain(drafter, {1, 5, 6}), (Tokens{7, 8}));
  EXPECT_EQ(chain(drafter, {1, 5, 6, 7}), (Tokens{8, 9}));
  drafter.reset();
  EXPECT_EQ(chain(drafter, {6, 3, 2, 6, 4, 6, 3, 2, 6}), (Tokens{4, 6, 3, 2}))
      << "the longer match, in the text, wins";
}

TEST(SuffixTest, FollowsTheOutputAsItGrows) {
  SuffixDrafter drafter;
  Tokens committed = {1, 2, 3, 1};
  EXPECT_EQ(chain(drafter, committed), (Tokens{2}));
  committed.insert(committed.end(), {2, 9, 1, 2});
  EXPECT_EQ(chain(drafter, committed), (Tokens{9, 1}));
  EXPECT_EQ(chain(drafter, {4, 5, 4}), (Tokens{5})) << "another text without a reset";
}

TEST(SuffixTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(SuffixDrafter({.min_match = 0}), ConfigError);
  EXPECT_THROW(SuffixDrafter({.factor = -1.0}), ConfigError);
  EXPECT_THROW(SuffixDrafter({.offset = std::nan("")}), ConfigError);
  EXPECT_THROW(SuffixDrafter({.min_probability = 1.5}), ConfigError);
  EXPECT_THROW(SuffixDrafter({.max_depth = 0}), ConfigError);
}

}  // namespace
}  // namespace specdec
