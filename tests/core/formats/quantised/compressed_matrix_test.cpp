// Matrices of compressed-tensors in blocks, by the definition: a code, less its zero point, times
// its scale.
#include "core/formats/quantised/compressed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>

#include "core/formats/finite_values.h"
#include "core/formats/float_values.h"
#include "core/formats/gguf/gguf_blocks.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

struct MatrixCase {
  std::string name;
  CompressionScheme scheme;
  DType scales;
  int64_t rows, columns;
  DType type;  ///< that its blocks should have
};

void PrintTo(const MatrixCase& one, std::ostream* out) { *out << one.name; }

template <class Value>
void append(Value value, std::vector<std::byte>& to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(value));
}

/// A random matrix as a checkpoint holds it, and its values.
class DrawnMatrix {
 public:
  DrawnMatrix(const MatrixCase& drawn, uint64_t seed) : case_(drawn), random_(seed) {
    matrix_.scheme = drawn.scheme;
    matrix_.rows = drawn.rows;
    matrix_.columns = drawn.columns;
    draw_scales();
    draw_codes();
    draw_zeros();
    matrix_.codes = &codes_;
    matrix_.scales = &scales_;
    matrix_.zeros = drawn.scheme.symmetric ? nullptr : &zeros_;
    codes_.bytes = bytes_;
    scales_.bytes = scale_bytes_;
    zeros_.bytes = zero_bytes_;
  }

  const CompressedMatrix& stored() const { return matrix_; }

  std::vector<float> values() const {
    const std::vector<float> scales = float_values(scales_);
    std::vector<float> all;
    for (int64_t row = 0; row < matrix_.rows; ++row) {
      for (int64_t k = 0; k < matrix_.columns; ++k) {
        const int64_t rows = matrix_.scheme.rows_per_scale;
        const int64_t columns = matrix_.scheme.columns_per_scale;
        const int64_t part = columns == 0 ? 0 : k / columns;
        const int64_t scale = (rows == 0 ? 0 : row / rows) * matrix_.scale_columns() + part;
        const double zero =
            matrix_.scheme.symmetric
                ? 0.0
                : zero_points_[static_cast<size_t>(row * matrix_.scale_columns() + part)];
        const double number = numbers_[static_cast<size_t>(row * matrix_.columns + k)];
        all.push_back(static_cast<float>((number - zero) *
                                         static_cast<double>(scales[static_cast<size_t>(scale)])));
      }
    }
    return all;
  }

 private:
  int signed_code() {
    const int count = 1 << matrix_.scheme.bits;
    return static_cast<int>(random_() % static_cast<unsigned>(count)) - count / 2;
  }

  void draw_scales() {
    for (int64_t i = 0; i < matrix_.scale_rows() * matrix_.scale_columns(); ++i) {
      const float scale = static_cast<float>(1 + random_() % 1000000) * 1e-7F;
      if (case_.scales == DType::kF32) {
        append(scale, scale_bytes_);
      } else {
        // The bits of 2^-8 to 2^-4, with any fraction.
        const bool half = case_.scales == DType::kF16;
        append(static_cast<uint16_t>(half ? 0x1C00U + random_() % 0x1000U
                                          : 0x3B80U + random_() % 0x200U),
               scale_bytes_);
      }
    }
    scales_.dtype = case_.scales;
    scales_.shape = {matrix_.scale_rows(), matrix_.scale_columns()};
  }

  void draw_codes() {
    const int64_t bits = matrix_.scheme.bits;
    uint32_t word = 0;
    int64_t filled = 0;
    for (int64_t i = 0; i < matrix_.rows * matrix_.columns; ++i) {
      if (matrix_.scheme.codes == Codes::kFloat8) {
        const auto code = static_cast<uint8_t>(random_() % 127 + random_() % 2 * 128);
        numbers_.push_back(float8_value(code));
        append(code, bytes_);
        continue;
      }
      const int code = signed_code();
      numbers_.push_back(code);
      if (matrix_.scheme.codes == Codes::kInt8) {
        append(static_cast<int8_t>(code), bytes_);
        continue;
      }
      word |= static_cast<uint32_t>(code + (1 << (bits - 1))) << filled;
      filled += bits;
      if (filled == 32 || (i + 1) % matrix_.columns == 0) {
        append(word, bytes_);
        word = 0;
        filled = 0;
      }
    }
    codes_.shape = {matrix_.rows, matrix_.columns};
    if (matrix_.scheme.codes == Codes::kPacked) {
      codes_.shape[1] = (matrix_.columns * bits + 31) / 32;
    }
  }

  /// Packed along the rows.
  void draw_zeros() {
    const int64_t parts = matrix_.scale_columns();
    for (int64_t i = 0; i < matrix_.rows * parts; ++i) {
      zero_points_.push_back(signed_code());
    }
    const int64_t in_word = 32 / matrix_.scheme.bits;
    for (int64_t first = 0; first < matrix_.rows; first += in_word) {
      for (int64_t part = 0; part < parts; ++part) {
        uint32_t word = 0;
        for (int64_t row = first; row < std::min(first + in_word, matrix_.rows); ++row) {
          const int zero = zero_points_[static_cast<size_t>(row * parts + part)];
          word |= static_cast<uint32_t>(zero + (1 << (matrix_.scheme.bits - 1)))
                  << ((row - first) * matrix_.scheme.bits);
        }
        append(word, zero_bytes_);
      }
    }
  }

  const MatrixCase& case_;
  std::mt19937_64 random_;
  CompressedMatrix matrix_;
  TensorEntry codes_, scales_, zeros_;
  std::vector<std::byte> bytes_, scale_bytes_, zero_bytes_;
  std::vector<double> numbers_;
  std::vector<int> zero_points_;
};

std::vector<std::byte> written(const CompressedMatrix& matrix, DType type) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(matrix.rows * matrix.columns / block_values(type) * dtype_bytes(type)));
  write_values(matrix, block_type(matrix), bytes);
  return bytes;
}

class CompressedMatrixTest : public ::testing::TestWithParam<MatrixCase> {};

TEST_P(CompressedMatrixTest, BlocksHaveItsValues) {
  const DrawnMatrix drawn(GetParam(), 7);
  const CompressedMatrix& matrix = drawn.stored();
  const DType type = block_type(matrix);
  EXPECT_EQ(dtype_name(type), dtype_name(GetParam().type));
  const std::vector<std::byte> bytes = written(matrix, type);
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.columns));
  if (is_block(type)) {
    dequantize(type, bytes.data(), std::ssize(values), values.data());
  } else {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  EXPECT_EQ(values, drawn.values());
  EXPECT_FALSE(first_not_finite(type, bytes).has_value());
}

CompressionScheme int4(int64_t group, bool symmetric = true) {
  return {.codes = Codes::kPacked,
          .bits = 4,
          .symmetric = symmetric,
          .rows_per_scale = 1,
          .columns_per_scale = group};
}

CompressionScheme fp8(int64_t rows, int64_t columns) {
  return {.codes = Codes::kFloat8, .rows_per_scale = rows, .columns_per_scale = columns};
}

CompressionScheme eight_bits(Codes codes, int64_t group) {
  return {.codes = codes, .bits = 8, .rows_per_scale = 1, .columns_per_scale = group};
}

INSTANTIATE_TEST_SUITE_P(
    Float8, CompressedMatrixTest,
    ::testing::Values(
        MatrixCase{"tensor", fp8(0, 0), DType::kF32, 9, 256, DType::kFp8x128},
        MatrixCase{"channel", fp8(1, 0), DType::kF32, 9, 256, DType::kFp8x128},
        MatrixCase{"channel_bfloat16", fp8(1, 0), DType::kBF16, 9, 256, DType::kFp8x128},
        MatrixCase{"channel_float16_96", fp8(1, 0), DType::kF16, 9, 96, DType::kFp8x32},
        MatrixCase{"block", fp8(128, 128), DType::kF32, 200, 384, DType::kFp8x128},
        MatrixCase{"block_of_part", fp8(128, 128), DType::kBF16, 130, 288, DType::kFp8x32},
        MatrixCase{"small_block", fp8(4, 64), DType::kF32, 9, 256, DType::kFp8x32},
        MatrixCase{"tiny_block", fp8(4, 8), DType::kF32, 9, 256, DType::kF32},
        MatrixCase{"odd_row", fp8(1, 0), DType::kF32, 9, 40, DType::kF32}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Int4, CompressedMatrixTest,
    ::testing::Values(
        MatrixCase{"group32", int4(32), DType::kBF16, 9, 256, DType::kInt4x32},
        MatrixCase{"group64", int4(64), DType::kBF16, 9, 256, DType::kInt4x32},
        MatrixCase{"group128", int4(128), DType::kBF16, 9, 256, DType::kInt4x128},
        MatrixCase{"group128_float32", int4(128), DType::kF32, 9, 256, DType::kInt4x128},
        MatrixCase{"channel", int4(0), DType::kBF16, 9, 256, DType::kInt4x128},
        MatrixCase{"channel_96", int4(0), DType::kBF16, 9, 96, DType::kInt4x32},
        MatrixCase{"group32_float16", int4(32), DType::kF16, 9, 256, DType::kQ40},
        MatrixCase{"group32_float32", int4(32), DType::kF32, 9, 256, DType::kF32},
        MatrixCase{"group48", int4(48), DType::kBF16, 9, 96, DType::kF32},
        MatrixCase{"asymmetric32", int4(32, false), DType::kBF16, 13, 256, DType::kInt4x32},
        MatrixCase{"asymmetric128", int4(128, false), DType::kBF16, 13, 256, DType::kInt4x128},
        MatrixCase{"asymmetric128_float16", int4(128, false), DType::kF16, 13, 256,
                   DType::kInt4x128},
        MatrixCase{"asymmetric_channel", int4(0, false), DType::kBF16, 9, 256, DType::kInt4x128},
        MatrixCase{"asymmetric128_float32", int4(128, false), DType::kF32, 9, 256, DType::kF32},
        MatrixCase{"asymmetric32_float16", int4(32, false), DType::kF16, 9, 256, DType::kF32}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    EightBits, CompressedMatrixTest,
    ::testing::Values(
        MatrixCase{"packed_float16", eight_bits(Codes::kPacked, 64), DType::kF16, 9, 128,
                   DType::kQ80},
        MatrixCase{"float16", eight_bits(Codes::kInt8, 0), DType::kF16, 9, 96, DType::kQ80},
        MatrixCase{"float32", eight_bits(Codes::kInt8, 0), DType::kF32, 9, 96, DType::kF32},
        MatrixCase{"float32_64", eight_bits(Codes::kInt8, 0), DType::kF32, 9, 192,
                   DType::kAffine8x64},
        MatrixCase{"packed_bfloat16", eight_bits(Codes::kPacked, 64), DType::kBF16, 9, 128,
                   DType::kAffine8x64}),
    [](const auto& info) { return info.param.name; });

TEST(CompressedMatrixTest, CodesThatAreNoNumbersAreFound) {
  const MatrixCase one{"channel", fp8(1, 0), DType::kF32, 3, 256, DType::kFp8x128};
  const DrawnMatrix drawn(one, 8);
  std::vector<std::byte> bytes = written(drawn.stored(), DType::kFp8x128);
  bytes[132 * 3 + 4 + 50] = std::byte{0xFF};
  const auto found = first_not_finite(DType::kFp8x128, bytes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->value, 384);
  EXPECT_TRUE(found->is_nan);
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + 132, &infinite, sizeof(infinite));
  EXPECT_EQ(first_not_finite(DType::kFp8x128, bytes)->value, 128);
  EXPECT_FALSE(first_not_finite(DType::kFp8x128, bytes)->is_nan);
}

}  // namespace
}  // namespace specdec
