#include "core/kernels/kv_format.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/formats/float_values.h"

namespace specdec {
namespace {

constexpr float kMostHalf = 65504.0F;
constexpr int64_t kScaleBytes = 2;

int64_t groups_of(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

int64_t numbers_a_byte(KvFormat format) { return format == KvFormat::kQ4 ? 2 : 1; }

template <class Element>
Element* element(const KvElements& elements, int64_t i) {
  return static_cast<Element*>(elements.data) + i * elements.stride;
}

/// Within -most and most; NaN, which compares with nothing, stays NaN.
float saturated(float number, float most) { return std::clamp(number, -most, most); }

uint16_t half_bits(float number) { return c10::Half(saturated(number, kMostHalf)).x; }

/// The nearest number of the format E4M3, ties to even.
uint8_t float8_bits(float number) {
  constexpr float kMost = 448.0F;
  constexpr float kSmallestNormal = 0x1p-6F;
  const auto bits = std::bit_cast<uint32_t>(saturated(number, kMost));
  const uint32_t sign = bits >> 24U & 0x80U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (std::isnan(number)) {
    return static_cast<uint8_t>(sign | 0x7FU);
  }
  if (const float size = std::fabs(number); size < kSmallestNormal) {
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::nearbyint(size * 0x1p9F)));
  }
  const uint32_t rounded = magnitude + 0x7FFFFU + (magnitude >> 20U & 1U);
  return static_cast<uint8_t>(sign | ((rounded >> 20U) - (120U << 3U)));
}

/// Rounds each number of a head by itself.
template <class Element, class Round>
void encode_each(const float* numbers, int64_t head_dim, const KvElements& to, const Round& round) {
  for (int64_t i = 0; i < head_dim; ++i) {
    *element<Element>(to, i) = round(numbers[i]);
  }
}

template <class Element, class Widen>
void decode_each(const KvElements& from, int64_t head_dim, float* numbers, const Widen& widen) {
  for (int64_t i = 0; i < head_dim; ++i) {
    numbers[i] = widen(*element<Element>(from, i));
  }
}

/// A group's scale: its number of the largest magnitude becomes the lowest code, as GGUF's Q4_0
/// does, so that all codes are used.
uint16_t scale_bits(const float* numbers, int64_t count, float lowest_code) {
  float most = 0;
  float faults = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::fabs(numbers[i]) > std::fabs(most) ? numbers[i] : most;
    faults += numbers[i] - numbers[i];
  }
  const float scale = most / lowest_code + faults;
  const uint16_t bits = half_bits(scale);
  // Subnormal scales are coarse: one that is too small would cut the largest number.
  const bool cuts = std::fabs(half_value(bits)) < std::fabs(scale) && std::fabs(scale) < 0x1p-14F;
  return static_cast<uint16_t>(cuts ? bits + 1 : bits);
}

/// Codes of kBits of a group, in the low bits, two's complement.
template <int kBits>
void encode_group(const float* numbers, int64_t count, float scale, uint8_t* codes) {
  constexpr float kHighest = (1 << (kBits - 1)) - 1;
  const float inverse = scale == 0 || std::isnan(scale) ? 0.0F : 1.0F / scale;
  for (int64_t i = 0; i < count; ++i) {
    const float code = inverse == 0 ? 0.0F : std::nearbyint(numbers[i] * inverse);
    codes[i] = static_cast<uint8_t>(static_cast<int>(std::clamp(code, -kHighest - 1, kHighest)) &
                                    ((1 << kBits) - 1));
  }
}

void encode_blocks(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to) {
  const bool pairs = format == KvFormat::kQ4;
  const int64_t scales = head_dim / numbers_a_byte(format);
  for (int64_t group = 0; group < groups_of(head_dim); ++group) {
    const int64_t first = group * kKvGroup;
    const int64_t count = std::min(kKvGroup, head_dim - first);
    const uint16_t bits = scale_bits(numbers + first, count, pairs ? -8.0F : -128.0F);
    *element<uint8_t>(to, scales + kScaleBytes * group) = static_cast<uint8_t>(bits);
    *element<uint8_t>(to, scales + kScaleBytes * group + 1) = static_cast<uint8_t>(bits >> 8U);
    uint8_t codes[kKvGroup] = {};
    (pairs ? encode_group<4> : encode_group<8>)(numbers + first, count, half_value(bits), codes);
    for (int64_t i = 0; i < count; i += numbers_a_byte(format)) {
      *element<uint8_t>(to, (first + i) / numbers_a_byte(format)) =
          static_cast<uint8_t>(pairs ? codes[i] | codes[i + 1] << 4 : codes[i]);
    }
  }
}

int code_at(KvFormat format, const KvElements& from, int64_t i) {
  if (format == KvFormat::kQ8) {
    return element<Q8Code>(from, i)->code;
  }
  const int nibble = element<uint8_t>(from, i / 2)[0] >> (i % 2 * 4) & 15;
  return nibble >= 8 ? nibble - 16 : nibble;
}

void decode_blocks(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers) {
  const int64_t scales = head_dim / numbers_a_byte(format);
  for (int64_t i = 0; i < head_dim; ++i) {
    const int64_t scale = scales + kScaleBytes * (i / kKvGroup);
    const int bits = *element<uint8_t>(from, scale) | *element<uint8_t>(from, scale + 1) << 8;
    numbers[i] =
        static_cast<float>(code_at(format, from, i)) * half_value(static_cast<uint16_t>(bits));
  }
}

}  // namespace

const char* kv_format_name(KvFormat format) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "fp8_e4m3", "q8", "q4"};
  return kNames[static_cast<int>(format)];
}

at::ScalarType kv_element_type(KvFormat format, at::ScalarType activations) {
  switch (format) {
    case KvFormat::kNative:
      return activations;
    case KvFormat::kBFloat16:
      return at::kBFloat16;
    case KvFormat::kFloat16:
      return at::kHalf;
    case KvFormat::kFp8E4m3:
    case KvFormat::kQ8:
    case KvFormat::kQ4:
      break;
  }
  return at::kByte;
}

int64_t kv_width(KvFormat format, int64_t head_dim) {
  SPECDEC_CHECK(format != KvFormat::kQ4 || head_dim % 2 == 0, "cache: head_dim {} in {}", head_dim,
                kv_format_name(format));
  return has_scales(format) ? head_dim / numbers_a_byte(format) + kScaleBytes * groups_of(head_dim)
                            : head_dim;
}

int64_t kv_head_dim(KvFormat format, int64_t width) {
  if (!has_scales(format)) {
    return width;
  }
  const int64_t group_bytes = kKvGroup / numbers_a_byte(format) + kScaleBytes;
  const int64_t groups = (width + group_bytes - 1) / group_bytes;
  return (width - kScaleBytes * groups) * numbers_a_byte(format);
}

void encode_kv(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to) {
  switch (format) {
    case KvFormat::kNative:
      return encode_each<float>(numbers, head_dim, to, [](float number) { return number; });
    case KvFormat::kBFloat16:
      return encode_each<c10::BFloat16>(numbers, head_dim, to,
                                        [](float number) { return c10::BFloat16(number); });
    case KvFormat::kFloat16:
      return encode_each<uint16_t>(numbers, head_dim, to, half_bits);
    case KvFormat::kFp8E4m3:
      return encode_each<uint8_t>(numbers, head_dim, to, float8_bits);
    case KvFormat::kQ8:
    case KvFormat::kQ4:
      return encode_blocks(format, numbers, head_dim, to);
  }
}

void decode_kv(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers) {
  switch (format) {
    case KvFormat::kNative:
      return decode_each<float>(from, head_dim, numbers, [](float number) { return number; });
    case KvFormat::kBFloat16:
      return decode_each<c10::BFloat16>(
          from, head_dim, numbers, [](c10::BFloat16 number) { return static_cast<float>(number); });
    case KvFormat::kFloat16:
      return decode_each<uint16_t>(from, head_dim, numbers, half_value);
    case KvFormat::kFp8E4m3:
      return decode_each<uint8_t>(from, head_dim, numbers, float8_value);
    case KvFormat::kQ8:
    case KvFormat::kQ4:
      return decode_blocks(format, from, head_dim, numbers);
  }
}

}  // namespace specdec
