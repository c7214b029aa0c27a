#include "core/kernels/kv_format.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/stored_kv.h"
#include "core/kernels/key_groups.h"

namespace specdec {
namespace {

constexpr int64_t kScaleBytes = 2;
static_assert(kKvGroup == device::kScaledGroup);

int64_t groups_of(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

/// Elements before the scales.
int64_t elements_before_scales(KvFormat format, int64_t head_dim) {
  switch (format) {
    case KvFormat::kQ4:
    case KvFormat::kHierarchical:
      return head_dim / 2;
    case KvFormat::kQ3:
      return head_dim / kQ3Block * 3;
    case KvFormat::kKivi2:
      return head_dim / 4;
    case KvFormat::kKivi4:
      return head_dim / 2;
    default:
      return head_dim;
  }
}

/// What a group takes beside its codes.
int64_t bytes_of_scale(KvFormat format) {
  return kv_key_group(format) > 1 ? device::kRangeBytes : kScaleBytes;
}

/// Elements behind the scales.
int64_t elements_behind_scales(KvFormat format, int64_t head_dim) {
  return format == KvFormat::kHierarchical ? head_dim / 2 : 0;
}

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

device::IntegerCodes codes_of(KvFormat format) {
  switch (format) {
    case KvFormat::kQ4:
      return device::integer_codes(4);
    case KvFormat::kHierarchical:
      return device::halved_codes();
    default:
      return device::integer_codes(8);
  }
}

/// A group's dimensions, and the element that lower halves begin at.
struct GroupPlace {
  int64_t first, count, lower;
};

/// Eight codes of kQ3 in three elements.
void write_levels(const int* codes, uint8_t* to, int64_t stride) {
  int elements[3] = {};
  for (int64_t i = 0; i < kQ3Block; ++i) {
    elements[i / 4] |= (codes[i] & 3) << (i % 4 * 2);
    elements[2] |= codes[i] >> 2 << i;
  }
  for (int64_t i = 0; i < 3; ++i) {
    to[i * stride] = static_cast<uint8_t>(elements[i]);
  }
}

/// Rounds a group to integers; the bits of its scale.
uint16_t round_group(const float* numbers, int64_t count, const device::IntegerCodes& range,
                     int* codes) {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    most = std::fabs(numbers[i]) > std::fabs(most) ? numbers[i] : most;
    finite = finite && std::isfinite(numbers[i]);
  }
  const device::HalfBits scale = device::group_scale(most, finite, range);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = device::group_code(numbers[i], scale, range);
  }
  return scale.bits;
}

/// The sum of terms, one a number of a group, by halves, as a warp of CUDA adds them up.
double sum_by_halves(double (&terms)[kKvGroup]) {
  for (int64_t half = kKvGroup / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) {
      terms[i] += terms[i + half];
    }
  }
  return terms[0];
}

/// Codes of kQ3; the bits of their scale.
uint16_t choose_levels(const float* numbers, int64_t count, const float* levels, int* codes) {
  double products[kKvGroup] = {};
  double squares[kKvGroup] = {};
  for (int64_t i = 0; i < count; ++i) {
    squares[i] = static_cast<double>(numbers[i]) * numbers[i];
  }
  const double rms = std::sqrt(sum_by_halves(squares) / static_cast<double>(count));
  std::fill(std::begin(squares), std::end(squares), 0);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = device::level_code(numbers[i], rms, levels);
    const double level = levels[codes[i]];
    products[i] = numbers[i] * level;
    squares[i] = level * level;
  }
  return device::level_scale(rms, sum_by_halves(products), sum_by_halves(squares)).bits;
}

/// Rounds a group to codes; the bits of its scale.
uint16_t encode_group(KvFormat format, const float* numbers, int64_t count, const float* levels,
                      int* codes) {
  return format == KvFormat::kQ3 ? choose_levels(numbers, count, levels, codes)
                                 : round_group(numbers, count, codes_of(format), codes);
}

/// The elements of a group that begins at dimension `first`.
void write_codes(KvFormat format, const int* codes, const GroupPlace& at, const KvElements& to) {
  const auto byte = [&](int64_t i) -> uint8_t& { return *element<uint8_t>(to, i); };
  for (int64_t i = 0; i < at.count; i += kv_multiple(format)) {
    const int64_t dim = at.first + i;
    const auto pair = [&](int low, int high) {
      return static_cast<uint8_t>((low & 15) | (high & 15) << 4);
    };
    switch (format) {
      case KvFormat::kQ4:
        byte(dim / 2) = pair(codes[i], codes[i + 1]);
        break;
      case KvFormat::kHierarchical:
        byte(dim / 2) = pair(device::upper_half(codes[i]), device::upper_half(codes[i + 1]));
        byte(at.lower + dim / 2) =
            pair(device::lower_half(codes[i]), device::lower_half(codes[i + 1]));
        break;
      case KvFormat::kQ3:
        write_levels(codes + i, &byte(dim / kQ3Block * 3), to.stride);
        break;
      default:
        byte(dim) = static_cast<uint8_t>(codes[i]);
    }
  }
}

void encode_blocks(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to) {
  const int64_t scales = elements_before_scales(format, head_dim);
  const int64_t lower = scales + kScaleBytes * groups_of(head_dim);
  for (int64_t group = 0; group < groups_of(head_dim); ++group) {
    const int64_t first = group * kKvGroup;
    const GroupPlace at{first, std::min(kKvGroup, head_dim - first), lower};
    int codes[kKvGroup] = {};
    const uint16_t bits = encode_group(format, numbers + first, at.count, to.levels, codes);
    *element<uint8_t>(to, scales + kScaleBytes * group) = static_cast<uint8_t>(bits);
    *element<uint8_t>(to, scales + kScaleBytes * group + 1) = static_cast<uint8_t>(bits >> 8U);
    write_codes(format, codes, at, to);
  }
}

/// The signed nibble of dimension `dim` in the pairs from element `first` on.
int nibble_at(const KvElements& from, int64_t first, int64_t dim) {
  const int nibble = *element<uint8_t>(from, first + dim / 2) >> (dim % 2 * 4) & 15;
  return nibble >= 8 ? nibble - 16 : nibble;
}

float level_at(const KvElements& from, int64_t dim) {
  const int64_t block = dim / kQ3Block * 3;
  const int64_t i = dim % kQ3Block;
  const int low = *element<uint8_t>(from, block + i / 4) >> (i % 4 * 2) & 3;
  const int high = *element<uint8_t>(from, block + 2) >> i & 1;
  return from.levels[low | high << 2];
}

/// The number of a dimension, before its scale.
float unscaled(KvFormat format, const KvElements& from, int64_t dim, int64_t lower) {
  switch (format) {
    case KvFormat::kQ4:
      return static_cast<float>(nibble_at(from, 0, dim));
    case KvFormat::kHierarchical:
      return static_cast<float>(16 * nibble_at(from, 0, dim) + nibble_at(from, lower, dim));
    case KvFormat::kQ3:
      return level_at(from, dim);
    default:
      return element<Q8Code>(from, dim)->code;
  }
}

void decode_blocks(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers) {
  const int64_t scales = elements_before_scales(format, head_dim);
  const int64_t lower = scales + kScaleBytes * groups_of(head_dim);
  for (int64_t i = 0; i < head_dim; ++i) {
    const int64_t scale = scales + kScaleBytes * (i / kKvGroup);
    const int bits = *element<uint8_t>(from, scale) | *element<uint8_t>(from, scale + 1) << 8;
    numbers[i] = unscaled(format, from, i, lower) *
                 (device::widen_half(static_cast<uint32_t>(bits)) * codes_of(format).unit);
  }
}

}  // namespace

const char* kv_format_name(KvFormat format) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16",      "fp8_e4m3", "q8",
                                    "q4",      "q3",       "hierarchical", "kivi2",    "kivi4"};
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
    case KvFormat::kQ3:
    case KvFormat::kHierarchical:
    case KvFormat::kKivi2:
    case KvFormat::kKivi4:
      break;
  }
  return at::kByte;
}

int64_t kv_multiple(KvFormat format) {
  switch (format) {
    case KvFormat::kQ4:
    case KvFormat::kHierarchical:
      return 2;
    case KvFormat::kQ3:
      return kQ3Block;
    case KvFormat::kKivi2:
    case KvFormat::kKivi4:
      return kKiviMultiple;
    default:
      return 1;
  }
}

int64_t kv_width(KvFormat format, int64_t head_dim) {
  SPECDEC_CHECK(head_dim % kv_multiple(format) == 0,
                "cache: head_dim {} in {}, not a multiple of {}", head_dim, kv_format_name(format),
                kv_multiple(format));
  if (!has_scales(format) && kv_key_group(format) == 1) {
    return head_dim;
  }
  return elements_before_scales(format, head_dim) + bytes_of_scale(format) * groups_of(head_dim) +
         elements_behind_scales(format, head_dim);
}

int64_t kv_head_dim(KvFormat format, int64_t width) {
  if (!has_scales(format) && kv_key_group(format) == 1) {
    return width;
  }
  const int64_t group_bytes = kv_width(format, kKvGroup);
  const int64_t groups = (width + group_bytes - 1) / group_bytes;
  const int64_t scale = bytes_of_scale(format);
  return (width - scale * groups) * kKvGroup / (group_bytes - scale);
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
    case KvFormat::kQ3:
    case KvFormat::kHierarchical:
      return encode_blocks(format, numbers, head_dim, to);
    case KvFormat::kKivi2:
    case KvFormat::kKivi4:
      return encode_ranged_value(format, numbers, head_dim, to);
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
    case KvFormat::kQ3:
    case KvFormat::kHierarchical:
      return decode_blocks(format, from, head_dim, numbers);
    case KvFormat::kKivi2:
    case KvFormat::kKivi4:
      return decode_ranged_value(format, from, head_dim, numbers);
  }
}

void decode_upper_half(const KvElements& from, int64_t head_dim, float* numbers) {
  decode_blocks(KvFormat::kQ4, from, head_dim, numbers);
}

}  // namespace specdec
