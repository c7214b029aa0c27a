#include "core/formats/scaled_blocks.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/formats/float_values.h"

namespace specdec {
namespace {

/// Codes of four bits that share 16 bytes.
constexpr int64_t kNibbles = 32;

std::array<float, 256> float8_values() {
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = float8_value(static_cast<uint8_t>(i));
  }
  return values;
}

size_t scale_bytes(DType dtype) { return has_wide_scale(dtype) ? 4 : 2; }

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
         dtype == DType::kInt4x32;
}

bool has_float8_codes(DType dtype) { return dtype == DType::kFp8x128 || dtype == DType::kFp8x32; }

bool has_wide_scale(DType dtype) { return dtype != DType::kInt4x32; }

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
  const auto bits = std::bit_cast<uint32_t>(scale);
  if (has_wide_scale(dtype)) {
    std::memcpy(block, &bits, sizeof(bits));
  } else {
    SPECDEC_CHECK((bits & 0xFFFFU) == 0, "{} is no bfloat16", scale);
    const auto high = static_cast<uint16_t>(bits >> 16U);
    std::memcpy(block, &high, sizeof(high));
  }
  block += scale_bytes(dtype);
  if (has_float8_codes(dtype)) {
    std::memcpy(block, codes, static_cast<size_t>(block_values(dtype)));
    return;
  }
  *block = static_cast<std::byte>(zero);
  write_nibbles(codes, block_values(dtype), block + 1);
}

void read_scaled_blocks(DType dtype, const std::byte* blocks, int64_t values, float* out) {
  SPECDEC_CHECK(values % block_values(dtype) == 0, "{} values are not whole blocks", values);
  const std::array<float, 256> numbers = float8_values();
  for (int64_t done = 0; done < values; done += block_values(dtype)) {
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
