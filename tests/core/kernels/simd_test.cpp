#include "core/kernels/simd.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace specdec {
namespace {

TEST(SimdTest, TheNameLowersTheLevelAndNeverRaisesIt) {
  using enum SimdLevel;
  EXPECT_EQ(lowered_simd_level(kAvx512, ""), kAvx512);
  EXPECT_EQ(lowered_simd_level(kAvx512, "avx2"), kAvx2);
  EXPECT_EQ(lowered_simd_level(kAvx2, "baseline"), kBaseline);
  EXPECT_EQ(lowered_simd_level(kAvx2, "avx512"), kAvx2);
  EXPECT_EQ(lowered_simd_level(kAvx512Vnni, "avx512"), kAvx512);
  EXPECT_EQ(lowered_simd_level(kAvx512, "avx512vnni"), kAvx512);
}

TEST(SimdTest, UnknownNameIsAnError) {
  EXPECT_THROW(lowered_simd_level(SimdLevel::kAvx2, "avx"), Error);
}

TEST(SimdTest, NoLevelAboveTheOneAskedForRuns) {
  const char* wanted = std::getenv("SPECDEC_SIMD");
  const SimdLevel most =
      lowered_simd_level(SimdLevel::kAvx512Vnni, wanted == nullptr ? "" : wanted);
  EXPECT_LE(simd_level(), most);
}

}  // namespace
}  // namespace specdec
