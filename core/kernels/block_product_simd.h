// Products with weights in blocks, of core/kernels/block_product.cpp; see
// core/kernels/for_each_simd.h.

#include "core/kernels/row_tiles_simd.h"

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

/// Codes of inputs 4 * group to 4 * group + 3 of a vector of columns, an input a byte.
template <int kBits>
inline Words load_codes(const PanelCodes<kBits>& codes, int group, int64_t column) {
  if constexpr (kBits == 8) {
    return load_raw<Words>(codes.bytes[group][column]);
  } else {
    constexpr int kGroups = kBlockInputs / 8;
    const auto pairs = load_raw<Words>(codes.low[group % kGroups][column]);
    const Words low = (group < kGroups ? pairs : pairs >> 4) & 0x0F0F0F0FU;
    if constexpr (kBits == 4) {
      return low;
    } else {
      constexpr int kHigh = kBits - 4;
      constexpr uint32_t kMask = ((1U << kHigh) - 1) * 0x01010101U;
      const auto high = load_raw<Words>(codes.high[group * kHigh / 8] + column);
      return low | ((high >> (group * kHigh % 8)) & kMask) << 4;
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
inline Vec<float> load_integers(const Integer* from) {
  typedef Integer Narrow __attribute__((vector_size(Lanes<float>::kCount)));
  return as_floats(__builtin_convertvector(load_raw<Narrow>(from), Ints));
}

/// Of the inputs of a block that share its scale number `part`. The products are exact in float32.
template <class Block>
inline Meaning load_meaning(const Block& block, int64_t part, int64_t column) {
  Meaning meaning = {load_scales(block.scales + column), Vec<float>{}};
  if constexpr (Block::kHasMinima) {
    meaning.minimum = load_scales(block.minima + column);
  }
  if constexpr (Block::kHasParts) {
    meaning.scale *= load_integers(block.parts.scales[part] + column);
    if constexpr (Block::kHasMinima) {
      meaning.minimum *= -load_integers(block.parts.minima[part] + column);
    }
  }
  return meaning;
}

// ---- float32 activations ----

/// The weights of input number `place` of a group. The code times the scale is exact in float32.
template <class Block>
inline Vec<float> widen_codes(Words words, int place, const Meaning& meaning) {
  const auto codes = same_bits<Ints>((words >> (8 * place)) & 0xFFU);
  const Vec<float> values = as_floats(codes - Block::kOffset);
  if constexpr (Block::kHasMinima) {
    return fused<float>(values, meaning.scale, meaning.minimum);
  }
  return values * meaning.scale;
}

/// R rows by a panel's columns from `column` and kPanel / 2 + `column` on.
template <int R, class Block>
inline void block_tile(const BlockTask<Block>& task, const Tile& tile, int64_t column) {
  const int64_t in = task.in;
  const float* input = task.input + tile.node * in;
  const int64_t first = tile.panel * kPanel + column;
  float* out = task.out + tile.node * task.out_stride + first;
  const int64_t left = task.out_size - first;
  const Block* panel = task.weight + tile.panel * task.blocks;
  Vec<float> low[R] = {};
  Vec<float> high[R] = {};
  if (tile.begin > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      low[r] = load_columns(out + r * task.out_stride, left);
      high[r] = load_columns(out + r * task.out_stride + kPanel / 2, left - kPanel / 2);
    }
  }
  for (int64_t k = tile.begin; k < tile.end;) {
    const Block& block = panel[k / Block::kInputs];
    const int64_t place_in_block = k % Block::kInputs;
    const auto& codes = block.codes[place_in_block / kBlockInputs];
    const int64_t part = place_in_block / Block::kScaleInputs;
    const Meaning low_meaning = load_meaning(block, part, column);
    const Meaning high_meaning = load_meaning(block, part, kPanel / 2 + column);
    const int64_t end = std::min(k + Block::kScaleInputs, tile.end);
    for (int group = static_cast<int>(k % kBlockInputs / 4); k < end; ++group) {
      const Words low_codes = load_codes(codes, group, column);
      const Words high_codes = load_codes(codes, group, kPanel / 2 + column);
#pragma GCC unroll 4
      for (int place = 0; place < 4 && k < end; ++place, ++k) {
        const Vec<float> w_low = widen_codes<Block>(low_codes, place, low_meaning);
        const Vec<float> w_high = widen_codes<Block>(high_codes, place, high_meaning);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Vec<float> x = splat(input[r * in + k]);
          low[r] = fused<float>(w_low, x, low[r]);
          high[r] = fused<float>(w_high, x, high[r]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    store_columns(out + r * task.out_stride, low[r], left);
    store_columns(out + r * task.out_stride + kPanel / 2, high[r], left - kPanel / 2);
  }
}

template <class Block>
inline void block_columns(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  for_each_tile<kTileRows>(task.nodes, task.in, begin, end, [&]<int R>(const Tile& tile) {
    for (int64_t column = 0; column < kPanel / 2; column += Lanes<float>::kCount) {
      block_tile<R>(task, tile, column);
    }
  });
}

// ---- int8 activations ----

/// Vectors of 16-bit integers.
typedef int16_t Halves __attribute__((vector_size(kVectorBytes)));

#if defined(__x86_64__)
/// In each lane the products of two signed 16-bit halves, summed.
template <class V, class W>
inline Ints dot_halves(V a, W b) {
  if constexpr (sizeof(V) == 64) {
    return same_bits<Ints>(_mm512_madd_epi16(same_bits<__m512i>(a), same_bits<__m512i>(b)));
  } else {
    return same_bits<Ints>(_mm256_madd_epi16(same_bits<__m256i>(a), same_bits<__m256i>(b)));
  }
}

/// In each half the products of two unsigned bytes of `codes` with two signed ones of `x`, summed;
/// the sum has to fit.
template <class V>
inline Halves dot_byte_pairs(V codes, V x) {
  if constexpr (sizeof(V) == 64) {
    return same_bits<Halves>(
        _mm512_maddubs_epi16(same_bits<__m512i>(codes), same_bits<__m512i>(x)));
  } else {
    return same_bits<Halves>(
        _mm256_maddubs_epi16(same_bits<__m256i>(codes), same_bits<__m256i>(x)));
  }
}
#endif

/// How many products of pairs of codes of kBits bits with inputs (at most 127) a sum of 16 bits
/// holds.
template <int kBits>
constexpr int kPairsInHalves = INT16_MAX / (2 * ((1 << kBits) - 1) * 127);

constexpr bool kHasDotBytes = kDotProducts && kVectorBytes == 64;
/// Whether products are summed in 16 bits first, four times as many in an instruction.
template <int kBits>
constexpr bool kSumsHalves = !kHasDotBytes && kVectorBytes > 16 && kPairsInHalves<kBits> > 0;
/// Whether codes are multiplied with their offset taken off: then magnitudes are multiplied, and
/// inputs take the codes' signs.
template <int kBits>
constexpr bool kSignsCodes = kVectorBytes == 32 && kBits == 8;

/// sums + in each lane the products of the four codes of `codes` with the four signed bytes of `x`.
template <int kBits>
inline Ints dot_bytes(Ints sums, Words codes, Words x) {
#if defined(__x86_64__)
  if constexpr (kHasDotBytes) {
    return same_bits<Ints>(_mm512_dpbusd_epi32(same_bits<__m512i>(sums), same_bits<__m512i>(codes),
                                               same_bits<__m512i>(x)));
  } else if constexpr (kSignsCodes<kBits>) {
    const auto weights = same_bits<__m256i>(codes ^ 0x80808080U);
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    const __m256i inputs = _mm256_sign_epi8(same_bits<__m256i>(x), weights);
    return sums + dot_halves(dot_byte_pairs(magnitudes, inputs), Halves{} + 1);
  } else if constexpr (kVectorBytes > 16) {
    const auto even = same_bits<Halves>(x << 8) >> 8;
    const auto odd = same_bits<Halves>(x) >> 8;
    return sums + dot_halves(codes & 0x00FF00FFU, even) +
           dot_halves((codes >> 8) & 0x00FF00FFU, odd);
  }
#endif
#pragma GCC unroll 4
  for (int place = 0; place < 4; ++place) {
    sums += same_bits<Ints>((codes >> (8 * place)) & 0xFFU) *
            (same_bits<Ints>(x << (24 - 8 * place)) >> 24);
  }
  return sums;
}

/// Calls add(r, c, codes, x) for the groups begin to end of R rows and C vectors of columns: codes
/// of a group, and the row's inputs in every lane.
template <int R, int C, int kBits, class Add>
inline void for_each_group(const PanelCodes<kBits>& codes, int64_t column,
                           const QuantizedBlock* input, int begin, int end, const Add& add) {
#pragma GCC unroll 8
  for (int group = begin; group < end; ++group) {
    Words words[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      words[c] = load_codes(codes, group, column + c * Lanes<float>::kCount);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Words x = Words{} + input[r].words[group];
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        add(r, c, words[c], x);
      }
    }
  }
}

/// Adds the products of the groups begin to end to `dots`.
template <int R, int C, int kBits>
inline void add_products(const PanelCodes<kBits>& codes, int64_t column,
                         const QuantizedBlock* input, int begin, int end, Ints (&dots)[R][C]) {
#if defined(__x86_64__)
  if constexpr (kSumsHalves<kBits>) {
    constexpr int kStep = std::min(kPairsInHalves<kBits>, 8);
    const Halves ones = Halves{} + 1;
#pragma GCC unroll 4
    for (int group = begin; group < end; group += kStep) {
      Halves halves[R][C] = {};
      for_each_group<R, C>(
          codes, column, input, group, std::min(group + kStep, end),
          [&](int r, int c, Words w, Words x) { halves[r][c] += dot_byte_pairs(w, x); });
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          dots[r][c] += dot_halves(halves[r][c], ones);
        }
      }
    }
    return;
  }
#endif
  for_each_group<R, C>(codes, column, input, begin, end, [&](int r, int c, Words w, Words x) {
    dots[r][c] = dot_bytes<kBits>(dots[r][c], w, x);
  });
}

/// R rows by two vectors of a panel's columns from `column` on.
template <int R, class Block>
inline void quantized_tile(const BlockTask<Block>& task, const Tile& tile, int64_t column) {
  constexpr int C = 2;
  constexpr int64_t kCount = Lanes<float>::kCount;
  constexpr int kScales = static_cast<int>(kBlockInputs / Block::kScaleInputs);
  constexpr int kGroups = static_cast<int>(Block::kScaleInputs / 4);
  const int64_t first = tile.panel * kPanel + column;
  float* out = task.out + tile.node * task.out_stride + first;
  const int64_t left = task.out_size - first;
  const int64_t end = (tile.end + kBlockInputs - 1) / kBlockInputs;
  const Block* panel = task.weight + tile.panel * task.blocks;
  Vec<float> sums[R][C] = {};
  if (tile.begin > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        sums[r][c] = load_columns(out + r * task.out_stride + c * kCount, left - c * kCount);
      }
    }
  }
  for (int64_t b = tile.begin / kBlockInputs; b < end; ++b) {
    constexpr int64_t kRuns = Block::kInputs / kBlockInputs;
    const Block& block = panel[b / kRuns];
    const QuantizedBlock* input = task.quantized + b * task.nodes + tile.node;
    if (task.nodes >= kRowsReadAhead && tile.node == 0 && column == 0) {
      constexpr int64_t kRunBytes = sizeof(Block) / kRuns;
      read_ahead(reinterpret_cast<const char*>(panel) + b * kRunBytes, kRunBytes);
    }
#pragma GCC unroll 2
    for (int part = 0; part < kScales; ++part) {
      Ints dots[R][C];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          dots[r][c] = Ints{} + (kSignsCodes<Block::kCodeBits> ? 0 : input[r].starts[part]);
        }
      }
      add_products<R, C>(block.codes[b % kRuns], column, input, part * kGroups,
                         (part + 1) * kGroups, dots);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        const Meaning meaning =
            load_meaning(block, b % kRuns * kScales + part, column + c * kCount);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Vec<float> both = meaning.scale * input[r].scale;
          sums[r][c] = fused<float>(as_floats(dots[r][c]), both, sums[r][c]);
          if constexpr (Block::kHasMinima) {
            sums[r][c] = fused<float>(meaning.minimum, splat(input[r].scaled_sum), sums[r][c]);
          }
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      store_columns(out + r * task.out_stride + c * kCount, sums[r][c], left - c * kCount);
    }
  }
}

template <class Block>
inline void quantized_columns(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  const auto run = [&]<int R>(const Tile& tile) {
    for (int64_t column = 0; column < kPanel; column += 2 * Lanes<float>::kCount) {
      quantized_tile<R>(task, tile, column);
    }
  };
  // Fewer rows leave room for the sums in registers. Where all rows fit in one tile, weights that
  // come from memory are worth more than that.
  constexpr int kFewerRows = std::max(4, kTileRows / 2);
  if (task.nodes <= kTileRows) {
    for_each_tile<kTileRows>(task.nodes, task.in, begin, end, run);
  } else {
    for_each_tile<kFewerRows>(task.nodes, task.in, begin, end, run);
  }
}

/// The lanes turned by kBy places.
template <int kBy, class V, size_t... kLane>
inline V turned(V x, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(x, x, (kLane + kBy) % sizeof...(kLane)...);
}

/// Every lane becomes the largest of all.
template <int kHalf = Lanes<float>::kCount / 2>
inline Vec<float> largest_lane(Vec<float> x) {
  x = maximum<float>(x, turned<kHalf>(x, std::make_index_sequence<Lanes<float>::kCount>()));
  if constexpr (kHalf > 1) {
    return largest_lane<kHalf / 2>(x);
  }
  return x;
}

/// Every lane becomes the sum of all.
template <int kHalf = Lanes<float>::kCount / 2, class V>
inline V sum_of_lanes(V x) {
  x += turned<kHalf>(x, std::make_index_sequence<Lanes<float>::kCount>());
  if constexpr (kHalf > 1) {
    return sum_of_lanes<kHalf / 2>(x);
  }
  return x;
}

/// Up to a block of inputs, the rest of it zero. A value that is not a number makes the scale one
/// that is not.
inline void quantize_block(const float* input, int64_t count, const CodeSums& wanted,
                           QuantizedBlock& to) {
  constexpr int kCount = Lanes<float>::kCount;
  constexpr int kVectors = kBlockInputs / kCount;
  typedef int8_t Bytes __attribute__((vector_size(kCount)));
  float padded[kBlockInputs] = {};
  if (count < kBlockInputs) {
    std::memcpy(padded, input, static_cast<size_t>(count) * sizeof(float));
    input = padded;
  }
  Vec<float> largest = {};
  Vec<float> faults = {};
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const Vec<float> x = load(input + i * kCount);
    largest = maximum<float>(maximum<float>(x, -x), largest);
    faults += x - x;
  }
  const float top = largest_lane(largest)[0];
  constexpr float kSmallest = 1e-30F;  // the inverse of less may be infinite
  const float inverse = top < kSmallest ? 0.0F : 127.0F / top;
  to.scale = top / 127.0F + sum_of_lanes(faults)[0];
  Ints totals[2] = {};  // of the halves
  auto* bytes = reinterpret_cast<int8_t*>(to.words);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const Vec<float> x = load(input + i * kCount);
    const Vec<float> shifted =
        fused<float>(x, splat(inverse), splat(Lanes<float>::kRound));  // rounds to an integer
    const Ints values = same_bits<Ints>(shifted) - same_bits<Ints>(splat(Lanes<float>::kRound));
    const Bytes narrow = __builtin_convertvector(values, Bytes);
    std::memcpy(bytes + i * kCount, &narrow, sizeof narrow);
    totals[2 * i / kVectors] += __builtin_convertvector(narrow, Ints);
  }
  const int32_t sum = sum_of_lanes(totals[0] + totals[1])[0];
  const int32_t first = wanted.in_halves ? sum_of_lanes(totals[0])[0] : sum;
  to.scaled_sum = static_cast<float>(sum) * to.scale;
  to.starts[0] = -wanted.offset * first;
  to.starts[1] = -wanted.offset * (sum - first);
}

inline void quantize_rows(const float* input, int64_t nodes, int64_t in, const CodeSums& wanted,
                          QuantizedBlock* to) {
  for (int64_t k = 0; k < in; k += kBlockInputs) {
    for (int64_t node = 0; node < nodes; ++node) {
      quantize_block(input + node * in + k, std::min(kBlockInputs, in - k), wanted, *to++);
    }
  }
}
