#include "core/formats/finite_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/formats/gguf/gguf_blocks.h"

namespace specdec {
namespace {

template <class T>
std::optional<NotFinite> find(DType dtype, const std::vector<T>& values) {
  return first_not_finite(dtype, std::as_bytes(std::span(values)));
}

/// Finds what replaces a value, at each of some places.
template <class T>
void expect_found(DType dtype, T finite, T wrong, bool is_nan) {
  for (const size_t place : {0, 1, 511, 512, 4095, 4096, 9999}) {
    std::vector<T> values(10000, finite);
    EXPECT_FALSE(find(dtype, values)) << dtype_name(dtype);
    values[place] = wrong;
    const auto found = find(dtype, values);
    ASSERT_TRUE(found) << dtype_name(dtype) << " at " << place;
    EXPECT_EQ(found->value, static_cast<int64_t>(place)) << dtype_name(dtype);
    EXPECT_EQ(found->is_nan, is_nan) << dtype_name(dtype);
  }
}

TEST(FiniteValuesTest, TheFirstNaNOrInfinityIsFound) {
  using Double = std::numeric_limits<double>;
  using Float = std::numeric_limits<float>;
  expect_found(DType::kF64, Double::max(), Double::quiet_NaN(), true);
  expect_found(DType::kF64, Double::denorm_min(), -Double::infinity(), false);
  expect_found(DType::kF32, Float::lowest(), Float::quiet_NaN(), true);
  expect_found(DType::kF32, Float::max(), Float::infinity(), false);
  expect_found<uint16_t>(DType::kF16, 0xFBFF, 0x7C01, true);
  expect_found<uint16_t>(DType::kF16, 0x7BFF, 0xFC00, false);
  expect_found<uint16_t>(DType::kBF16, 0xFF7F, 0x7FC0, true);
  expect_found<uint16_t>(DType::kBF16, 0x7C00, 0xFF80, false);
}

TEST(FiniteValuesTest, IntegersAreNumbers) {
  const std::vector<uint32_t> bits(100, 0x7F800000U);
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI8, DType::kBool}) {
    EXPECT_FALSE(find(dtype, bits)) << dtype_name(dtype);
  }
}

TEST(FiniteValuesTest, BlocksAreFiniteWhereTheirValuesAre) {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::kQ40, DType::kQ41, DType::kQ50, DType::kQ51, DType::kQ80,
                            DType::kQ2K, DType::kQ3K, DType::kQ4K, DType::kQ5K, DType::kQ6K}) {
    std::vector<float> values(static_cast<size_t>(block_values(dtype)));
    std::vector<uint8_t> block(static_cast<size_t>(dtype_bytes(dtype)));
    int64_t damaged = 0;
    for (int i = 0; i < 2000; ++i) {
      for (uint8_t& byte : block) {
        byte = static_cast<uint8_t>(random());
      }
      dequantize(dtype, std::as_bytes(std::span(block)).data(), std::ssize(values), values.data());
      const bool finite = std::all_of(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
      EXPECT_EQ(find(dtype, block).has_value(), !finite) << dtype_name(dtype);
      damaged += finite ? 0 : 1;
    }
    EXPECT_GT(damaged, 20) << dtype_name(dtype);
    std::vector<uint8_t> second(block.size(), 0);  // a whole one before it
    std::fill(block.begin(), block.end(), uint8_t{0xFF});
    second.insert(second.end(), block.begin(), block.end());
    EXPECT_EQ(find(dtype, second)->value, block_values(dtype)) << dtype_name(dtype);
  }
}

TEST(FiniteValuesTest, ScalesAndMinimaOfBlocksAreNumbers) {
  for (const auto& [dtype, size, at] : {std::tuple{DType::kAffine8x64, 72, 0},
                                        {DType::kAffine8x64, 72, 4},
                                        {DType::kAffine4x32, 20, 0},
                                        {DType::kAffine4x32, 20, 2}}) {
    std::vector<uint8_t> blocks(static_cast<size_t>(3 * size), 0);
    EXPECT_FALSE(find(dtype, blocks)) << dtype_name(dtype);
    const auto high = static_cast<size_t>(size + at) + (size == 72 ? 2 : 0);
    blocks[high] = 0x80;
    blocks[high + 1] = 0x7F;
    ASSERT_TRUE(find(dtype, blocks)) << dtype_name(dtype) << at;
    EXPECT_EQ(find(dtype, blocks)->value, block_values(dtype));
    EXPECT_FALSE(find(dtype, blocks)->is_nan);
  }
}

}  // namespace
}  // namespace specdec
