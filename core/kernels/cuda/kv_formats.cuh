#pragma once
// How a key or value of a head is read and written in each format of the cache. Element e lies at
// first[e * stride]. A number that is read is the sum of kParts bfloat16 numbers.
#include <paired_numbers.h>

#include <type_traits>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/stored_kv.h"

namespace specdec::cuda {

struct KvPair {
  float number[2];
};

/// Numbers by themselves.
template <class T>
struct FloatKv {
  using Element = T;
  static constexpr int kParts = std::is_same<T, float>::value              ? 3
                                : std::is_same<T, device::HalfBits>::value ? 2
                                                                           : 1;

  /// Factor of the codes of a warp's number of dimensions, from kWarp * group on.
  __device__ static float scale(const Element*, int64_t, int /*head_dim*/, int /*group*/) {
    return 1.0F;
  }
  __device__ static float code(const Element* first, int64_t stride, int /*head_dim*/, int d) {
    return device::widen(first[d * stride]);
  }
  /// Two neighbours in memory, of which the first lies at a multiple of the size of both.
  __device__ static KvPair pair(const Element* first) {
    struct alignas(2 * sizeof(Element)) Stored {
      Element element[2];
    };
    const Stored stored = *reinterpret_cast<const Stored*>(first);
    return {{device::widen(stored.element[0]), device::widen(stored.element[1])}};
  }
  /// Rounds and writes a head; the whole block, of kThreads.
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kThreads) {
      first[d * stride] = device::narrow(numbers[d], Element{});
    }
  }
};

static_assert(device::kScaledGroup == kWarp, "a number of a group is a lane's");

/// Calls write(d, number) for each group of a head: a group is a warp's, number d a lane's, 0
/// beyond the head. The whole block, of kThreads.
template <int kThreads, class Write>
__device__ inline void for_each_group(const float* numbers, int head_dim, const Write& write) {
  for (int begin = static_cast<int>(warp_index()) * kWarp; begin < head_dim; begin += kThreads) {
    const int d = begin + static_cast<int>(lane_index());
    write(d, d < head_dim ? numbers[d] : 0.0F);
  }
}

/// Scale of a group, of those that begin at `scales`.
__device__ inline float read_scale(const uint8_t* scales, int64_t stride, int group) {
  const uint8_t* low = scales + 2 * group * stride;
  return widen_half(static_cast<uint32_t>(low[0]) | static_cast<uint32_t>(low[stride]) << 8U);
}

__device__ inline void write_scale(device::HalfBits scale, int group, uint8_t* scales,
                                   int64_t stride) {
  const int lane = static_cast<int>(lane_index());
  if (lane < 2) {
    scales[(2 * group + lane) * stride] = static_cast<uint8_t>(scale.bits >> (8 * lane));
  }
}

/// Bits of the scale of the group whose numbers the lanes have.
__device__ inline device::HalfBits scale_of(float number, device::IntegerCodes codes) {
  const bool finite = number - number == 0.0F;
  const float magnitude = finite ? device::magnitude_of(number) : 0.0F;
  const unsigned largest = __ballot_sync(kAllLanes, magnitude == warp_largest(magnitude));
  const int first = __popc((largest & (0U - largest)) - 1U);
  const float most = __shfl_sync(kAllLanes, finite ? number : 0.0F, first);
  return device::group_scale(most, __ballot_sync(kAllLanes, !finite) == 0, codes);
}

/// Codes of kBits: as many as fill a byte lie in it, the first in the low bits.
template <int kBits>
struct KvCodes {
  static constexpr int kBitsOfCode = kBits;
  static constexpr int kCount = 8 / kBits;  ///< of a byte

  __device__ static uint32_t code_in(uint32_t byte, int d) {
    return byte >> (d % kCount * kBits) & ((1U << kBits) - 1U);
  }
  __device__ static float read(const uint8_t* codes, int64_t stride, int d) {
    return device::code_value<kBits>(code_in(codes[d / kCount * stride], d));
  }
  /// Lanes have those of dimensions d.
  __device__ static void write(int32_t integer, int d, int head_dim, uint8_t* codes,
                               int64_t stride) {
    uint32_t code = static_cast<uint32_t>(integer) & ((1U << kBits) - 1U);
    for (int lanes = 1; lanes < kCount; lanes *= 2) {
      code |= __shfl_xor_sync(kAllLanes, code, lanes) << (lanes * kBits);
    }
    if (d < head_dim && d % kCount == 0) {
      codes[d / kCount * stride] = static_cast<uint8_t>(code);
    }
  }
};

/// Codes of kBits, then a float16 scale of each 32 of them.
template <int kBits>
struct ScaledKv {
  using Element = uint8_t;
  using Codes = KvCodes<kBits>;
  static constexpr int kParts = kBits + 11 <= 16 ? 2 : 3;  // of a code's bits and a scale's

  __device__ static float scale(const Element* first, int64_t stride, int head_dim, int group) {
    return read_scale(first + head_dim / Codes::kCount * stride, stride, group);
  }
  __device__ static float code(const Element* first, int64_t stride, int /*head_dim*/, int d) {
    return Codes::read(first, stride, d);
  }
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    for_each_group<kThreads>(numbers, head_dim, [=](int d, float number) {
      const device::IntegerCodes range = device::integer_codes(kBits);
      const device::HalfBits scale = scale_of(number, range);
      Codes::write(device::group_code(number, scale, range), d, head_dim, first, stride);
      write_scale(scale, d / kWarp, first + head_dim / Codes::kCount * stride, stride);
    });
  }
};

/// Upper halves and scales as ScaledKv<4> has its codes, then lower halves.
struct HalvesKv {
  using Element = uint8_t;
  using Half = KvCodes<4>;
  static constexpr int kParts = 3;

  __device__ static float scale(const Element* first, int64_t stride, int head_dim, int group) {
    return ScaledKv<4>::scale(first, stride, head_dim, group) * device::halved_codes().unit;
  }
  __device__ static float code(const Element* first, int64_t stride, int head_dim, int d) {
    const float upper = Half::read(first, stride, d);
    return device::fused(16.0F, upper, Half::read(first + lower(head_dim) * stride, stride, d));
  }
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    for_each_group<kThreads>(numbers, head_dim, [=](int d, float number) {
      const device::IntegerCodes range = device::halved_codes();
      const device::HalfBits scale = scale_of(number, range);
      const int32_t code = device::group_code(number, scale, range);
      Element* lower_halves = first + lower(head_dim) * stride;
      Half::write(device::upper_half(code), d, head_dim, first, stride);
      Half::write(device::lower_half(code), d, head_dim, lower_halves, stride);
      write_scale(scale, d / kWarp, first + head_dim / 2 * stride, stride);
    });
  }

 private:
  /// Elements before the lower halves.
  __device__ static int lower(int head_dim) {
    return head_dim / 2 + (head_dim + kWarp - 1) / kWarp * 2;
  }
};

constexpr int kLevels = 8;

/// Codes of kLevels levels, eight in three bytes as Q3Codes says, then a float16 scale of each 32.
/// Levels: device::NormalLevels, or a pointer to those of a head.
template <class Levels>
struct LevelsKv {
  using Element = uint8_t;
  static constexpr int kBlock = 8;
  static constexpr int kParts = 3;

  Levels levels;

  __device__ static float scale(const Element* first, int64_t stride, int head_dim, int group) {
    return read_scale(first + head_dim / kBlock * 3 * stride, stride, group);
  }
  __device__ float code(const Element* first, int64_t stride, int /*head_dim*/, int d) const {
    const Element* block = first + d / kBlock * 3 * stride;
    const uint32_t low = block[d % kBlock / 4 * stride] >> (d % 4 * 2) & 3U;
    const uint32_t high = block[2 * stride] >> (d % kBlock) & 1U;
    return levels[static_cast<int32_t>(low | high << 2U)];
  }
  template <int kThreads>
  __device__ void write(const float* numbers, int head_dim, Element* first, int64_t stride) const {
    for_each_group<kThreads>(numbers, head_dim, [=, levels = levels](int d, float number) {
      const int begin = d / kWarp * kWarp;
      const int count = head_dim - begin < kWarp ? head_dim - begin : kWarp;
      const double squares = warp_sum(static_cast<double>(number) * number);
      const double rms = sqrt(squares / count);
      const int32_t code = device::level_code(number, rms, levels);
      const double level = d < head_dim ? levels[code] : 0.0F;
      const double products = warp_sum(number * level);
      write_codes(code, d, head_dim, first, stride);
      write_scale(device::level_scale(rms, products, warp_sum(level * level)), d / kWarp,
                  first + head_dim / kBlock * 3 * stride, stride);
    });
  }

 private:
  /// Lanes have the codes of dimensions d.
  __device__ static void write_codes(int32_t code, int d, int head_dim, Element* first,
                                     int64_t stride) {
    const unsigned signs = __ballot_sync(kAllLanes, code > 3);
    uint32_t levels = static_cast<uint32_t>(code & 3) << (d % 4 * 2);
    levels |= __shfl_xor_sync(kAllLanes, levels, 1);
    levels |= __shfl_xor_sync(kAllLanes, levels, 2);
    Element* block = first + d / kBlock * 3 * stride;
    if (d < head_dim && d % 4 == 0) {
      block[d % kBlock / 4 * stride] = static_cast<Element>(levels);
    }
    if (d < head_dim && d % kBlock == 0) {
      block[2 * stride] = static_cast<Element>(signs >> (d % kWarp));
    }
  }
};

/// What the codes of a group lie between, of which a lane has a number where `counts`.
__device__ inline device::CodeRange range_of(float number, bool counts, int bits) {
  const bool finite = __ballot_sync(kAllLanes, counts && number - number != 0.0F) == 0;
  const bool usable = counts && finite;
  const float least = -warp_largest(usable ? -number : device::minus_infinity());
  const float most = warp_largest(usable ? number : device::minus_infinity());
  return device::code_range(least, most, finite, bits);
}

/// Two halves of a range beside each other, at a multiple of their size.
struct alignas(4) HalfPair {
  device::HalfBits half[2];
};

/// Codes of kBits between two numbers; of keys the groups are those of core/kernels/key_groups.h.
template <int kBits>
struct RangedKv {
  using Element = uint8_t;
  using Codes = KvCodes<kBits>;
  static constexpr int kParts = 3;

  /// Rows of a group of keys that hold `least`, and as many that hold steps.
  __device__ static int range_rows(int head_dim) {
    return (head_dim + device::kRangesOfRow - 1) / device::kRangesOfRow;
  }

  /// Dimensions d and d + 1 of a group of keys, for an even d; of the group's first token element
  /// e lies at group[e * stride].
  struct KeyRanges {
    device::CodeRange range[2];

    __device__ static KeyRanges read(const Element* group, int64_t stride, int head_dim, int d) {
      const Element* least = group +
                             (head_dim / Codes::kCount + d / device::kRangesOfRow) * stride +
                             2 * (d % device::kRangesOfRow);
      const HalfPair first = *reinterpret_cast<const HalfPair*>(least);
      const HalfPair steps =
          *reinterpret_cast<const HalfPair*>(least + range_rows(head_dim) * stride);
      return {{{first.half[0], steps.half[0]}, {first.half[1], steps.half[1]}}};
    }
    /// Numbers of a token of the group.
    __device__ KvPair of(const Element* group, int64_t stride, int token, int d) const {
      const uint32_t byte = group[d / Codes::kCount * stride + token];
      return {{device::ranged_number(Codes::code_in(byte, d), range[0]),
               device::ranged_number(Codes::code_in(byte, d + 1), range[1])}};
    }
  };

  /// Numbers d and d + 1 of a value, for an even d. Its range is read as two halves: it lies at a
  /// multiple of a half's size alone, behind codes that may be any even number of bytes.
  __device__ static KvPair value_pair(const Element* value, int head_dim, int d) {
    const auto* halves = reinterpret_cast<const device::HalfBits*>(
        value + head_dim / Codes::kCount + d / kWarp * device::kRangeBytes);
    const device::CodeRange range = {halves[0], halves[1]};
    const uint32_t byte = value[d / Codes::kCount];
    return {{device::ranged_number(Codes::code_in(byte, d), range),
             device::ranged_number(Codes::code_in(byte, d + 1), range)}};
  }
  /// Writes a value, whose elements lie side by side.
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    for_each_group<kThreads>(numbers, head_dim, [=](int d, float number) {
      const device::CodeRange range = range_of(number, d < head_dim, kBits);
      Codes::write(static_cast<int32_t>(device::ranged_code(number, range, kBits)), d, head_dim,
                   first, stride);
      Element* halves =
          first + (head_dim / Codes::kCount + d / kWarp * device::kRangeBytes) * stride;
      write_scale(range.least, 0, halves, stride);
      write_scale(range.step, 1, halves, stride);
    });
  }
};

/// Whether keys are rounded in groups of tokens.
template <class Kv>
constexpr bool kIsRanged =
    std::is_same<Kv, RangedKv<2>>::value || std::is_same<Kv, RangedKv<4>>::value;

using CodebookKv = LevelsKv<const float*>;

/// Levels of a head's keys, or values; nullptr where the cache has no codebook.
__device__ inline const float* levels_of(const PagedCache& cache, int kv_head, bool is_key) {
  const int row = is_key ? kv_head : cache.kv_heads + kv_head;
  return cache.levels == nullptr ? nullptr : cache.levels + row * kLevels;
}

/// The reader and writer of a head's keys, or values, with these levels.
template <class Kv>
__device__ inline Kv kv_with(const float* levels) {
  if constexpr (std::is_same<Kv, CodebookKv>::value) {
    return {levels};
  } else {
    return {};
  }
}

/// Number of dimension d. Its scale has eleven bits, so the product with an integer code is exact.
template <class Kv>
__device__ inline float number_at(const Kv& kv, const typename Kv::Element* first, int64_t stride,
                                  int head_dim, int d) {
  return device::rounded_product(kv.code(first, stride, head_dim, d),
                                 kv.scale(first, stride, head_dim, d / kWarp));
}

/// Whether pages and heads of a format that rounds keys in groups of tokens hold whole ones, and
/// what is read of them ends with one; true of other formats.
inline bool has_whole_groups(const PagedCache& cache) {
  return (cache.format != KvFormat::kKivi2 && cache.format != KvFormat::kKivi4) ||
         (cache.page_size % device::kRangedTokens == 0 && cache.head_dim % 8 == 0 &&
          cache.exact.recent > 0 && cache.exact.multiple % device::kRangedTokens == 0);
}

/// Calls use(kv) with a reader and writer of the cache's format; kInvalidValue for one that does
/// not exist.
template <class Use>
int with_kv_format(const PagedCache& cache, const Use& use) {
  switch (cache.format) {
    case KvFormat::kNative:
      return use(FloatKv<float>{});
    case KvFormat::kBFloat16:
      return use(FloatKv<device::Bfloat16Bits>{});
    case KvFormat::kFloat16:
      return use(FloatKv<device::HalfBits>{});
    case KvFormat::kFp8E4m3:
      return use(FloatKv<device::Float8Bits>{});
    case KvFormat::kQ8:
      return use(ScaledKv<8>{});
    case KvFormat::kQ4:
      return use(ScaledKv<4>{});
    case KvFormat::kQ3:
      return cache.levels == nullptr ? use(LevelsKv<device::NormalLevels>{}) : use(CodebookKv{});
    case KvFormat::kHierarchical:
      return use(HalvesKv{});
    case KvFormat::kKivi2:
      return use(RangedKv<2>{});
    case KvFormat::kKivi4:
      return use(RangedKv<4>{});
  }
  return kInvalidValue;
}

}  // namespace specdec::cuda
