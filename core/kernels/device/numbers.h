#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// Storage of a bfloat16: the upper half of a float32.
struct Bfloat16Bits {
  uint16_t bits;
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

}  // namespace specdec::portable
