#pragma once
#include "core/kernels/device/numbers.h"

// Single weights of GGUF's blocks, each product and sum rounded once as in gguf-py. `block`: a
// pointer to the block's first byte, an unsigned char; it needs no alignment.

namespace specdec::portable {

template <class Bytes>
SPECDEC_DEVICE float half_at(Bytes bytes) {
  return widen_half(static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8U);
}

SPECDEC_DEVICE float signed_byte(uint32_t byte) {
  return static_cast<float>(static_cast<int32_t>(byte ^ 128U) - 128);
}

/// Code i of 32, of which sixteen bytes hold the low four bits.
template <class Bytes>
SPECDEC_DEVICE int low_code(Bytes low, int i) {
  return i < 16 ? low[i] & 15 : low[i - 16] >> 4;
}

/// Code number i of five bits, whose fifth bits lie before the low ones.
template <class Bytes>
SPECDEC_DEVICE int code_of_five_bits(Bytes codes, int i) {
  return low_code(codes + 4, i) | (codes[i / 8] >> (i % 8) & 1) << 4;
}

/// Weight i of 32.
template <class Bytes>
SPECDEC_DEVICE float q8_0_weight(Bytes block, int i) {
  return rounded_product(signed_byte(block[2 + i]), half_at(block));
}

/// Weight i of 32.
template <class Bytes>
SPECDEC_DEVICE float q4_0_weight(Bytes block, int i) {
  return rounded_product(half_at(block), static_cast<float>(low_code(block + 2, i) - 8));
}

/// Weight i of 32.
template <class Bytes>
SPECDEC_DEVICE float q4_1_weight(Bytes block, int i) {
  const auto code = static_cast<float>(low_code(block + 4, i));
  return rounded_product(half_at(block), code) + half_at(block + 2);
}

/// Weight i of 32.
template <class Bytes>
SPECDEC_DEVICE float q5_0_weight(Bytes block, int i) {
  const int code = code_of_five_bits(block + 2, i);
  return rounded_product(half_at(block), static_cast<float>(code - 16));
}

/// Weight i of 32.
template <class Bytes>
SPECDEC_DEVICE float q5_1_weight(Bytes block, int i) {
  const auto code = static_cast<float>(code_of_five_bits(block + 4, i));
  return rounded_product(half_at(block), code) + half_at(block + 2);
}

/// A weight of Q4_K or Q5_K: a block begins with a scale and a minimum, and with a scale and a
/// minimum of six bits for each of its eight groups.
template <class Bytes>
SPECDEC_DEVICE float group_weight(Bytes block, int group, int code) {
  const Bytes packed = block + 4;
  int scale = packed[group] & 63;
  int minimum = packed[4 + group] & 63;
  if (group >= 4) {
    scale = (packed[4 + group] & 15) | (packed[group - 4] >> 2 & 48);
    minimum = packed[4 + group] >> 4 | (packed[group] >> 2 & 48);
  }
  const float scaled = rounded_product(rounded_product(half_at(block), static_cast<float>(scale)),
                                       static_cast<float>(code));
  return scaled - rounded_product(half_at(block + 2), static_cast<float>(minimum));
}

/// Weight i of 256.
template <class Bytes>
SPECDEC_DEVICE float q4_k_weight(Bytes block, int i) {
  const int group = i / 32;
  return group_weight(block, group, block[16 + i / 64 * 32 + i % 32] >> (group % 2 * 4) & 15);
}

/// Weight i of 256.
template <class Bytes>
SPECDEC_DEVICE float q5_k_weight(Bytes block, int i) {
  const int group = i / 32;
  const int low = block[48 + i / 64 * 32 + i % 32] >> (group % 2 * 4) & 15;
  return group_weight(block, group, low | (block[16 + i % 32] >> group & 1) << 4);
}

/// Low two bits of code i of 256.
template <class Bytes>
SPECDEC_DEVICE int code_pair(Bytes pairs, int i) {
  return pairs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/// Weight i of 256: sixteen groups, each with a scale and a minimum of four bits.
template <class Bytes>
SPECDEC_DEVICE float q2_k_weight(Bytes block, int i) {
  const int both = block[i / 16];
  const float scale = rounded_product(half_at(block + 80), static_cast<float>(both & 15));
  const float scaled = rounded_product(scale, static_cast<float>(code_pair(block + 16, i)));
  return scaled - rounded_product(half_at(block + 82), static_cast<float>(both >> 4));
}

/// Weight i of 256: sixteen groups, each with a scale of six bits, 32 more than it means.
template <class Bytes>
SPECDEC_DEVICE float q3_k_weight(Bytes block, int i) {
  const Bytes packed = block + 96;
  const int group = i / 16;
  const int low = packed[group % 8] >> (group / 8 * 4) & 15;
  const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
  const int code = code_pair(block + 32, i) | (block[i % 32] >> (i / 32) & 1) << 2;
  const float scale =
      rounded_product(half_at(block + 108), static_cast<float>((low | high << 4) - 32));
  return rounded_product(scale, static_cast<float>(code - 4));
}

/// Weight i of 256: sixteen groups, each with a signed scale of eight bits.
template <class Bytes>
SPECDEC_DEVICE float q6_k_weight(Bytes block, int i) {
  const int low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
  const int high = code_pair(block + 128, i);
  const float scale = rounded_product(half_at(block + 208), signed_byte(block[192 + i / 16]));
  return rounded_product(scale, static_cast<float>((low | high << 4) - 32));
}

}  // namespace specdec::portable
