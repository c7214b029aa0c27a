#pragma once
#include "core/kernels/device/numbers.h"

// Groups of a cached key's or value's numbers as integers of kBits times a float16 scale; see
// KvFormat.

namespace specdec::portable {

/// Numbers that share a scale.
constexpr int kScaledGroup = 32;

/// Bits of a group's scale. Its number of the largest magnitude, the first of several, `most`,
/// becomes the lowest code, as in GGUF's Q4_0, so that all codes are used. Not finite = NaN.
template <int kBits>
SPECDEC_DEVICE HalfBits group_scale(float most, bool finite) {
  if (!finite) {
    return HalfBits{0x7E00U};
  }
  const float scale = most / -static_cast<float>(1 << (kBits - 1));
  const HalfBits rounded = narrow(scale, HalfBits{});
  // Subnormal scales are coarse: one that is too small would cut the largest number.
  const float size = magnitude_of(scale);
  const bool cuts = magnitude_of(widen(rounded)) < size && size < float_of(0x38800000U);  // 2^-14
  return HalfBits{static_cast<uint16_t>(cuts ? rounded.bits + 1U : rounded.bits)};
}

/// Code of a number of a group with this scale: in the low bits, two's complement.
template <int kBits>
SPECDEC_DEVICE uint8_t group_code(float number, HalfBits scale) {
  const float factor = widen(scale);
  if (factor == 0.0F || factor != factor) {
    return 0;
  }
  const float lowest = -static_cast<float>(1 << (kBits - 1));
  const float inverse = 1.0F / factor;
  const float nearest = nearest_integer(number * inverse);
  const float bounded = nearest < lowest           ? lowest
                        : nearest > -lowest - 1.0F ? -lowest - 1.0F
                                                   : nearest;
  return static_cast<uint8_t>(static_cast<int32_t>(bounded) & ((1 << kBits) - 1));
}

/// The integer of a code.
template <int kBits>
SPECDEC_DEVICE float code_value(uint32_t code) {
  const uint32_t sign = 1U << (kBits - 1U);
  return static_cast<float>(static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign));
}

}  // namespace specdec::portable
