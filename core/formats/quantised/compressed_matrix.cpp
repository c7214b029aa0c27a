#include "core/formats/quantised/compressed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/gguf/gguf_quantize.h"
#include "core/formats/quantised/bitsandbytes.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/formats/quantised/column_packed.h"
#include "core/formats/quantised/scaled_blocks.h"
#include "core/formats/quantised/torchao_codes.h"
#include "core/formats/quantised/torchao_matrix.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;
using WholeScale = CompressionScheme::WholeScale;

constexpr int64_t kWordBits = 32;
constexpr int64_t kByteBits = 8;
constexpr int64_t kBlockCodes = 32;  ///< of Q4_0, Q4_1 and Q5_1

/// Number of parts of `part` elements in `size`, the last one perhaps smaller; part 0 = one part.
int64_t parts_of(int64_t size, int64_t part) { return part == 0 ? 1 : (size + part - 1) / part; }

template <class Word>
Word word_at(const TensorEntry& entry, int64_t i) {
  Word word;
  std::memcpy(&word, entry.bytes.data() + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
  return word;
}

/// Whether codes stand for numbers that are no integers.
bool is_float(const CompressedMatrix& matrix) {
  const Codes codes = matrix.scheme.codes;
  return codes == Codes::kFloat8 || codes == Codes::kFloat4 || matrix.numbers != nullptr;
}

/// What is taken off unsigned codes.
int offset_of(const CompressedMatrix& matrix) {
  const bool whole = is_float(matrix) || (matrix.minima != nullptr && !matrix.scheme.centred);
  return whole ? 0 : 1 << (matrix.scheme.bits - 1);
}

/// The scales in float32, that of the whole matrix included.
std::vector<float> scales_of(const CompressedMatrix& matrix) {
  const DType type = matrix.scales->dtype;
  if (type != DType::kU8 && type != DType::kF8E4M3) {
    return float_values(*matrix.scales);
  }
  const bool powers = type == DType::kU8 && !matrix.scheme.float8_scales;
  const float whole = matrix.whole == nullptr ? 1.0F : float_values(*matrix.whole).front();
  std::vector<float> scales(matrix.scales->bytes.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto code = static_cast<uint8_t>(matrix.scales->bytes[i]);
    const float scale = powers ? power_of_two(code) : float8_value(code);
    scales[i] = matrix.scheme.whole_scale == WholeScale::kDivides ? scale / whole : scale * whole;
  }
  return scales;
}

/// Writes the rows of one matrix as blocks of a type, codes in bytes in between: those of integers
/// are made unsigned.
class RowWriter {
 public:
  RowWriter(const CompressedMatrix& matrix, DType type)
      : matrix_(matrix),
        type_(type),
        offset_(offset_of(matrix)),
        scales_(scales_of(matrix)),
        minima_(matrix.minima == nullptr ? std::vector<float>() : float_values(*matrix.minima)),
        factors_(matrix.factors == nullptr ? std::vector<float>() : float_values(*matrix.factors)),
        codes_(static_cast<size_t>(matrix.columns)) {
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const auto code = static_cast<uint8_t>(i);
      numbers_[i] = matrix.scheme.codes == Codes::kFloat8   ? float8_value(code)
                    : matrix.scheme.codes == Codes::kFloat4 ? float4_value(code)
                                                            : static_cast<float>(i);
    }
    if (matrix.numbers != nullptr) {
      const std::vector<float> numbers = float_values(*matrix.numbers);
      std::copy(numbers.begin(), numbers.end(), numbers_.begin());
    }
  }

  void write(int64_t row, std::byte* out) {
    read_codes(row);
    const int64_t block = block_values(type_);
    const int64_t part = matrix_.scheme.columns_per_scale;
    const int64_t step = block > 1 ? block : part == 0 ? matrix_.columns : part;
    for (int64_t first = 0; first < matrix_.columns; first += step) {
      const int64_t count = std::min(step, matrix_.columns - first);
      const Part here{.codes = codes_.data() + first,
                      .scale = scale_index(row, part == 0 ? 0 : first / part),
                      .zero = zero_point(row, part == 0 ? 0 : first / part)};
      write_part(here, first, count, out);
      out += count / block * dtype_bytes(type_);
    }
  }

 private:
  /// Successive inputs with a scale.
  struct Part {
    const uint8_t* codes;
    int64_t scale;  ///< its number
    uint8_t zero;
  };

  void read_codes(int64_t row) {
    const TensorEntry& codes = *matrix_.codes;
    if (matrix_.scheme.codes == Codes::kFloat4) {
      const int64_t first = row * (matrix_.columns / 2);
      for (size_t k = 0; k < codes_.size(); ++k) {
        const auto pair = word_at<uint8_t>(codes, first + static_cast<int64_t>(k / 2));
        codes_[k] = static_cast<uint8_t>(k % 2 == 0 ? pair & 15U : pair >> 4U);
      }
      return;
    }
    if (matrix_.scheme.codes != Codes::kPacked && matrix_.scheme.codes != Codes::kMlx) {  // bytes
      std::memcpy(codes_.data(), codes.bytes.data() + static_cast<size_t>(row) * codes_.size(),
                  codes_.size());
      if (matrix_.scheme.codes == Codes::kInt8) {
        for (uint8_t& code : codes_) {
          code ^= 0x80U;
        }
      }
      return;
    }
    const auto bits = static_cast<unsigned>(matrix_.scheme.bits);
    const int64_t first = row * codes.shape[1] * kWordBits / kByteBits;
    for (size_t k = 0; k < codes_.size(); ++k) {
      const auto byte = first + static_cast<int64_t>(k * bits / kByteBits);
      const auto bit = static_cast<unsigned>(k * bits % kByteBits);
      unsigned word = word_at<uint8_t>(codes, byte);
      if (bit + bits > kByteBits) {
        word |= unsigned{word_at<uint8_t>(codes, byte + 1)} << kByteBits;
      }
      codes_[k] = static_cast<uint8_t>(word >> bit & ((1U << bits) - 1U));
    }
  }

  int64_t scale_index(int64_t row, int64_t part) const {
    const int64_t rows = matrix_.scheme.rows_per_scale;
    return (rows == 0 ? 0 : row / rows) * matrix_.scale_columns() + part;
  }

  /// Unsigned, as codes are.
  uint8_t zero_point(int64_t row, int64_t part) const {
    if (matrix_.zeros == nullptr) {
      return static_cast<uint8_t>(offset_);
    }
    if (matrix_.scheme.codes == Codes::kInt8) {
      return word_at<uint8_t>(*matrix_.zeros, scale_index(row, part)) ^ 0x80U;
    }
    if (matrix_.scheme.codes == Codes::kBytes) {
      return word_at<uint8_t>(*matrix_.zeros, scale_index(row, part));
    }
    const int64_t bit = row * matrix_.scheme.bits;  // packed along the rows
    const int64_t parts = matrix_.scale_columns();
    const auto word = word_at<uint32_t>(*matrix_.zeros, bit / kWordBits * parts + part);
    const auto mask = (1U << static_cast<unsigned>(matrix_.scheme.bits)) - 1U;
    return static_cast<uint8_t>(word >> static_cast<unsigned>(bit % kWordBits) & mask);
  }

  /// `first`: the number of the part's first input.
  void write_part(const Part& part, int64_t first, int64_t count, std::byte* out) const {
    const float scale = scales_[static_cast<size_t>(part.scale)];
    if (has_minimum(type_)) {
      return write_affine_block(type_, part.codes, scale, affine_minimum(part, scale), out);
    }
    if (is_scaled_block(type_)) {
      return write_scaled_block(type_, part.codes, scale, part.zero, out);
    }
    if (is_codebook_block(type_)) {
      return write_codebook_block(type_, part.codes, scale, out);
    }
    const float minimum = minima_.empty() ? 0.0F : minima_[static_cast<size_t>(part.scale)];
    if (type_ == DType::kQ41 || type_ == DType::kQ51) {
      return write_minimum_block(part.codes, scale, minimum, out);
    }
    if (type_ != DType::kF32) {
      return write_gguf_block(part, out);
    }
    const auto zero = static_cast<float>(part.zero);
    for (int64_t k = 0; k < count; ++k) {
      const float product = (numbers_[part.codes[k]] - zero) * scale;
      float value = minima_.empty() ? product : product + minimum;
      value *= factors_.empty() ? 1.0F : factors_[static_cast<size_t>(first + k)];
      std::memcpy(out + k * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    }
  }

  /// Minimum of a part; without minima -zero * scale, which is exact.
  float affine_minimum(const Part& part, float scale) const {
    return minima_.empty() ? -static_cast<float>(part.zero) * scale
                           : minima_[static_cast<size_t>(part.scale)];
  }

  /// Q4_0 or Q8_0, whose scales are of type F16 as these are.
  void write_gguf_block(const Part& part, std::byte* out) const {
    const auto scale = word_at<uint16_t>(*matrix_.scales, part.scale);
    std::memcpy(out, &scale, sizeof(scale));
    out += sizeof(scale);
    if (type_ == DType::kQ40) {
      constexpr int kOffset = 8;
      std::array<uint8_t, kBlockCodes> codes;
      std::transform(part.codes, part.codes + kBlockCodes, codes.begin(), [this](uint8_t code) {
        return static_cast<uint8_t>(code + kOffset - offset_);
      });
      return write_nibbles(codes.data(), kBlockCodes, out);
    }
    for (int64_t k = 0; k < block_values(type_); ++k) {
      out[k] = static_cast<std::byte>(part.codes[k] ^ 0x80U);
    }
  }

  /// Q4_1 or Q5_1: halves of the scale and the minimum, which hold both, then in Q5_1 the codes'
  /// fifth bits, then their lower four.
  void write_minimum_block(const uint8_t* codes, float scale, float minimum, std::byte* out) const {
    for (const float number : {scale, minimum}) {
      const uint16_t half = half_bits(number);
      std::memcpy(out, &half, sizeof(half));
      out += sizeof(half);
    }
    std::array<uint8_t, kBlockCodes> low;
    uint32_t fifth = 0;
    for (size_t k = 0; k < low.size(); ++k) {
      low[k] = codes[k] & 15U;
      fifth |= uint32_t{codes[k]} >> 4U << k;
    }
    if (type_ == DType::kQ51) {
      std::memcpy(out, &fifth, sizeof(fifth));
      out += sizeof(fifth);
    }
    write_nibbles(low.data(), kBlockCodes, out);
  }

  const CompressedMatrix& matrix_;
  DType type_;
  int offset_;                      ///< added to signed codes
  std::array<float, 256> numbers_;  ///< what a code in a byte is
  std::vector<float> scales_, minima_, factors_;
  std::vector<uint8_t> codes_;
};

}  // namespace

int64_t CompressedMatrix::scale_rows() const { return parts_of(rows, scheme.rows_per_scale); }

int64_t CompressedMatrix::scale_columns() const {
  return parts_of(columns, scheme.columns_per_scale);
}

namespace {

void write_rows(const CompressedMatrix& matrix, DType type, std::span<std::byte> out) {
  RowWriter writer(matrix, type);
  const size_t row_bytes = out.size() / static_cast<size_t>(matrix.rows);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    writer.write(row, out.data() + static_cast<size_t>(row) * row_bytes);
  }
}

/// The part of a stack's tensor that belongs to one of `count` matrices, of so many rows.
TensorEntry part_of_stack(const TensorEntry& entry, int64_t i, int64_t count, int64_t rows) {
  TensorEntry part = entry;
  const size_t size = entry.bytes.size() / static_cast<size_t>(count);
  part.bytes = entry.bytes.subspan(static_cast<size_t>(i) * size, size);
  part.shape = {rows, static_cast<int64_t>(size) / dtype_bytes(entry.dtype) / rows};
  return part;
}

}  // namespace

void write_values(const CompressedMatrix& matrix, DType type, std::span<std::byte> out) {
  if (is_column_packed(matrix.scheme)) {
    return write_rows(UnpackedMatrix(matrix).matrix(), type, out);
  }
  if (is_torchao(matrix.scheme)) {
    return write_rows(UnwrappedMatrix(matrix).matrix(), type, out);
  }
  if (is_bitsandbytes(matrix.scheme)) {
    return write_rows(WidenedMatrix(matrix).matrix(), type, out);
  }
  if (matrix.stacked == 0) {
    return write_rows(matrix, type, out);
  }
  const size_t size = out.size() / static_cast<size_t>(matrix.stacked);
  for (int64_t i = 0; i < matrix.stacked; ++i) {
    const TensorEntry codes = part_of_stack(*matrix.codes, i, matrix.stacked, matrix.rows);
    const TensorEntry scales = part_of_stack(*matrix.scales, i, matrix.stacked, 1);
    const TensorEntry zeros = matrix.zeros == nullptr
                                  ? TensorEntry{}
                                  : part_of_stack(*matrix.zeros, i, matrix.stacked, 1);
    const TensorEntry minima = matrix.minima == nullptr
                                   ? TensorEntry{}
                                   : part_of_stack(*matrix.minima, i, matrix.stacked, 1);
    CompressedMatrix one = matrix;
    one.codes = &codes;
    one.scales = &scales;
    one.zeros = matrix.zeros == nullptr ? nullptr : &zeros;
    one.minima = matrix.minima == nullptr ? nullptr : &minima;
    one.stacked = 0;
    write_rows(one, type, out.subspan(static_cast<size_t>(i) * size, size));
  }
}

}  // namespace specdec
