#include "decoders/shapes/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace specdec {
namespace {

/// Runs steps that all come out alike; the lengths that were asked for.
std::vector<int64_t> lengths(ChainShape& policy, int64_t steps, double share) {
  std::vector<int64_t> asked;
  for (int64_t i = 0; i < steps; ++i) {
    asked.push_back(policy.length(100));
    policy.learn(asked.back(), std::lround(share * static_cast<double>(asked.back())));
  }
  return asked;
}

/// v(n) = base + slope * n seconds.
CostCurve curve(double base, double slope) {
  CostCurve result;
  for (const int64_t n : {1, 2, 4, 8, 16, 32}) {
    result.points.push_back({n, 100, base + slope * static_cast<double>(n)});
  }
  return result;
}

TEST(DraftLengthTest, FixedStaysTheSame) {
  FixedDraftLength policy(4);
  EXPECT_EQ(lengths(policy, 3, 0.0), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_THROW(FixedDraftLength(0), ConfigError);
}

TEST(DraftLengthTest, HeuristicAddsTwoOrTakesOne) {
  HeuristicDraftLength policy({.initial = 5, .min = 3, .max = 8});
  EXPECT_EQ(lengths(policy, 4, 1.0), (std::vector<int64_t>{5, 7, 8, 8}));
  EXPECT_EQ(lengths(policy, 7, 0.5), (std::vector<int64_t>{8, 7, 6, 5, 4, 3, 3}));
  policy.learn(0, 0);
  EXPECT_EQ(policy.length(0), 3) << "a step without a draft says nothing";
  policy.reset();
  EXPECT_EQ(policy.length(0), 5);
  EXPECT_THROW(HeuristicDraftLength({.initial = 5, .min = 6, .max = 8}), ConfigError);
  EXPECT_THROW(HeuristicDraftLength({.initial = 5, .min = 0, .max = 8}), ConfigError);
  EXPECT_THROW(HeuristicDraftLength({.initial = 9, .min = 1, .max = 8}), ConfigError);
}

TEST(AdaptiveDraftLengthTest, GrowsWhileAcceptanceIsHigh) {
  AdaptiveDraftLength policy({.initial = 3, .max = 6});
  EXPECT_EQ(lengths(policy, 6, 1.0), (std::vector<int64_t>{3, 4, 5, 6, 6, 6}));
}

TEST(AdaptiveDraftLengthTest, StaysBetweenTheBounds) {
  AdaptiveDraftLength policy({.initial = 10, .max = 16});
  EXPECT_EQ(lengths(policy, 5, 0.6), std::vector<int64_t>(5, 10));
}

TEST(AdaptiveDraftLengthTest, ShrinksThenPausesThenProbes) {
  AdaptiveDraftLength policy({.initial = 3, .max = 8, .pause = 2, .max_pause = 4, .probe = 2});
  EXPECT_EQ(lengths(policy, 18, 0.0),
            (std::vector<int64_t>{3, 2, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}));
}

TEST(AdaptiveDraftLengthTest, ComesBackWhenDraftsAreGoodAgain) {
  AdaptiveDraftLength policy({.initial = 1, .max = 4, .pause = 3, .probe = 2});
  EXPECT_EQ(lengths(policy, 5, 0.0), (std::vector<int64_t>{1, 1, 0, 0, 0}));
  EXPECT_EQ(lengths(policy, 5, 1.0), (std::vector<int64_t>{1, 2, 3, 4, 4}));
}

TEST(AdaptiveDraftLengthTest, TheRunningRateForgets) {
  AdaptiveDraftLength policy({.initial = 4, .max = 16, .memory = 0.5});
  lengths(policy, 20, 1.0);
  EXPECT_EQ(policy.length(100), 16);
  // One bad step does not undo it; several do.
  policy.learn(16, 8);
  EXPECT_EQ(policy.length(100), 16);
  EXPECT_LT(lengths(policy, 8, 0.1).back(), 12);
}

TEST(AdaptiveDraftLengthTest, StepsWithoutADraftSayNothing) {
  AdaptiveDraftLength policy({.initial = 3, .max = 6});
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(policy.length(10), 3);
    policy.learn(0, 0);
  }
}

TEST(AdaptiveDraftLengthTest, CheapDraftsPayAtLowAcceptance) {
  // Nearly flat: another token in the forward costs a hundredth of it, and drafting nothing.
  AdaptiveDraftLength cheap({.initial = 2, .max = 6, .probe = 2, .target_cost = curve(1.0, 0.01)});
  const auto asked = lengths(cheap, 30, 0.0);
  EXPECT_EQ(asked.back(), 0) << "nothing accepted pays for nothing";
  AdaptiveDraftLength some({.initial = 1, .max = 6, .probe = 2, .target_cost = curve(1.0, 0.01)});
  AdaptiveDraftLength blind({.initial = 1, .max = 6, .probe = 2});
  int64_t plain_steps = 0;
  int64_t blind_plain_steps = 0;
  for (int64_t i = 0; i < 60; ++i) {  // one token of four is accepted
    const int64_t length = some.length(100);
    some.learn(length, i % 4 == 0 ? length : 0);
    plain_steps += length == 0 ? 1 : 0;
    const int64_t blind_length = blind.length(100);
    blind.learn(blind_length, i % 4 == 0 ? blind_length : 0);
    blind_plain_steps += blind_length == 0 ? 1 : 0;
  }
  EXPECT_EQ(plain_steps, 0);
  EXPECT_GT(blind_plain_steps, 20);
}

TEST(AdaptiveDraftLengthTest, DearDraftsDoNotPayAtHighAcceptance) {
  AdaptiveDraftLength policy({.initial = 2,
                              .max = 6,
                              .probe = 2,
                              .target_cost = curve(1.0, 0.01),
                              .drafter_cost = curve(0.9, 0.0)});
  EXPECT_TRUE(policy.pays(1)) << "unknown acceptance is tried all the same";
  lengths(policy, 2, 0.5);
  EXPECT_FALSE(policy.pays(1)) << "1.5 tokens in 1.9 times the time";
  AdaptiveDraftLength linear({.initial = 2, .max = 6, .target_cost = curve(0.0, 1.0)});
  EXPECT_EQ(lengths(linear, 12, 0.9).back(), 0) << "twice the work for less than two tokens";
}

TEST(AdaptiveDraftLengthTest, ExpectedTokensCountTrialsNotDrafts) {
  // Two of four drafted tokens are accepted, one is rejected and one was never tried: the
  // probability of a token is 2 / 3, so a draft of one is expected to commit 1.67 tokens.
  const auto pays_at = [](double cost_of_two) {
    CostCurve costs;
    costs.points = {{1, 100, 1.0}, {2, 100, cost_of_two}};
    AdaptiveDraftLength policy({.initial = 4, .max = 8, .target_cost = costs});
    policy.length(100);
    policy.learn(4, 2);
    return policy.pays(1);
  };
  EXPECT_TRUE(pays_at(1.66));
  EXPECT_FALSE(pays_at(1.67));
}

TEST(AdaptiveDraftLengthTest, ResetForgetsAll) {
  AdaptiveDraftLength policy({.initial = 3, .max = 8, .pause = 2, .probe = 1});
  const auto first = lengths(policy, 9, 0.0);
  policy.reset();
  EXPECT_EQ(lengths(policy, 9, 0.0), first);
}

TEST(AdaptiveDraftLengthTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(AdaptiveDraftLength({.initial = 0}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.initial = 9, .max = 8}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.grow_above = 0.3}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.memory = 1.0}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.pause = 0}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.probe = 0}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.target_cost = CostCurve{}}), ConfigError);
  EXPECT_THROW(AdaptiveDraftLength({.target_cost = curve(1.0, 0.1), .drafter_cost = CostCurve{}}),
               ConfigError);
}

}  // namespace
}  // namespace specdec
