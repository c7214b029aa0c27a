#include "decoders/analysis/expert_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace specdec {
namespace {

/// Rows that wake experts independently, one token again and again, and two tokens in turns.
std::vector<ExpertSample> samples_of(const ExpertCost& cost) {
  std::vector<ExpertSample> samples;
  for (const int64_t rows : {1, 2, 4, 8, 16}) {
    for (const double varied : {1.0, 2.0, static_cast<double>(rows)}) {
      const double distinct = independent_experts(128, 8, varied);
      samples.push_back({rows, distinct, cost.seconds(static_cast<double>(rows), distinct)});
    }
  }
  return samples;
}

TEST(ExpertCostTest, IndependentTokensWakeMostExperts) {
  EXPECT_NEAR(independent_experts(128, 8, 1), 8.0, 1e-12);
  EXPECT_NEAR(independent_experts(128, 8, 4), 29.1, 0.1);
  EXPECT_NEAR(independent_experts(128, 8, 8), 51.6, 0.1);
  EXPECT_NEAR(independent_experts(4, 4, 3), 4.0, 1e-12);
  EXPECT_EQ(independent_experts(128, 8, 0), 0.0);
}

TEST(ExpertCostTest, FindsTheCostsThatTheTimesAreMadeOf) {
  const ExpertCost made{.fixed = 3e-3, .per_row = 2e-5, .per_expert = 1.5e-4};
  const ExpertCost found = fit_expert_cost(samples_of(made)).value();
  EXPECT_NEAR(found.fixed, made.fixed, 1e-9);
  EXPECT_NEAR(found.per_row, made.per_row, 1e-9);
  EXPECT_NEAR(found.per_expert, made.per_expert, 1e-9);
  EXPECT_LT(found.error, 1e-9);
}

TEST(ExpertCostTest, NoiseIsAveraged) {
  const ExpertCost made{.fixed = 3e-3, .per_row = 5e-5, .per_expert = 1.5e-4};
  std::vector<ExpertSample> samples = samples_of(made);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].seconds *= 1.0 + 0.02 * std::sin(7.0 * static_cast<double>(i));
  }
  const ExpertCost found = fit_expert_cost(samples).value();
  EXPECT_NEAR(found.per_expert, made.per_expert, 0.1 * made.per_expert);
  EXPECT_GT(found.error, 0.005);
  EXPECT_LT(found.error, 0.02);
}

TEST(ExpertCostTest, NoCostIsNegative) {
  // Faster with more rows: what a busy machine measures.
  const ExpertCost found =
      fit_expert_cost(samples_of({.fixed = 3e-3, .per_row = -3e-5, .per_expert = 1e-4})).value();
  EXPECT_EQ(found.per_row, 0.0);
  EXPECT_GT(found.fixed, 0.0);
  EXPECT_GT(found.per_expert, 0.0);
}

TEST(ExpertCostTest, WhatDoesNotTellRowsFromExpertsIsNotFitted) {
  EXPECT_FALSE(fit_expert_cost({}));
  std::vector<ExpertSample> same;
  for (const int64_t rows : {1, 2, 4, 8}) {
    same.push_back({rows, 2.0, 1e-3 * static_cast<double>(rows)});
  }
  EXPECT_FALSE(fit_expert_cost(same)) << "as many experts in each";
  for (ExpertSample& sample : same) {
    sample.distinct = 2.0 * static_cast<double>(sample.rows);
  }
  EXPECT_FALSE(fit_expert_cost(same)) << "new experts for each row";
}

TEST(RecordedRoutesTest, AreCountedForPrefixesAndForAllPlaces) {
  // Two layers, three tokens, two experts each.
  const RecordedRoutes routes{.chosen = 2, .layers = {{0, 1, 1, 0, 2, 3}, {4, 5, 4, 6, 4, 6}}};
  EXPECT_THAT(experts_of_prefixes(routes, 9), testing::ElementsAre(2.0, 2.5, 3.5));
  EXPECT_THAT(experts_of_prefixes(routes, 2), testing::ElementsAre(2.0, 2.5));
  // Distinct experts of tokens 0, 1: 2 and 3; of 1, 2: 4 and 2.
  EXPECT_THAT(experts_of_windows(routes, 9), testing::ElementsAre(2.0, 2.75, 3.5));
  EXPECT_THAT(experts_of_windows({.chosen = 2}, 9), testing::IsEmpty());
}

TEST(ExpertCountsTest, TokensBeyondWhatWasRecordedChooseIndependently) {
  const ExpertCounts independent{.count = 8, .chosen = 2};
  EXPECT_DOUBLE_EQ(independent.at(3), independent_experts(8, 2, 3.0));
  const ExpertCounts recorded{.count = 8, .chosen = 2, .recorded = {2.0, 2.5}};
  EXPECT_EQ(recorded.at(1), 2.0);
  EXPECT_EQ(recorded.at(2), 2.5);
  EXPECT_DOUBLE_EQ(recorded.at(3), 2.5 + 5.5 * 2.0 / 8.0);
  EXPECT_LT(recorded.at(100), 8.0);
}

TEST(ExpertCountsTest, ACurveIsThatOfOtherExperts) {
  const CostCurve curve = {
      {{.new_tokens = 1, .context = 4, .seconds = 1.0},
       {.new_tokens = 2, .context = 4, .seconds = 2.0, .low = 1.0, .high = 4.0},
       {.new_tokens = 2, .context = 9, .seconds = 3.0}}};
  const ExpertCounts measured{.count = 8, .chosen = 2, .recorded = {2.0, 4.0}};
  const ExpertCounts expected{.count = 8, .chosen = 2, .recorded = {2.0, 2.0}};
  const CostCurve changed = with_experts(curve, {.per_expert = 0.5}, measured, expected);
  EXPECT_EQ(changed.points[0].seconds, 1.0);
  EXPECT_EQ(changed.points[1].seconds, 1.0);
  EXPECT_EQ(changed.points[1].low, 0.5);
  EXPECT_EQ(changed.points[1].high, 2.0);
  EXPECT_DOUBLE_EQ(changed.points[2].seconds, 2.0);
  EXPECT_DOUBLE_EQ(with_experts(curve, {.per_expert = 50.0}, measured, expected).points[1].seconds,
                   0.2);
}

}  // namespace
}  // namespace specdec
