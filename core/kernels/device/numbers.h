#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// Storage of a bfloat16: the upper half of a float32.
struct Bfloat16Bits {
  uint16_t bits;
};

/// Storage of an IEEE half.
struct HalfBits {
  uint16_t bits;
};

/// Storage of a number in the format E4M3, which has no infinities (Micikevicius et al., 2022,
/// arXiv:2209.05433).
struct Float8Bits {
  uint8_t bits;
};

SPECDEC_DEVICE float widen(float number) { return number; }
SPECDEC_DEVICE float widen(Bfloat16Bits number) {
  return float_of(static_cast<uint32_t>(number.bits) << 16U);
}

/// Rounds to the type of `out`: to the nearest, ties to even; NaN stays NaN.
SPECDEC_DEVICE float narrow(float number, float /*out*/) { return number; }
SPECDEC_DEVICE Bfloat16Bits narrow(float number, Bfloat16Bits /*out*/) {
  const uint32_t bits = bits_of(number);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return Bfloat16Bits{0x7FC0U};
  }
  return Bfloat16Bits{static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U)};
}

/// IEEE half precision to float32, exactly.
SPECDEC_DEVICE float widen_half(uint32_t half) {
  const uint32_t sign = (half & 0x8000U) << 16U;
  const uint32_t exponent = half >> 10U & 31U;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {  // mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * float_of(0x33800000U);
    return float_of(bits_of(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  return float_of(sign | wide << 23U | mantissa << 13U);
}

SPECDEC_DEVICE float widen(HalfBits number) { return widen_half(number.bits); }

SPECDEC_DEVICE float widen(Float8Bits number) {
  const uint32_t sign = (number.bits & 0x80U) << 24U;
  const uint32_t code = number.bits & 0x7FU;
  if (code == 0x7FU) {
    return float_of(sign | 0x7FC00000U);
  }
  if (code < 8U) {  // code * 2^-9
    const float magnitude = static_cast<float>(code) * float_of(0x3B000000U);
    return float_of(bits_of(magnitude) | sign);
  }
  return float_of(sign | ((code << 20U) + (120U << 23U)));
}

/// Bits of a magnitude that is not NaN in a format of fewer bits, rounded to the nearest, ties to
/// even, and at most `most`, the largest number of the format.
template <uint32_t kMantissaBits, uint32_t kBias>
SPECDEC_DEVICE uint32_t narrow_magnitude(float magnitude, float most) {
  const uint32_t shift = 23U - kMantissaBits;
  const float size = magnitude < most ? magnitude : most;
  if (size < float_of((128U - kBias) << 23U)) {  // subnormal: in units of the smallest number
    const float unit_inverse = float_of((126U + kBias + kMantissaBits) << 23U);
    return static_cast<uint32_t>(nearest_integer(size * unit_inverse));
  }
  const uint32_t bits = bits_of(size);
  const uint32_t rounded = bits + (1U << (shift - 1U)) - 1U + (bits >> shift & 1U);
  return (rounded >> shift) - ((127U - kBias) << kMantissaBits);
}

/// The half nearest to a number, at most 65504; NaN stays NaN, here and below.
SPECDEC_DEVICE HalfBits narrow(float number, HalfBits /*out*/) {
  const uint32_t sign = bits_of(number) >> 16U & 0x8000U;
  const float magnitude = magnitude_of(number);
  const uint32_t bits =
      magnitude != magnitude ? 0x7E00U : narrow_magnitude<10U, 15U>(magnitude, 65504.0F);
  return HalfBits{static_cast<uint16_t>(sign | bits)};
}

/// The E4M3 number nearest to a number, at most 448.
SPECDEC_DEVICE Float8Bits narrow(float number, Float8Bits /*out*/) {
  const uint32_t sign = bits_of(number) >> 24U & 0x80U;
  const float magnitude = magnitude_of(number);
  const uint32_t bits =
      magnitude != magnitude ? 0x7FU : narrow_magnitude<3U, 7U>(magnitude, 448.0F);
  return Float8Bits{static_cast<uint8_t>(sign | bits)};
}

}  // namespace specdec::portable
