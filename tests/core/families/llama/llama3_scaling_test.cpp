#include "core/families/llama/llama3_scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace specdec {
namespace {

constexpr int64_t kHead = 64;
constexpr double kTheta = 5e5;
constexpr int64_t kPositions = 131072;

/// Divisors in float32 throughout, as llama.cpp's converter computes them.
std::vector<double> float32_divisors(float factor) {
  std::vector<double> all;
  for (int64_t i = 0; i < kHead; i += 2) {
    const float share = static_cast<float>(i) / static_cast<float>(kHead);
    const float frequency = 1.0F / std::pow(static_cast<float>(kTheta), share);
    const float wave = static_cast<float>(2.0 * M_PI) / frequency;
    const float smooth = (8192.0F / wave - 1.0F) / 3.0F;
    const float blend = 1.0F / ((1.0F - smooth) / factor + smooth);
    all.push_back(wave < 8192.0F / 4.0F ? 1.0F : wave > 8192.0F ? factor : blend);
  }
  return all;
}

std::optional<Llama3Rope> found(const std::vector<double>& divisors) {
  return find_llama3({.theta = kTheta, .divisors = divisors}, kHead, kPositions);
}

TEST(Llama3ScalingTest, IsFoundInDivisorsOfFloat32) {
  for (const float factor : {8.0F, 32.0F}) {
    const auto divisors = float32_divisors(factor);
    const Llama3Rope own{.factor = factor};
    ASSERT_NE(divisors, llama3_divisors(own, kTheta, kHead));
    const auto scaling = found(divisors);
    ASSERT_TRUE(scaling);
    EXPECT_EQ(scaling->factor, factor);
    EXPECT_EQ(scaling->low_freq_factor, 1.0);
    EXPECT_EQ(scaling->high_freq_factor, 4.0);
    EXPECT_EQ(scaling->original_positions, 8192.0);
  }
}

TEST(Llama3ScalingTest, BandsAreFitted) {
  for (const Llama3Rope& wanted :
       {Llama3Rope{.factor = 8.0, .original_positions = 6000.0}, Llama3Rope{.factor = 2.5},
        Llama3Rope{.factor = 8.0, .low_freq_factor = 2.0, .high_freq_factor = 6.0},
        Llama3Rope{.factor = 16.0, .low_freq_factor = 0.7, .high_freq_factor = 12.3}}) {
    auto divisors = llama3_divisors(wanted, kTheta, kHead);
    std::transform(divisors.begin(), divisors.end(), divisors.begin(),
                   [](double divisor) { return static_cast<float>(divisor); });
    const auto scaling = found(divisors);
    ASSERT_TRUE(scaling) << wanted.original_positions;
    EXPECT_TRUE(same_divisors(llama3_divisors(*scaling, kTheta, kHead), divisors));
    EXPECT_EQ(scaling->original_positions, std::round(scaling->original_positions));
  }
  const auto odd = found(llama3_divisors({.original_positions = 6000.0}, kTheta, kHead));
  EXPECT_EQ(odd->original_positions, 6000.0);
  EXPECT_EQ(odd->low_freq_factor, 1.0);
  EXPECT_EQ(odd->high_freq_factor, 4.0);
}

TEST(Llama3ScalingTest, IsNotFoundWhereThereIsNone) {
  std::vector<double> divisors(kHead / 2, 1.0);
  divisors[3] = 5.0;
  divisors[4] = 2.0;
  divisors.back() = 8.0;
  EXPECT_FALSE(found(divisors));
  std::reverse(divisors.begin(), divisors.end());
  EXPECT_FALSE(found(divisors));
}

}  // namespace
}  // namespace specdec
