#include "core/kernels/probs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace specdec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Shorter than a vector, whole vectors, and rests of any length.
const std::vector<size_t> kSizes = {1, 2, 3, 7, 8, 9, 31, 32, 33, 100, 2048};

std::vector<double> some_values(size_t size) {
  std::vector<double> values(size);
  for (size_t i = 0; i < size; ++i) {
    values[i] = static_cast<double>(i * 2654435761U % 4096U) / 256.0 - 12.0;
  }
  return values;
}

TEST(DistributionTest, TheLargestIsFoundWhereverItIs) {
  for (const size_t size : kSizes) {
    for (const size_t place : {size_t{0}, size / 2, size - 1}) {
      std::vector<double> values = some_values(size);
      values[place] = 99.0;
      EXPECT_EQ(largest_of(values), 99.0) << size;
      values[place] = kInfinity;
      EXPECT_EQ(largest_of(values), kInfinity) << size;
      values[place] = kNan;
      EXPECT_TRUE(std::isnan(largest_of(values))) << size;
    }
    EXPECT_EQ(largest_of(std::vector<double>(size, -kInfinity)), -kInfinity);
  }
  EXPECT_EQ(largest_of({}), -kInfinity);
}

TEST(DistributionTest, SoftenIsTheExponentialAndItsSum) {
  for (const size_t size : kSizes) {
    const std::vector<double> values = some_values(size);
    std::vector<double> masses = values;
    const double sum = soften(masses, 4.0, 1.25, masses);
    double exact = 0.0;
    for (size_t i = 0; i < size; ++i) {
      const double mass = std::exp((values[i] - 4.0) * 1.25);
      EXPECT_NEAR(masses[i], mass, 1e-15 * mass);
      exact += mass;
    }
    EXPECT_NEAR(sum, exact, 1e-14 * exact) << size;
  }
}

TEST(DistributionTest, EqualValuesSoftenEquallyWhereverTheyAre) {
  std::vector<double> masses(45, -0.7);
  (void)soften(masses, 0.1, 1.7, masses);
  EXPECT_EQ(masses, std::vector<double>(45, masses[0]));
}

TEST(DistributionTest, WhatIsForbiddenGetsNothing) {
  std::vector<double> masses = {-kInfinity, 3.0, -1e6};
  EXPECT_EQ(soften(masses, 3.0, std::numeric_limits<double>::max(), masses), 1.0);
  EXPECT_EQ(masses, (std::vector<double>{0.0, 1.0, 0.0}));
}

TEST(DistributionTest, BlocksAreSeenEachForItself) {
  for (const size_t size : {size_t{1}, kProbsBlock - 1, kProbsBlock, 3 * kProbsBlock + 5}) {
    const std::vector<double> wide = some_values(size);
    const std::vector<float> narrow(wide.begin(), wide.end());  // the same values
    const size_t blocks = (size + kProbsBlock - 1) / kProbsBlock;
    std::vector<double> maxima(blocks);
    std::vector<double> of_narrow(blocks);
    block_maxima(wide, maxima);
    block_maxima(narrow, of_narrow);
    EXPECT_EQ(maxima, of_narrow);
    std::vector<double> sums(blocks);
    block_masses(wide, 4.5, 0.75, sums);
    block_masses(narrow, 4.5, 0.75, of_narrow);
    EXPECT_EQ(sums, of_narrow);
    for (size_t block = 0; block < blocks; ++block) {
      const size_t begin = block * kProbsBlock;
      const auto part = std::span(wide).subspan(begin, std::min(kProbsBlock, size - begin));
      EXPECT_EQ(maxima[block], largest_of(part));
      std::vector<double> masses(part.size());
      EXPECT_EQ(soften(part, 4.5, 0.75, masses), sums[block]);
      std::vector<double> again(part.size());
      (void)soften(std::span(narrow).subspan(begin, part.size()), 4.5, 0.75, again);
      EXPECT_EQ(again, masses);
    }
  }
  std::vector<float> damaged(2 * kProbsBlock, 1.0F);
  damaged[kProbsBlock + 3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<double> maxima(2);
  block_maxima(damaged, maxima);
  EXPECT_EQ(maxima[0], 1.0);
  EXPECT_TRUE(std::isnan(maxima[1]));
}

TEST(DistributionTest, SumsAndTheLeast) {
  for (const size_t size : kSizes) {
    std::vector<double> values = some_values(size);
    std::transform(values.begin(), values.end(), values.begin(),
                   [](double value) { return std::abs(value); });
    EXPECT_NEAR(sum_of(values).sum, std::accumulate(values.begin(), values.end(), 0.0),
                1e-12 * static_cast<double>(size));
    EXPECT_EQ(sum_of(values).least, 0.0);
    values.back() = -3.0;
    EXPECT_EQ(sum_of(values).least, -3.0);
    values.back() = kNan;
    EXPECT_TRUE(std::isnan(sum_of(values).sum));
  }
  EXPECT_EQ(sum_of({}).sum, 0.0);
}

TEST(DistributionTest, DividesBySumsWithoutAnInverseToo) {
  std::vector<double> weights = {3.0, 1.0, 0.0};
  divide(weights, 4.0);
  EXPECT_EQ(weights, (std::vector<double>{0.75, 0.25, 0.0}));
  weights = {3e-310, 1e-310, 0.0};
  divide(weights, 4e-310);
  EXPECT_NEAR(weights[0], 0.75, 1e-12);
  EXPECT_NEAR(weights[1], 0.25, 1e-12);
  EXPECT_EQ(weights[2], 0.0);
}

}  // namespace
}  // namespace specdec
