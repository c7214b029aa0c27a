#include "core/kernels/kv_format.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/kernels/device/stored_kv.h"

namespace specdec {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kUnbounded = std::numeric_limits<float>::infinity();

/// Writes numbers between others, which stay, and reads them.
std::vector<float> written_and_read(KvFormat format, const std::vector<float>& numbers) {
  constexpr int64_t kStride = 3;
  const auto head_dim = std::ssize(numbers);
  const int64_t width = kv_width(format, head_dim);
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(kv_element_type(format, at::kFloat)));
  std::vector<uint8_t> page(static_cast<size_t>(width * kStride * bytes), 0xA5);
  encode_kv(format, numbers.data(), head_dim, {page.data(), kStride});
  for (size_t i = 0; i < page.size(); ++i) {
    if (static_cast<int64_t>(i) / bytes % kStride != 0) {
      EXPECT_EQ(page[i], 0xA5) << "wrote beside its elements";
    }
  }
  std::vector<float> read(numbers.size());
  decode_kv(format, {page.data(), kStride}, head_dim, read.data());
  return read;
}

/// Normal numbers of all magnitudes that keys may have, and ties.
std::vector<float> many_numbers() {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> numbers;
  for (int i = 0; i < 4096; ++i) {
    numbers.push_back(std::ldexp(normal(random), static_cast<int>(random() % 24) - 14));
    numbers.push_back(std::ldexp(static_cast<float>(random() % 1024), -14));
  }
  return numbers;
}

TEST(KvFormatTest, WidthsAndHeadDimensionsAreInverses) {
  for (const KvFormat format : kKvFormats) {
    const int64_t step = std::max<int64_t>(2, kv_multiple(format));
    for (int64_t head_dim = step; head_dim <= 520; head_dim += step) {
      EXPECT_EQ(kv_head_dim(format, kv_width(format, head_dim)), head_dim)
          << kv_format_name(format) << " " << head_dim;
    }
  }
  EXPECT_EQ(kv_width(KvFormat::kQ8, 128), 136);
  EXPECT_EQ(kv_width(KvFormat::kQ4, 128), 72);
  EXPECT_EQ(kv_width(KvFormat::kQ3, 128), 56) << "3.5 bits a number, scales included";
  EXPECT_EQ(kv_width(KvFormat::kHierarchical, 128), 136);
  EXPECT_THROW((void)kv_width(KvFormat::kQ4, 7), InternalError);
  EXPECT_THROW((void)kv_width(KvFormat::kQ3, 12), InternalError);
  EXPECT_THROW((void)kv_width(KvFormat::kHierarchical, 7), InternalError);
}

TEST(KvFormatTest, FloatsRoundAsAtenDoes) {
  const std::vector<float> numbers = many_numbers();
  const Tensor given = at::tensor(numbers);
  const std::pair<KvFormat, at::ScalarType> dtypes[] = {{KvFormat::kNative, at::kFloat},
                                                        {KvFormat::kBFloat16, at::kBFloat16},
                                                        {KvFormat::kFloat16, at::kHalf},
                                                        {KvFormat::kFp8E4m3, at::kFloat8_e4m3fn}};
  for (const auto& [format, dtype] : dtypes) {
    const Tensor bounded = format == KvFormat::kFp8E4m3 ? given.clamp(-448, 448) : given;
    EXPECT_TRUE(
        at::equal(at::tensor(written_and_read(format, numbers)), bounded.to(dtype).to(at::kFloat)))
        << kv_format_name(format);
  }
}

TEST(KvFormatTest, FloatsSaturateAndKeepNan) {
  const std::vector<float> numbers = {449, -1e9F, kUnbounded, -kUnbounded, kNotANumber, -0.0F};
  const auto float8 = written_and_read(KvFormat::kFp8E4m3, numbers);
  EXPECT_EQ(float8[0], 448);
  EXPECT_EQ(float8[1], -448);
  EXPECT_EQ(float8[2], 448);
  EXPECT_EQ(float8[3], -448);
  EXPECT_TRUE(std::isnan(float8[4]));
  EXPECT_TRUE(std::signbit(float8[5]));
  const auto half = written_and_read(KvFormat::kFloat16, numbers);
  EXPECT_EQ(half[1], -65504);
  EXPECT_EQ(half[2], 65504);
  EXPECT_TRUE(std::isnan(half[4]));
}

TEST(KvFormatTest, ScalesThatAreSubnormalCutNoNumber) {
  for (const float largest : {1e-5F, -1e-5F, 3e-4F, 1e-7F}) {
    for (const KvFormat format : {KvFormat::kQ8, KvFormat::kQ4}) {
      const auto read = written_and_read(format, {largest, largest / 2, 0, -largest / 4});
      const float step = format == KvFormat::kQ8 ? 1.0F / 128 : 1.0F / 8;
      EXPECT_NEAR(read[0], largest, std::fabs(largest) * step + 0x1p-24F)
          << kv_format_name(format) << " " << largest;
    }
  }
}

/// Each code is a number of the format, or one of its two NaNs, so it comes back.
TEST(KvFormatTest, EveryCodeOfFp8IsWrittenAsItself) {
  for (int code = 0; code < 256; ++code) {
    auto bits = static_cast<uint8_t>(code);
    float number = 0;
    decode_kv(KvFormat::kFp8E4m3, {&bits, 1}, 1, &number);
    uint8_t again = 0;
    encode_kv(KvFormat::kFp8E4m3, &number, 1, {&again, 1});
    EXPECT_EQ(again, bits) << number;
  }
}

TEST(KvFormatTest, IntegersAreTheNearestMultiplesOfTheScale) {
  const std::vector<float> numbers = many_numbers();
  for (const auto& [format, codes] : {std::pair{KvFormat::kQ8, 128}, std::pair{KvFormat::kQ4, 8},
                                      std::pair{KvFormat::kHierarchical, 119}}) {
    for (const size_t head_dim : {2U, 22U, 64U, 70U}) {
      for (size_t first = 0; first + head_dim <= numbers.size(); first += 97) {
        const std::vector<float> head(numbers.begin() + static_cast<int64_t>(first),
                                      numbers.begin() + static_cast<int64_t>(first + head_dim));
        const std::vector<float> read = written_and_read(format, head);
        for (size_t i = 0; i < head_dim; ++i) {
          const size_t begin = i / kKvGroup * kKvGroup;
          float largest = 0;
          for (size_t j = begin; j < std::min(begin + kKvGroup, head_dim); ++j) {
            largest = std::max(largest, std::fabs(head[j]));
          }
          // Half a scale, but a whole one at the end that has a code fewer; and the rounded scale.
          const float scale = largest / static_cast<float>(codes);
          const bool at_end = std::fabs(head[i]) > largest - scale;
          EXPECT_LE(std::fabs(read[i] - head[i]), scale * (at_end ? 1.01F : 0.5F + 0.07F) + 1e-5F)
              << kv_format_name(format) << " " << head[i] << " of " << largest;
        }
      }
    }
  }
}

TEST(KvFormatTest, IntegersOfAKnownGroup) {
  std::vector<float> numbers(kKvGroup, 0.0F);
  numbers[0] = -16;  // the lowest code, so the scale is 2 of 4 bits and 1/8 of 8
  numbers[1] = 14;
  numbers[2] = 16;
  numbers[3] = 2.9F;
  numbers[4] = 3;  // a tie: to the even code
  const auto four = written_and_read(KvFormat::kQ4, numbers);
  EXPECT_EQ(std::vector<float>(four.begin(), four.begin() + 6),
            (std::vector<float>{-16, 14, 14, 2, 4, 0}));
  const auto eight = written_and_read(KvFormat::kQ8, numbers);
  EXPECT_EQ(std::vector<float>(eight.begin(), eight.begin() + 6),
            (std::vector<float>{-16, 14, 15.875F, 2.875F, 3, 0}));
}

TEST(KvFormatTest, AGroupWithoutNumbersIsNone) {
  for (const KvFormat format :
       {KvFormat::kQ8, KvFormat::kQ4, KvFormat::kQ3, KvFormat::kHierarchical}) {
    for (const float fault : {kNotANumber, kUnbounded}) {
      std::vector<float> numbers(2 * kKvGroup, 1.0F);
      numbers[5] = fault;
      const auto read = written_and_read(format, numbers);
      EXPECT_TRUE(std::isnan(read[0]) && std::isnan(read[5]));
      EXPECT_NEAR(read[kKvGroup], 1.0F, 1e-3F) << "the other group";
    }
    const auto zeros = written_and_read(format, std::vector<float>(40, 0.0F));
    EXPECT_EQ(zeros, std::vector<float>(40, 0.0F));
    const auto tiny = written_and_read(format, std::vector<float>(40, 1e-30F));
    EXPECT_EQ(tiny, std::vector<float>(40, 0.0F)) << "less than a scale can be";
    const auto huge = written_and_read(format, std::vector<float>(40, 1e30F));
    EXPECT_TRUE(std::isfinite(huge[0]));
  }
}

/// The code of each number of the first group of a hierarchical head of 32, and its two halves.
struct Halves {
  explicit Halves(const std::vector<float>& numbers) {
    encode_kv(KvFormat::kHierarchical, numbers.data(), kKvGroup, {bytes, 1});
    decode_kv(KvFormat::kHierarchical, {bytes, 1}, kKvGroup, all);
    decode_upper_half({bytes, 1}, kKvGroup, upper);
  }
  uint8_t bytes[34] = {};
  float all[32] = {};
  float upper[32] = {};
};

TEST(KvFormatTest, TheUpperHalfIsTheCodeRoundedToAMultipleOf16) {
  std::vector<float> numbers(kKvGroup, 0.0F);
  for (int first = -119; first <= 119; first += 31) {
    numbers[0] = -119;  // the scale is 1 then, as every code is an integer
    for (int i = 1; i < 32; ++i) {
      numbers[static_cast<size_t>(i)] = static_cast<float>(std::min(first + i - 1, 119));
    }
    const Halves halves(numbers);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(halves.all[i], numbers[i]);
      EXPECT_EQ(halves.upper[i], 16 * std::floor((numbers[i] + 8) / 16)) << numbers[i];
      EXPECT_LE(std::fabs(halves.upper[i]), 112) << "four bits";
    }
  }
}

TEST(KvFormatTest, TheUpperHalfLiesAsFourBitsDo) {
  std::vector<float> numbers = many_numbers();
  numbers.resize(kKvGroup);
  const Halves halves(numbers);
  std::vector<float> four(kKvGroup);
  decode_kv(KvFormat::kQ4, {const_cast<uint8_t*>(halves.bytes), 1}, kKvGroup, four.data());
  EXPECT_EQ(four, std::vector<float>(halves.upper, halves.upper + kKvGroup));
  EXPECT_NE(four, std::vector<float>(halves.all, halves.all + kKvGroup));
}

TEST(KvFormatTest, ThreeBitsAreTheNearestLevels) {
  // How often each level occurs, about as in a normal distribution: the root mean square is then
  // near the scale.
  constexpr int kOften[] = {0, 0, 0, 1, 1, 2, 2, 3};
  std::vector<float> numbers;
  for (int i = 0; i < kKvGroup; ++i) {
    numbers.push_back(kNormalLevels[kOften[i % 8] + (i / 8 % 2 == 0 ? 0 : 4)]);
  }
  const auto read = written_and_read(KvFormat::kQ3, numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_NEAR(read[i], numbers[i], 1e-3F * std::fabs(numbers[i]));
  }
}

/// Max's table gives a squared error of 0.03454 for a normal distribution and 8 levels. The scale
/// follows the numbers of a group here, which lowers it, and is a float16.
TEST(KvFormatTest, ThreeBitsOfNormalNumbersHaveThePublishedError) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 3);
  double squares = 0;
  double errors = 0;
  for (int head = 0; head < 500; ++head) {
    std::vector<float> numbers(64);
    for (float& number : numbers) {
      number = normal(random);
    }
    const auto read = written_and_read(KvFormat::kQ3, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      squares += numbers[i] * numbers[i];
      errors += (read[i] - numbers[i]) * (read[i] - numbers[i]);
    }
  }
  EXPECT_GT(errors / squares, 0.029);
  EXPECT_LT(errors / squares, 0.0355);
}

}  // namespace
}  // namespace specdec
