// Loads, stores and sizes of tiles; see core/kernels/simd/attention_simd.h.
#include "core/kernels/simd/row_tiles_simd.h"

/// `count` lanes; a vector where that many are left.
template <class T>
inline Vec<T> load_lanes(const T* from, int64_t count) {
  return count >= Lanes<T>::kCount ? load(from) : load_part(from, count);
}

template <class T>
inline void store_lanes(T* to, Vec<T> numbers, int64_t count) {
  if (count >= Lanes<T>::kCount) {
    store(to, numbers);
  } else {
    store_part(to, numbers, count);
  }
}

/// A vector of as many bytes as a Vec<float> has numbers.
typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 4)));

/// Bits of as many halves as a Vec<float> has numbers.
typedef uint16_t HalfBits __attribute__((vector_size(kVectorBytes / 2)));

template <class V = Vec<float>>
inline V widen_halves(HalfBits halves) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 64) {
    // The plain intrinsic makes GCC 12 warn of a value that is not initialised.
    return _mm512_maskz_cvtph_ps(0xFFFF, load_raw<__m256i>(&halves));
  } else if constexpr (sizeof(V) == 32) {
    return _mm256_cvtph_ps(load_raw<__m128i>(&halves));
  }
#endif
  return widen_half(__builtin_convertvector(halves, typename Lanes<float>::Wide));
}

/// Four bits in the low end of each lane, two's complement.
inline Vec<float> signed_nibbles(typename Lanes<float>::Int bits) {
  return __builtin_convertvector((bits << 28) >> 28, Vec<float>);
}

/// A vector of the cache's numbers that lie beside each other, as the activations' type; of a
/// format with scales (kHasScales), before them.
template <class T>
inline Vec<T> load_cache(const T* from) {
  return load(from);
}

template <class T>
inline Vec<T> load_cache(const at::BFloat16* from) {
  using Wide = typename Lanes<float>::Wide;
  return same_bits<Vec<T>>(__builtin_convertvector(load_raw<HalfBits>(from), Wide) << 16);
}

template <class T>
inline Vec<T> load_cache(const at::Half* from) {
  return widen_halves(load_raw<HalfBits>(from));
}

/// Loads E4M3 codes by way of halves, which are 2^8 too small then, subnormals included. A NaN
/// comes out as more than the largest number.
template <class T>
inline Vec<T> load_cache(const Fp8Code* from) {
  const HalfBits bits = __builtin_convertvector(load_raw<Bytes>(from), HalfBits);
  const Vec<T> numbers = widen_halves((bits & 0x7F) << 7 | (bits & 0x80) << 8) * 256.0F;
  const Vec<T> magnitude = maximum<T>(numbers, -numbers);
  return magnitude > 448.0F ? splat(std::numeric_limits<T>::quiet_NaN()) : numbers;
}

// Integers are widened by a factor of two at a time: GCC 12 converts others lane by lane.

template <class T>
inline Vec<T> load_cache(const Q8Code* from) {
  typedef int8_t Codes __attribute__((vector_size(kVectorBytes / 4)));
  typedef int16_t Shorts __attribute__((vector_size(kVectorBytes / 2)));
  const Shorts codes = __builtin_convertvector(load_raw<Codes>(from), Shorts);
  return __builtin_convertvector(__builtin_convertvector(codes, typename Lanes<T>::Int), Vec<T>);
}

/// Loads both codes of each element of a value, each into the low four bits of a lane.
template <class T>
inline typename Lanes<T>::Int load_pairs(const void* from) {
  typedef uint8_t Pairs __attribute__((vector_size(kVectorBytes / 8)));
  typedef uint16_t Shorts __attribute__((vector_size(kVectorBytes / 4)));
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes / 2)));
  typedef uint64_t Longs __attribute__((vector_size(kVectorBytes)));
  const Shorts shorts = __builtin_convertvector(load_raw<Pairs>(from), Shorts);
  const Longs pairs = __builtin_convertvector(__builtin_convertvector(shorts, Words), Longs);
  return same_bits<typename Lanes<T>::Int>(pairs | pairs << 28);
}

/// Loads the codes of load_pairs as signed numbers.
template <class T>
inline Vec<T> load_nibbles(const void* from) {
  return signed_nibbles(load_pairs<T>(from));
}

template <class T>
inline Vec<T> load_cache(const Q4Codes* from) {
  return load_nibbles<T>(from);
}

template <class T>
inline Vec<T> load_cache(const HalfCodes* from) {
  return load_nibbles<T>(from);
}

/// Loads the codes of each element of a value, as numbers.
template <class T>
inline Vec<T> load_cache(const Kivi2Codes* from) {
  typename Lanes<T>::Int shifts = {};
#pragma GCC unroll 16
  for (int lane = 0; lane < Lanes<T>::kCount; ++lane) {
    shifts[lane] = 2 * lane;
  }
  uint32_t codes = 0;
  std::memcpy(&codes, from, Lanes<T>::kCount / 4);
  const typename Lanes<T>::Int all = static_cast<int32_t>(codes) - typename Lanes<T>::Int{};
  return __builtin_convertvector((all >> shifts) & 3, Vec<T>);
}

template <class T>
inline Vec<T> load_cache(const Kivi4Codes* from) {
  return __builtin_convertvector(load_pairs<T>(from) & 15, Vec<T>);
}

/// What codes of kQ3 mean, in a register where one can be looked up in.
template <class V = Vec<float>>
inline V levels_of(typename Lanes<float>::Int codes, const float* levels) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 64) {
    const __m512 table = _mm512_castpd_ps(
        _mm512_maskz_broadcast_f64x4(0xFF, _mm256_castps_pd(load_raw<__m256>(levels))));
    return _mm512_maskz_permutexvar_ps(0xFFFF, same_bits<__m512i>(codes), table);
  } else if constexpr (sizeof(V) == 32) {
    return _mm256_permutevar8x32_ps(load_raw<__m256>(levels), same_bits<__m256i>(codes));
  }
#endif
  const auto either = [&](int code) {
    return (codes & 1) != 0 ? splat(levels[code + 1]) : splat(levels[code]);
  };
  const Vec<float> low = (codes & 2) != 0 ? either(2) : either(0);
  const Vec<float> high = (codes & 2) != 0 ? either(6) : either(4);
  return (codes & 4) != 0 ? high : low;
}

/// Loads a value's numbers, from number `first` of the block at `from` on.
template <class T>
inline Vec<T> load_levels(const Q3Codes* from, int64_t first, const float* levels) {
  using Int = typename Lanes<T>::Int;
  Int blocks = {};
  Int places = {};
#pragma GCC unroll 16
  for (int lane = 0; lane < Lanes<T>::kCount; ++lane) {
    const Q3Codes* block = from + lane / kQ3Block * 3;
    blocks[lane] = block[0].bits | block[1].bits << 8 | block[2].bits << 16;
    places[lane] = lane % kQ3Block;
  }
  places += static_cast<int32_t>(first);
  return levels_of((blocks >> (places * 2) & 3) | (blocks >> (places + 16) & 1) << 2, levels);
}

/// Bits of a code that lies between two numbers; 0 = of another format.
template <class Kv>
constexpr int kRangedBits = std::is_same_v<Kv, Kivi2Codes>   ? 2
                            : std::is_same_v<Kv, Kivi4Codes> ? 4
                                                             : 0;
template <class Kv>
constexpr bool kIsRanged = kRangedBits<Kv> != 0;
template <class Kv>
constexpr bool kHasScales = sizeof(Kv) == 1 && !std::is_same_v<Kv, Fp8Code> && !kIsRanged<Kv>;
/// What the scales in pages are multiplied with.
template <class Kv>
constexpr float kScaleUnit = std::is_same_v<Kv, HalfCodes> ? 0x1p-4F : 1.0F;

/// Elements of so many numbers, before their scales: of kHierarchical their upper halves.
template <class Kv>
inline int64_t elements_of(int64_t numbers) {
  if constexpr (std::is_same_v<Kv, Q3Codes>) {
    return numbers / kQ3Block * 3;
  } else if constexpr (kIsRanged<Kv>) {
    return numbers * kRangedBits<Kv> / 8;
  } else {
    return std::is_same_v<Kv, Q4Codes> || std::is_same_v<Kv, HalfCodes> ? numbers / 2 : numbers;
  }
}

/// Distance, in elements, from an upper half of kHierarchical to the lower half of the same
/// numbers.
inline int64_t lower_half_offset(int64_t head_dim) {
  return head_dim / 2 + (head_dim + kKvGroup - 1) / kKvGroup * 2;
}

/// `count` elements, fewer than a vector's, and zeros behind them.
template <class T, class Kv>
struct PartOfVector {
  PartOfVector(const Kv* from, int64_t count) { std::copy(from, from + count, elements); }
  Kv elements[Lanes<T>::kCount] = {};
};

/// Rows and vectors of a tile of sums: as many as the registers hold.
constexpr int kRows = 6;
constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
