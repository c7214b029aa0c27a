#pragma once
#include "core/kernels/device/numbers.h"

// Groups of a cached key's or value's numbers as integers times a float16 scale; see KvFormat.

namespace specdec::portable {

/// Numbers that share a scale.
constexpr int kScaledGroup = 32;

/// The integers that a format's codes are, in units of its scale.
struct IntegerCodes {
  float lowest, highest, unit;
};

/// All of so many bits.
SPECDEC_DEVICE IntegerCodes integer_codes(int bits) {
  const float half = static_cast<float>(1 << (bits - 1));
  return IntegerCodes{-half, half - 1.0F, 1.0F};
}

/// Bits of a group's scale. Its number of the largest magnitude, the first of several, `most`,
/// becomes the lowest code, as in GGUF's Q4_0, so that all codes are used. Not finite = NaN.
SPECDEC_DEVICE HalfBits group_scale(float most, bool finite, IntegerCodes codes) {
  if (!finite) {
    return HalfBits{0x7E00U};
  }
  const float scale = most / (codes.lowest * codes.unit);
  const HalfBits rounded = narrow(scale, HalfBits{});
  // Subnormal scales are coarse: one that is too small would cut the largest number.
  const float size = magnitude_of(scale);
  const bool cuts = magnitude_of(widen(rounded)) < size && size < float_of(0x38800000U);  // 2^-14
  return HalfBits{static_cast<uint16_t>(cuts ? rounded.bits + 1U : rounded.bits)};
}

/// The nearest integer to a number of a group with this scale.
SPECDEC_DEVICE int32_t group_code(float number, HalfBits scale, IntegerCodes codes) {
  const float factor = widen(scale) * codes.unit;
  if (factor == 0.0F || factor != factor) {
    return 0;
  }
  const float nearest = nearest_integer(number * (1.0F / factor));
  return static_cast<int32_t>(nearest < codes.lowest    ? codes.lowest
                              : nearest > codes.highest ? codes.highest
                                                        : nearest);
}

/// The integer whose low bits, in two's complement, are `code`.
template <int kBits>
SPECDEC_DEVICE float code_value(uint32_t code) {
  const uint32_t sign = 1U << (kBits - 1U);
  return static_cast<float>(static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign));
}

}  // namespace specdec::portable
