#include "experiments/metrics/intervals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;

constexpr int kDatasets = 2000;  // a coverage of 95 % is then known to +- 1 %

/// Random numbers in (0, 1), the same in every run.
class Uniform {
 public:
  double operator()() {
    random_.seek(position_++, Purpose::kSample);
    int64_t bits = 0;
    for (int i = 0; i < 3; ++i) {
      bits = bits * 1000 + random_.draw(thousand_);
    }
    return (static_cast<double>(bits) + 0.5) / 1e9;
  }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log((*this)()));
    return radius * std::cos(2.0 * M_PI * (*this)());
  }

 private:
  CounterRandomness random_{20261123};
  std::vector<double> thousand_ = std::vector<double>(1000, 1.0);
  int64_t position_ = 0;
};

TEST(IntervalsTest, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(0.975, 7), 2.364624, 1e-6);
  EXPECT_NEAR(student_quantile(0.975, 59), 2.000995, 1e-6);
  EXPECT_NEAR(student_quantile(0.95, 1), 6.313752, 1e-6);
  EXPECT_NEAR(student_quantile(0.975, 1e6), 1.959966, 1e-5);
  EXPECT_NEAR(student_quantile(0.025, 7), -2.364624, 1e-6);
  EXPECT_NEAR(student_quantile(0.9999, 7), 7.063433, 1e-5);
  EXPECT_NEAR(student_quantile(0.5, 7), 0.0, 1e-9);
  // Clopper and Pearson's limits of 3 of 10.
  EXPECT_NEAR(beta_quantile(0.025, 3, 8), 0.0667395, 1e-6);
  EXPECT_NEAR(beta_quantile(0.975, 4, 7), 0.6524529, 1e-6);
  EXPECT_NEAR(beta_quantile(0.5, 20000, 30000), 0.4, 1e-5);
  EXPECT_THROW((void)student_quantile(1.0, 7), InternalError);
  EXPECT_THROW((void)beta_quantile(0.5, 0.0, 1.0), InternalError);
}

TEST(IntervalsTest, GeometricMeanTreatsARatioAndItsInverseAlike) {
  const std::vector<double> ratios = {4.0, 1.0, 0.25, 2.0};
  EXPECT_NEAR(geometric_mean(ratios)->value, std::pow(2.0, 0.25), 1e-12);
  const std::vector<double> inverse = {0.25, 1.0, 4.0, 0.5};
  EXPECT_NEAR(geometric_mean(inverse)->value * geometric_mean(ratios)->value, 1.0, 1e-12);
  EXPECT_EQ(geometric_mean({}), std::nullopt);
  EXPECT_EQ(geometric_mean(std::vector<double>{3.0})->log_error, 0.0);
  EXPECT_THROW((void)geometric_mean(std::vector<double>{0.0}), InternalError);
}

TEST(IntervalsTest, GeometricIntervalByHand) {
  // Logarithms 1 and -1, four of each: deviation sqrt(8 / 7), error 1 / sqrt(7).
  std::vector<double> values(4, std::exp(1.0));
  values.resize(8, std::exp(-1.0));
  const auto mean = geometric_mean(values).value();
  EXPECT_NEAR(mean.log_error, 1.0 / std::sqrt(7.0), 1e-12);
  const auto interval = geometric_interval(mean).value();
  EXPECT_NEAR(std::log(interval.high), 2.364624 / std::sqrt(7.0), 1e-6);
  EXPECT_NEAR(std::log(interval.low), -2.364624 / std::sqrt(7.0), 1e-6);
  EXPECT_GT(geometric_interval(mean, 0.99)->high, interval.high);
}

TEST(IntervalsTest, FewerThanEightQuestionsHaveNone) {
  const std::vector<double> values(7, 2.0);
  EXPECT_EQ(geometric_interval(*geometric_mean(values)), std::nullopt);
  std::vector<QuestionShare> shares(7, {.part = 1.0, .whole = 2.0});
  shares.push_back({.part = 0.0, .whole = 0.0});  // a question that says nothing
  EXPECT_EQ(ratio_interval(shares), std::nullopt);
  EXPECT_EQ(share_interval(shares), std::nullopt);
  shares.push_back({.part = 1.0, .whole = 2.0});
  EXPECT_TRUE(ratio_interval(shares).has_value());
  EXPECT_TRUE(share_interval(shares).has_value());
}

TEST(IntervalsTest, QuestionsThatAgreeLeaveTheRatioNoRoom) {
  const std::vector<QuestionShare> same(20, {.part = 6.0, .whole = 3.0});
  EXPECT_NEAR(ratio_interval(same)->low, 2.0, 1e-12);
  EXPECT_NEAR(ratio_interval(same)->high, 2.0, 1e-12);
  const std::vector<QuestionShare> none(20, {.part = 0.0, .whole = 3.0});
  EXPECT_EQ(ratio_interval(none), std::nullopt);
}

TEST(IntervalsTest, ASharesEdgeCountsEachQuestionOnce) {
  std::vector<QuestionShare> all(20, {.part = 50.0, .whole = 50.0});
  // 20 of 20: Clopper and Pearson's lower limit is 0.025^(1/20).
  EXPECT_NEAR(share_interval(all)->low, std::pow(0.025, 1.0 / 20.0), 1e-9);
  EXPECT_EQ(share_interval(all)->high, 1.0);
  for (QuestionShare& each : all) {
    each.part = 0.0;
  }
  EXPECT_EQ(share_interval(all)->low, 0.0);
  EXPECT_NEAR(share_interval(all)->high, 1.0 - std::pow(0.025, 1.0 / 20.0), 1e-9);
}

TEST(IntervalsTest, AShareOfQuestionsThatAreAllOrNothingIsWide) {
  // 1,000 steps, but each question is accepted throughout or not at all: it tells as much as 20.
  std::vector<QuestionShare> lumps(10, {.part = 50.0, .whole = 50.0});
  lumps.resize(20, {.part = 0.0, .whole = 50.0});
  const auto wide = share_interval(lumps).value();
  EXPECT_GT(wide.high - wide.low, 0.4);
  const std::vector<QuestionShare> alike(20, {.part = 25.0, .whole = 50.0});
  const auto narrow = share_interval(alike).value();
  EXPECT_LT(narrow.high - narrow.low, 0.1);
}

/// A ratio of totals of questions that differ in length and rate.
TEST(IntervalsTest, RatioIntervalsCoverTheTruth) {
  Uniform uniform;
  for (const int questions : {8, 20, 60}) {
    int covered = 0;
    for (int dataset = 0; dataset < kDatasets; ++dataset) {
      std::vector<QuestionShare> shares;
      for (int i = 0; i < questions; ++i) {
        const double steps = std::floor(20.0 + 60.0 * uniform());
        const double rate = 2.0 * std::exp(0.2 * uniform.normal() - 0.02);  // mean 2
        shares.push_back({.part = rate * steps, .whole = steps});
      }
      const auto interval = ratio_interval(shares).value();
      covered += interval.low <= 2.0 && 2.0 <= interval.high ? 1 : 0;
    }
    EXPECT_THAT(100.0 * covered / kDatasets, AllOf(Ge(93.0), Le(97.0))) << questions;
  }
}

/// The steps of a question share its rate: 0.7 or 0.9, and 0.8 in the mean.
TEST(IntervalsTest, ShareIntervalsCoverTheTruth) {
  Uniform uniform;
  for (const int questions : {8, 20, 60}) {
    int covered = 0;
    for (int dataset = 0; dataset < kDatasets / 4; ++dataset) {
      std::vector<QuestionShare> shares;
      for (int i = 0; i < questions; ++i) {
        const double rate = uniform() < 0.5 ? 0.7 : 0.9;
        QuestionShare share{.whole = std::floor(5.0 + 20.0 * uniform())};
        for (int step = 0; step < static_cast<int>(share.whole); ++step) {
          share.part += uniform() < rate ? 1.0 : 0.0;
        }
        shares.push_back(share);
      }
      const auto interval = share_interval(shares).value();
      covered += interval.low <= 0.8 && 0.8 <= interval.high ? 1 : 0;
    }
    // 500 data sets: known to +- 1.9 %; Clopper and Pearson's limits are on the safe side.
    EXPECT_THAT(100.0 * covered / (kDatasets / 4), AllOf(Ge(92.5), Le(99.0))) << questions;
  }
}

}  // namespace
}  // namespace specdec
