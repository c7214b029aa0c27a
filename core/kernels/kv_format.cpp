#include "core/kernels/kv_format.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/stored_kv.h"

namespace specdec {
namespace {

constexpr int64_t kScaleBytes = 2;
static_assert(kKvGroup == device::kScaledGroup);

int64_t groups_of(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

int64_t numbers_a_byte(KvFormat format) { return format == KvFormat::kQ4 ? 2 : 1; }

template <class Element>
Element* element(const KvElements& elements, int64_t i) {
  return static_cast<Element*>(elements.data) + i * elements.stride;
}

/// Rounds each number of a head by itself.
template <class Element>
void encode_each(const float* numbers, int64_t head_dim, const KvElements& to) {
  for (int64_t i = 0; i < head_dim; ++i) {
    *element<Element>(to, i) = device::narrow(numbers[i], Element{});
  }
}

template <class Element>
void decode_each(const KvElements& from, int64_t head_dim, float* numbers) {
  for (int64_t i = 0; i < head_dim; ++i) {
    numbers[i] = device::widen(*element<Element>(from, i));
  }
}

/// Codes of kBits of a group, in the low bits; returns the scale.
template <int kBits>
device::HalfBits encode_group(const float* numbers, int64_t count, uint8_t* codes) {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    most = std::fabs(numbers[i]) > std::fabs(most) ? numbers[i] : most;
    finite = finite && std::isfinite(numbers[i]);
  }
  const device::HalfBits scale = device::group_scale<kBits>(most, finite);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = device::group_code<kBits>(numbers[i], scale);
  }
  return scale;
}

void encode_blocks(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to) {
  const bool pairs = format == KvFormat::kQ4;
  const int64_t scales = head_dim / numbers_a_byte(format);
  for (int64_t group = 0; group < groups_of(head_dim); ++group) {
    const int64_t first = group * kKvGroup;
    const int64_t count = std::min(kKvGroup, head_dim - first);
    uint8_t codes[kKvGroup] = {};
    const uint16_t bits =
        (pairs ? encode_group<4> : encode_group<8>)(numbers + first, count, codes).bits;
    *element<uint8_t>(to, scales + kScaleBytes * group) = static_cast<uint8_t>(bits);
    *element<uint8_t>(to, scales + kScaleBytes * group + 1) = static_cast<uint8_t>(bits >> 8U);
    for (int64_t i = 0; i < count; i += numbers_a_byte(format)) {
      *element<uint8_t>(to, (first + i) / numbers_a_byte(format)) =
          static_cast<uint8_t>(pairs ? codes[i] | codes[i + 1] << 4 : codes[i]);
    }
  }
}

float code_at(KvFormat format, const KvElements& from, int64_t i) {
  if (format == KvFormat::kQ8) {
    return device::code_value<8>(*element<uint8_t>(from, i));
  }
  return device::code_value<4>(*element<uint8_t>(from, i / 2) >> (i % 2 * 4) & 15);
}

void decode_blocks(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers) {
  const int64_t scales = head_dim / numbers_a_byte(format);
  for (int64_t i = 0; i < head_dim; ++i) {
    const int64_t scale = scales + kScaleBytes * (i / kKvGroup);
    const int bits = *element<uint8_t>(from, scale) | *element<uint8_t>(from, scale + 1) << 8;
    numbers[i] = code_at(format, from, i) * device::widen_half(static_cast<uint32_t>(bits));
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
      return encode_each<float>(numbers, head_dim, to);
    case KvFormat::kBFloat16:
      return encode_each<device::Bfloat16Bits>(numbers, head_dim, to);
    case KvFormat::kFloat16:
      return encode_each<device::HalfBits>(numbers, head_dim, to);
    case KvFormat::kFp8E4m3:
      return encode_each<device::Float8Bits>(numbers, head_dim, to);
    case KvFormat::kQ8:
    case KvFormat::kQ4:
      return encode_blocks(format, numbers, head_dim, to);
  }
}

void decode_kv(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers) {
  switch (format) {
    case KvFormat::kNative:
      return decode_each<float>(from, head_dim, numbers);
    case KvFormat::kBFloat16:
      return decode_each<device::Bfloat16Bits>(from, head_dim, numbers);
    case KvFormat::kFloat16:
      return decode_each<device::HalfBits>(from, head_dim, numbers);
    case KvFormat::kFp8E4m3:
      return decode_each<device::Float8Bits>(from, head_dim, numbers);
    case KvFormat::kQ8:
    case KvFormat::kQ4:
      return decode_blocks(format, from, head_dim, numbers);
  }
}

}  // namespace specdec
