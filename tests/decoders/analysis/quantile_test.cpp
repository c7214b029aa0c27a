#include "decoders/analysis/quantile.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"

namespace specdec {
namespace {

// The values of numpy.quantile(values, share), whose default is the same definition.
TEST(QuantileTest, IsLinearBetweenTheValuesAroundIt) {
  const std::vector<double> four = {1.0, 2.0, 4.0, 8.0};
  EXPECT_DOUBLE_EQ(quantile(four, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(four, 0.5), 3.0);
  EXPECT_DOUBLE_EQ(quantile(four, 0.75), 5.0);
  EXPECT_DOUBLE_EQ(quantile({1.0, 2.0, 4.0}, 0.25), 1.5);
  EXPECT_DOUBLE_EQ(quantile({1.0, 2.0, 4.0}, 0.75), 3.0);
  EXPECT_DOUBLE_EQ(quantile({1.0, 2.0, 3.0, 4.0, 5.0}, 0.25), 2.0);
  EXPECT_DOUBLE_EQ(quantile({7.0}, 0.75), 7.0);
  EXPECT_DOUBLE_EQ(median_of({8.0, 1.0, 4.0, 2.0}), 3.0);
}

TEST(QuantileTest, GrowsWithTheShareFromTheSmallestToTheLargest) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> value(0.0, 1.0);
  for (size_t count = 1; count <= 40; ++count) {
    std::vector<double> values(count);
    double next = 0.0;
    for (double& each : values) {
      each = next += value(random);
    }
    double before = values.front();
    for (int step = 0; step <= 100; ++step) {
      const double found = quantile(values, step / 100.0);
      EXPECT_GE(found, before);
      before = found;
    }
    EXPECT_EQ(quantile(values, 0.0), values.front());
    EXPECT_EQ(quantile(values, 1.0), values.back());
  }
}

TEST(QuantileTest, OfNothingIsABug) {
  EXPECT_THROW(quantile({}, 0.5), InternalError);
  EXPECT_THROW(quantile({1.0}, 1.5), InternalError);
}

}  // namespace
}  // namespace specdec
