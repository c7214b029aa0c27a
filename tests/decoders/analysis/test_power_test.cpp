#include "decoders/analysis/test_power.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

TEST(TestPowerTest, CriticalValuesAreThoseOfTheTables) {
  EXPECT_NEAR(critical_value({1, 0.05}), 3.8415, 1e-4);
  EXPECT_NEAR(critical_value({1, 0.001}), 10.8276, 1e-4);
  EXPECT_NEAR(critical_value({10, 0.01}), 23.2093, 1e-4);
  EXPECT_NEAR(critical_value({100, 0.05}), 124.3421, 1e-4);
  EXPECT_THROW(critical_value({0, 0.05}), InternalError);
}

TEST(TestPowerTest, NoncentralityIsThatOfTheTables) {
  // Haynam, Govindarajulu and Leone, 1970; one degree: (1.959964 + 1.281552)^2.
  EXPECT_NEAR(noncentrality({1, 0.05}, 0.9), 10.507, 2e-3);
  EXPECT_NEAR(noncentrality({5, 0.05}, 0.9), 16.470, 2e-3);
  EXPECT_NEAR(noncentrality({10, 0.01}, 0.9), 26.959, 0.3);
}

// At worst, where the tokens in question have half of the mass; 0.01 over ten tests.
TEST(TestPowerTest, SamplesToSeeATotalVariation) {
  EXPECT_NEAR(static_cast<double>(samples_to_see(0.05, {1, 0.001}, 0.9)), 2100, 20);
  EXPECT_NEAR(static_cast<double>(samples_to_see(0.02, {1, 0.001}, 0.9)), 13060, 50);
  for (const int64_t degrees : {1, 7, 30}) {
    const auto samples = samples_to_see(0.1, {degrees, 0.001}, 0.9);
    EXPECT_NEAR(visible_total_variation(static_cast<double>(samples), {degrees, 0.001}, 0.9), 0.1,
                1e-4);
  }
}

}  // namespace
}  // namespace specdec
