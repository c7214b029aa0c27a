#include "decoders/analysis/cost_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

TEST(CostCurveTest, IsLinearBetweenPointsAndGoesOnAsTheLastTwo) {
  const CostCurve curve{{{4, 10, 3.0}, {1, 10, 1.0}, {2, 10, 2.0}, {1, 100, 10.0}, {2, 100, 30.0}}};
  EXPECT_DOUBLE_EQ(curve.seconds(1, 10), 1.0);
  EXPECT_DOUBLE_EQ(curve.seconds(2, 10), 2.0);
  EXPECT_DOUBLE_EQ(curve.seconds(3, 10), 2.5);
  EXPECT_DOUBLE_EQ(curve.seconds(0, 10), 1.0);
  EXPECT_DOUBLE_EQ(curve.seconds(64, 10), 33.0);
  EXPECT_DOUBLE_EQ(curve.seconds(3, 100), 50.0);
}

TEST(CostCurveTest, BeyondWhatWasMeasuredNothingGetsCheaper) {
  const CostCurve falls{{{1, 10, 1.0}, {16, 10, 3.0}, {32, 10, 2.9}}};
  EXPECT_DOUBLE_EQ(falls.seconds(256, 10), 2.9);
  const CostCurve point{{{4, 10, 3.0}}};
  EXPECT_DOUBLE_EQ(point.seconds(256, 10), 3.0);
}

TEST(CostCurveTest, TakesTheNearestContext) {
  const CostCurve curve{{{1, 10, 1.0}, {2, 10, 2.0}, {1, 100, 10.0}, {3, 100, 30.0}}};
  EXPECT_DOUBLE_EQ(curve.seconds(1, 0), 1.0);
  EXPECT_DOUBLE_EQ(curve.seconds(1, 54), 1.0);
  EXPECT_DOUBLE_EQ(curve.seconds(1, 56), 10.0);
  EXPECT_DOUBLE_EQ(curve.seconds(2, 5000), 20.0);
}

TEST(CostCurveTest, WithoutPointsIsABug) { EXPECT_THROW(CostCurve().seconds(1, 1), InternalError); }

TEST(CostCurveTest, MeasuresWhatFitsAndLeavesNothingPending) {
  FakeModel model(7, random_table(7, 1), 40);
  const CostCurve curve =
      measure_cost_curve(model, {.new_tokens = {1, 3}, .contexts = {8, 38, 500}, .repeats = 3});
  ASSERT_EQ(curve.points.size(), 3U);  // 38 + 3 and 500 do not fit
  const std::vector<std::pair<int64_t, int64_t>> expected = {{1, 8}, {3, 8}, {1, 38}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(curve.points[i].new_tokens, expected[i].first);
    EXPECT_EQ(curve.points[i].context, expected[i].second);
    EXPECT_GT(curve.points[i].seconds, 0.0);
  }
  EXPECT_EQ(model.pending(), 0);
  EXPECT_EQ(model.length(), 38);
}

TEST(CostCurveTest, AModelTooShortForAllContextsIsMeasuredAtHalfItsLength) {
  FakeModel model(7, random_table(7, 1), 16);
  const CostCurve curve = measure_cost_curve(model, {.repeats = 1});
  ASSERT_EQ(curve.points.size(), 7U) << "1, 2, 3, 4, 5, 6 and 8 tokens fit after 8";
  EXPECT_EQ(curve.points.back().new_tokens, 8);
  EXPECT_EQ(curve.points.back().context, 8);
  EXPECT_GT(curve.seconds(16, 500), 0.0);
  FakeModel shortest(7, random_table(7, 1), 2);
  const CostCurve point = measure_cost_curve(shortest, {.new_tokens = {3}, .repeats = 1});
  ASSERT_EQ(point.points.size(), 1U);
  EXPECT_EQ(point.points.front().new_tokens, 1);
  EXPECT_EQ(point.points.front().context, 1);
  FakeModel none(7, random_table(7, 1), 1);
  EXPECT_THAT([&] { (void)measure_cost_curve(none, {.repeats = 1}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("takes 1")));
}

TEST(CostCurveTest, RefusesNothingToMeasure) {
  FakeModel model(7, random_table(7, 1), 40);
  EXPECT_THROW(measure_cost_curve(model, {.new_tokens = {0}}), InternalError);
  EXPECT_THROW(measure_cost_curve(model, {.repeats = 0}), InternalError);
}

}  // namespace
}  // namespace specdec
