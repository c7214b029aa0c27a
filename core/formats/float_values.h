#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

/// IEEE half precision to float32, exactly.
inline float half_value(uint16_t half) {
  const uint32_t bits = half;
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 31U;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

/// Eight bits of the format E4M3, which has no infinities, to float32, exactly (Micikevicius et
/// al., 2022, arXiv:2209.05433).
float float8_value(uint8_t bits);

/// The low four bits in the format E2M1 (Open Compute Project, Microscaling Formats, 2023): 0, 0.5,
/// 1, 1.5, 2, 3, 4 or 6 and a sign.
inline float float4_value(uint8_t bits) {
  constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float value = kMagnitudes[bits & 7U];
  return (bits & 8U) != 0 ? -value : value;
}

/// Eight bits of the format E8M0, a power of two; NaN for the largest code.
inline float power_of_two(uint8_t bits) {
  constexpr int kBias = 127;
  return bits == 0xFFU ? NAN : std::ldexp(1.0F, int{bits} - kBias);
}

/// The values of a tensor of type F32, F16 or BF16, exactly.
std::vector<float> float_values(const TensorEntry& entry);

}  // namespace specdec
