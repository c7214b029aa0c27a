#include "decoders/shapes/rank_acceptance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace specdec {
namespace {

constexpr double kFirst = 0.6;
constexpr double kSecond = 0.12;
constexpr double kThird = 0.05;

/// A chain of `length` tokens, of which the verifier accepted some.
void observe_chain(RankAcceptance& ranks, int64_t length, int64_t accepted) {
  Draft chain = Draft::root(0);
  VerifyResult result{.path = {0}, .next = 0};
  for (int64_t node = 0; node < length; ++node) {
    const int64_t child = chain.add(1, node);
    if (node < accepted) {
      result.path.push_back(child);
    }
  }
  ranks.observe(chain, result);
}

TEST(RankAcceptanceTest, RanksThatAreNeverTriedKeepTheFirstGuess) {
  for (const double memory : {0.97, 0.5, 1e-300}) {
    RankAcceptance ranks({kFirst, kSecond, kThird}, 2.0, memory);
    std::mt19937_64 random(7);
    for (int chain = 0; chain < 100'000; ++chain) {
      const auto length = static_cast<int64_t>(1 + random() % 4);
      // About half of the tokens are accepted, so that the first rank leaves the others room.
      observe_chain(ranks, length, static_cast<int64_t>(random() % 2) * length);
      const std::vector<double> found = ranks.probabilities();
      ASSERT_TRUE(found[0] >= 0.0 && found[0] <= 1.0) << chain;
      // What the first rank leaves is a bound of the others: they never increase.
      const double second = std::min({kSecond, found[0], 1.0 - found[0]});
      ASSERT_NEAR(found[1], second, 1e-15) << "memory " << memory << ", chain " << chain;
      ASSERT_NEAR(found[2], std::min({kThird, second, 1.0 - found[0] - second}), 1e-15) << chain;
    }
  }
}

TEST(RankAcceptanceTest, ARankKeepsWhatWasLearnedWhileItIsNotTried) {
  RankAcceptance ranks({kFirst, kSecond}, 2.0, 0.9);
  Draft tree = Draft::root(0);
  (void)tree.add(1, 0);
  const int64_t second = tree.add(2, 0);
  ranks.observe(tree, {.path = {0, second}, .next = 0});
  // First rank: (0.9 * 2 * 0.6 + 0) / (0.9 * 2 + 1); second: (0.9 * 2 * 0.12 + 1) / (0.9 * 2 + 1).
  EXPECT_NEAR(ranks.probabilities()[0], 1.08 / 2.8, 1e-15);
  for (int chain = 0; chain < 100'000; ++chain) {
    observe_chain(ranks, 2, chain % 2 == 0 ? 2 : 0);
  }
  const std::vector<double> found = ranks.probabilities();
  EXPECT_NEAR(found[1], std::min({1.216 / 2.8, found[0], 1.0 - found[0]}), 1e-15);
}

TEST(RankAcceptanceTest, TheNewestDraftsCountTheMost) {
  RankAcceptance ranks({0.5}, 1.0, 0.5);
  observe_chain(ranks, 2, 1);  // both tokens were tried, one accepted
  // (0.5 * 0.5 + 1) / (0.5 * 1 + 2)
  EXPECT_NEAR(ranks.probabilities()[0], 1.25 / 2.5, 1e-15);
  observe_chain(ranks, 1, 1);
  EXPECT_NEAR(ranks.probabilities()[0], (0.5 * 1.25 + 1.0) / (0.5 * 2.5 + 1.0), 1e-15);
  observe_chain(ranks, 0, 0);
  EXPECT_NEAR(ranks.probabilities()[0], 1.625 / 2.25, 1e-15) << "an empty draft says nothing";
  ranks.forget();
  EXPECT_EQ(ranks.probabilities()[0], 0.5);
}

}  // namespace
}  // namespace specdec
