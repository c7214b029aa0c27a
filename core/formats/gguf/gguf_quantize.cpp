#include "core/formats/gguf/gguf_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/formats/dtype.h"

namespace specdec {

uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0F)) {  // rounds to infinity, or is not a number
    return static_cast<uint16_t>(sign | 0x7C00U | (std::isnan(value) ? 0x200U : 0U));
  }
  if (magnitude < 0x1p-14F) {  // subnormal: whole multiples of 2^-24, rounded as the mode says
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24F)));
  }
  const uint32_t rest = bits & 0x7FFFFFFFU;
  const uint32_t rounded = rest + 0xFFFU + (rest >> 13 & 1U);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

void quantize_q8_0(const float* values, int64_t count, std::byte* out) {
  constexpr int64_t kBlock = 32;
  SPECDEC_CHECK(count % kBlock == 0, "quantize_q8_0: {} values are not whole blocks", count);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    float largest = 0.0F;
    for (int64_t i = begin; i < begin + kBlock; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
    }
    const float scale = largest / 127.0F;
    // No value of a block whose scale has no inverse differs from zero in half precision.
    const float inverse = scale < 0x1p-120F ? 0.0F : 1.0F / scale;
    const uint16_t half = half_bits(scale);
    std::memcpy(out, &half, sizeof half);
    for (int64_t i = 0; i < kBlock; ++i) {
      out[2 + i] =
          static_cast<std::byte>(static_cast<int8_t>(std::round(values[begin + i] * inverse)));
    }
    out += dtype_bytes(DType::kQ80);
  }
}

}  // namespace specdec
