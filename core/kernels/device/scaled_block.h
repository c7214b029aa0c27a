#pragma once
#include "core/kernels/device/stored_block.h"

// Single weights of the blocks of core/formats/quantised/scaled_blocks.h and codebook_blocks.h,
// rounded as their readers do. `block`: a pointer to the block's first byte, an unsigned char; it
// needs no alignment.

namespace specdec::portable {

template <class Bytes>
SPECDEC_DEVICE float float_at(Bytes bytes) {
  return float_of(static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8U |
                  static_cast<uint32_t>(bytes[2]) << 16U | static_cast<uint32_t>(bytes[3]) << 24U);
}

template <class Bytes>
SPECDEC_DEVICE float bfloat16_at(Bytes bytes) {
  return float_of(static_cast<uint32_t>(bytes[0]) << 16U | static_cast<uint32_t>(bytes[1]) << 24U);
}

/// Code i of four bits, of each 32 as low_code() says.
template <class Bytes>
SPECDEC_DEVICE int nibble_at(Bytes codes, int i) {
  return low_code(codes + i / 32 * 16, i % 32);
}

/// Weight i of FP8_128 or FP8_32.
template <class Bytes>
SPECDEC_DEVICE float fp8_weight(Bytes block, int i) {
  return rounded_product(float_at(block), widen(Float8Bits{block[4 + i]}));
}

/// Weight i of INT4_128.
template <class Bytes>
SPECDEC_DEVICE float int4_128_weight(Bytes block, int i) {
  const int code = nibble_at(block + 5, i) - static_cast<int>(block[4]);
  return rounded_product(float_at(block), static_cast<float>(code));
}

/// Weight i of INT4_32.
template <class Bytes>
SPECDEC_DEVICE float int4_32_weight(Bytes block, int i) {
  const int code = low_code(block + 3, i) - static_cast<int>(block[2]);
  return rounded_product(bfloat16_at(block), static_cast<float>(code));
}

/// Weight i of AFFINE8_64.
template <class Bytes>
SPECDEC_DEVICE float affine8_64_weight(Bytes block, int i) {
  return fused(static_cast<float>(block[8 + i]), float_at(block), float_at(block + 4));
}

/// Weight i of AFFINE4_32.
template <class Bytes>
SPECDEC_DEVICE float affine4_32_weight(Bytes block, int i) {
  const auto code = static_cast<float>(low_code(block + 4, i) - 8);
  return fused(code, bfloat16_at(block), bfloat16_at(block + 2));
}

/// Code i of a block of kInputs codes that stand for the numbers of a table, 16 or 32 behind a
/// scale.
template <int kInputs, class Bytes>
SPECDEC_DEVICE int codebook_code(Bytes block, int i) {
  return i < kInputs / 2 ? block[4 + i] & 15 : block[4 + i - kInputs / 2] >> 4;
}

}  // namespace specdec::portable
