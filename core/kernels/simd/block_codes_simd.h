// The codes and scales of weights in blocks; included inside a namespace by block_product_simd.h;
// see core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/row_tiles_simd.h"

using Words = typename Lanes<float>::Wide;
using Ints = typename Lanes<float>::Int;

inline Vec<float> as_floats(Ints values) { return __builtin_convertvector(values, Vec<float>); }

/// The scales of a vector of columns.
template <class V = Vec<float>>
inline V load_scales(const Fp16* scales) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 64) {
    // The plain intrinsic makes GCC 12 warn of a value that is not initialised.
    return _mm512_maskz_cvtph_ps(0xFFFF, load_raw<__m256i>(scales));
  } else if constexpr (sizeof(V) == 32) {
    return _mm256_cvtph_ps(load_raw<__m128i>(scales));
  }
#endif
  typedef uint16_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
  return widen_half(__builtin_convertvector(load_raw<Narrow>(scales), Words));
}

inline Vec<float> load_scales(const Bf16* scales) {
  typedef uint16_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
  return same_bits<Vec<float>>(__builtin_convertvector(load_raw<Narrow>(scales), Words) << 16);
}

inline Vec<float> load_scales(const float* scales) { return load(scales); }

/// Codes of inputs 4 * group to 4 * group + 3 of a vector of columns, an input a byte.
template <int kBits>
inline Words load_codes(const PanelCodes<kBits>& codes, int group, int64_t column) {
  if constexpr (kBits == 8) {
    return load_raw<Words>(codes.bytes[group][column]);
  } else {
    constexpr int kLow = kLowBits<kBits>;
    constexpr int kGroups = kBlockInputs * kLow / 32;
    constexpr uint32_t kLowMask = ((1U << kLow) - 1) * 0x01010101U;
    const auto packed = load_raw<Words>(codes.low[group % kGroups][column]);
    const Words low = (packed >> (group / kGroups * kLow)) & kLowMask;
    if constexpr (kBits == kLow) {
      return low;
    } else {
      constexpr int kHigh = kBits - kLow;
      constexpr uint32_t kMask = ((1U << kHigh) - 1) * 0x01010101U;
      const auto high = load_raw<Words>(codes.high[group * kHigh / 8] + column);
      return low | ((high >> (group * kHigh % 8)) & kMask) << kLow;
    }
  }
}

/// What codes of a vector of columns mean.
struct Meaning {
  Vec<float> scale;
  Vec<float> minimum;
};

/// Small integers of a vector of columns.
template <class Integer>
inline Ints load_integers(const Integer* from) {
  typedef Integer Narrow __attribute__((vector_size(Lanes<float>::kCount)));
  return __builtin_convertvector(load_raw<Narrow>(from), Ints);
}

inline Ints part_scales(const PartScales<2, true>& parts, int64_t part, int64_t column) {
  return load_integers(parts.both[part] + column) & 15;
}

inline Ints part_minima(const PartScales<2, true>& parts, int64_t part, int64_t column) {
  return load_integers(parts.both[part] + column) >> 4;
}

template <class Parts>
inline Ints part_scales(const Parts& parts, int64_t part, int64_t column) {
  return load_integers(parts.scales[part] + column);
}

template <class Parts>
inline Ints part_minima(const Parts& parts, int64_t part, int64_t column) {
  return load_integers(parts.minima[part] + column);
}

template <class Block>
inline Meaning computed_meaning(const Block& block, int64_t part, int64_t column) {
  Meaning meaning = {load_scales(block.scales + column), Vec<float>{}};
  if constexpr (Block::kHasZeros) {
    meaning.minimum = -meaning.scale * as_floats(load_integers(block.zeros + column));
  } else if constexpr (Block::kHasMinima) {
    meaning.minimum = load_scales(block.minima + column);
  }
  if constexpr (Block::kHasParts) {
    meaning.scale *= as_floats(part_scales(block.parts, part, column));
    if constexpr (Block::kHasMinima) {
      meaning.minimum *= -as_floats(part_minima(block.parts, part, column));
    }
  }
  return meaning;
}

/// Meaning of the codes of a block's inputs that share its scale number `part`. The products are
/// exact in float32.
template <class Block>
inline Meaning load_meaning(const Block& block, int64_t part, int64_t column) {
  if constexpr (Block::kHasCodebook) {
    return {load_scales(block.scales[part] + column), Vec<float>{}};
  } else {
    return computed_meaning(block, part, column);
  }
}

/// A table of 16 numbers, in registers where they are wide enough.
class Lookup {
 public:
  explicit Lookup(const float* numbers) {
    for (int i = 0; i < kTables; ++i) {
      tables_[i] = load(numbers + i * Lanes<float>::kCount);
    }
  }

  /// The numbers of codes 0 to 15.
  Vec<float> operator[](Words codes) const { return look_up(tables_, codes); }

 private:
  template <class V>
  static V look_up(const V* tables, Words codes) {
#if defined(__x86_64__)
    if constexpr (sizeof(V) == 64) {
      // The plain intrinsic makes GCC 12 warn, as above.
      return _mm512_maskz_permutexvar_ps(0xFFFF, same_bits<__m512i>(codes), tables[0]);
    } else if constexpr (sizeof(V) == 32) {
      const auto places = same_bits<__m256i>(codes);
      return _mm256_blendv_ps(_mm256_permutevar8x32_ps(tables[0], places),
                              _mm256_permutevar8x32_ps(tables[1], places),
                              same_bits<__m256>(codes << 28));
    }
#endif
    V numbers = {};
    for (int lane = 0; lane < Lanes<float>::kCount; ++lane) {
      numbers[lane] =
          tables[codes[lane] / Lanes<float>::kCount][codes[lane] % Lanes<float>::kCount];
    }
    return numbers;
  }

  static constexpr int kTables = 16 / Lanes<float>::kCount;
  Vec<float> tables_[kTables];
};
