#include "core/formats/quantised/scaled_blocks.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/formats/float_values.h"

namespace specdec {
namespace {

/// Codes of four bits that share 16 bytes.
constexpr int64_t kNibbles = 32;
constexpr int kCentre = 8;  ///< less which codes of AFFINE4_32 are

std::array<float, 256> float8_values() {
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = float8_value(static_cast<uint8_t>(i));
  }
  return values;
}

size_t scale_bytes(DType dtype) { return has_wide_scale(dtype) ? 4 : 2; }

/// A scale or minimum, which has to be a bfloat16 where the type says so; returns what is behind
/// it.
std::byte* write_number(DType dtype, float number, std::byte* block) {
  const auto bits = std::bit_cast<uint32_t>(number);
  if (has_wide_scale(dtype)) {
    std::memcpy(block, &bits, sizeof(bits));
  } else {
    SPECDEC_CHECK((bits & 0xFFFFU) == 0, "{} is no bfloat16", number);
    const auto high = static_cast<uint16_t>(bits >> 16U);
    std::memcpy(block, &high, sizeof(high));
  }
  return block + scale_bytes(dtype);
}

float read_scale(DType dtype, const std::byte* block) {
  uint32_t bits = 0;
  if (has_wide_scale(dtype)) {
    std::memcpy(&bits, block, sizeof(bits));
    return std::bit_cast<float>(bits);
  }
  uint16_t half = 0;
  std::memcpy(&half, block, sizeof(half));
  return std::bit_cast<float>(uint32_t{half} << 16U);
}

int nibble(const std::byte* codes, int64_t k) {
  constexpr int64_t kHalf = kNibbles / 2;
  const auto byte = std::to_integer<unsigned>(codes[k / kNibbles * kHalf + k % kHalf]);
  return static_cast<int>(k % kNibbles < kHalf ? byte & 15U : byte >> 4U);
}

}  // namespace

bool is_scaled_block(DType dtype) {
  return dtype == DType::kFp8x128 || dtype == DType::kFp8x32 || dtype == DType::kInt4x128 ||
         dtype == DType::kInt4x32 || has_minimum(dtype);
}

bool has_minimum(DType dtype) { return dtype == DType::kAffine8x64 || dtype == DType::kAffine4x32; }

bool has_float8_codes(DType dtype) { return dtype == DType::kFp8x128 || dtype == DType::kFp8x32; }

bool has_wide_scale(DType dtype) { return dtype != DType::kInt4x32 && dtype != DType::kAffine4x32; }

void write_nibbles(const uint8_t* codes, int64_t count, std::byte* out) {
  constexpr int64_t kHalf = kNibbles / 2;
  for (int64_t first = 0; first < count; first += kNibbles) {
    for (int64_t k = 0; k < kHalf; ++k) {
      const unsigned low = codes[first + k];
      *out++ = static_cast<std::byte>(low | static_cast<unsigned>(codes[first + k + kHalf]) << 4U);
    }
  }
}

void write_scaled_block(DType dtype, const uint8_t* codes, float scale, uint8_t zero,
                        std::byte* block) {
  block = write_number(dtype, scale, block);
  if (has_float8_codes(dtype)) {
    std::memcpy(block, codes, static_cast<size_t>(block_values(dtype)));
    return;
  }
  *block = static_cast<std::byte>(zero);
  write_nibbles(codes, block_values(dtype), block + 1);
}

void write_affine_block(DType dtype, const uint8_t* codes, float scale, float minimum,
                        std::byte* block) {
  block = write_number(dtype, minimum, write_number(dtype, scale, block));
  if (dtype == DType::kAffine8x64) {
    std::memcpy(block, codes, static_cast<size_t>(block_values(dtype)));
  } else {
    write_nibbles(codes, block_values(dtype), block);
  }
}

namespace {

void read_affine_block(DType dtype, const std::byte* block, float* out) {
  const float scale = read_scale(dtype, block);
  const float minimum = read_scale(dtype, block + scale_bytes(dtype));
  const std::byte* codes = block + 2 * scale_bytes(dtype);
  for (int64_t k = 0; k < block_values(dtype); ++k) {
    const int code =
        dtype == DType::kAffine8x64 ? std::to_integer<int>(codes[k]) : nibble(codes, k) - kCentre;
    out[k] = std::fma(static_cast<float>(code), scale, minimum);
  }
}

}  // namespace

void read_scaled_blocks(DType dtype, const std::byte* blocks, int64_t values, float* out) {
  SPECDEC_CHECK(values % block_values(dtype) == 0, "{} values are not whole blocks", values);
  const std::array<float, 256> numbers = float8_values();
  for (int64_t done = 0; done < values; done += block_values(dtype)) {
    if (has_minimum(dtype)) {
      read_affine_block(dtype, blocks, out);
      out += block_values(dtype);
      blocks += dtype_bytes(dtype);
      continue;
    }
    const float scale = read_scale(dtype, blocks);
    const std::byte* codes = blocks + scale_bytes(dtype);
    for (int64_t k = 0; k < block_values(dtype); ++k) {
      *out++ =
          scale * (has_float8_codes(dtype)
                       ? numbers[std::to_integer<size_t>(codes[k])]
                       : static_cast<float>(nibble(codes + 1, k) - std::to_integer<int>(codes[0])));
    }
    blocks += dtype_bytes(dtype);
  }
}

}  // namespace specdec
