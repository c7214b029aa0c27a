// Products of weights in blocks with inputs as integers; included inside a namespace by
// block_product_simd.h; see core/kernels/simd/for_each_simd.h.

/// Vectors of 16-bit integers.
typedef int16_t Halves __attribute__((vector_size(kVectorBytes)));

#if defined(__x86_64__)
/// Sums, in each lane, of the products of two signed 16-bit halves.
template <class V, class W>
inline Ints dot_halves(V a, W b) {
  return same_bits<Ints>(_mm256_madd_epi16(same_bits<__m256i>(a), same_bits<__m256i>(b)));
}

/// Sums, in each half, of the products of two unsigned bytes of `codes` with two signed ones of
/// `x`; the sum has to fit.
template <class V>
inline Halves dot_byte_pairs(V codes, V x) {
  return same_bits<Halves>(_mm256_maddubs_epi16(same_bits<__m256i>(codes), same_bits<__m256i>(x)));
}
#endif

/// How many products of pairs of codes of kBits bits with inputs (at most 127) a sum of 16 bits
/// holds.
template <int kBits>
constexpr int kPairsInHalves = INT16_MAX / (2 * ((1 << kBits) - 1) * 127);

/// Whether products are summed in 16 bits first, four times as many in an instruction.
template <int kBits>
constexpr bool kSumsHalves = kVectorBytes == 32 && kPairsInHalves<kBits> > 0;

/// sums + in each lane the products of the four codes of `codes` with the four signed bytes of `x`.
template <int kBits>
inline Ints dot_bytes(Ints sums, Words codes, Words x) {
#if defined(__x86_64__)
  if constexpr (kDotProducts) {
    return same_bits<Ints>(_mm512_dpbusd_epi32(same_bits<__m512i>(sums), same_bits<__m512i>(codes),
                                               same_bits<__m512i>(x)));
  } else if constexpr (kSignsBytes && kBits == 8) {
    const auto weights = same_bits<__m256i>(codes ^ 0x80808080U);
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    const __m256i inputs = _mm256_sign_epi8(same_bits<__m256i>(x), weights);
    return sums + dot_halves(dot_byte_pairs(magnitudes, inputs), Halves{} + 1);
  }
#endif
#pragma GCC unroll 4
  for (int place = 0; place < 4; ++place) {
    sums += same_bits<Ints>((codes >> (8 * place)) & 0xFFU) *
            (same_bits<Ints>(x << (24 - 8 * place)) >> 24);
  }
  return sums;
}

/// Groups of a block that a loop unrolls, so that the place of each group's codes is known.
constexpr int kGroupsUnrolled = kVectorBytes > 16 ? 8 : 2;

/// Calls add(r, c, codes, x) for the groups begin to end of R rows and C vectors of columns: codes
/// of a group, and the row's inputs in every lane.
template <int R, int C, int kBits, class Add>
inline void for_each_group(const PanelCodes<kBits>& codes, int64_t column,
                           const QuantizedBlock* input, int begin, int end, const Add& add) {
#pragma GCC unroll kGroupsUnrolled
  for (int group = begin; group < end; ++group) {
    Words words[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      words[c] = load_codes(codes, group, column + int64_t{c} * Lanes<float>::kCount);
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

/// Adds the products with a block's codes that share scales, its part `part`, to `sums`.
template <int R, int C, class Block>
inline void add_scaled(const Block& block, int64_t part, int64_t column,
                       const QuantizedBlock* input, const Ints (&dots)[R][C],
                       Vec<float> (&sums)[R][C]) {
  [[maybe_unused]] const int64_t half = part % (kBlockInputs / Block::kScaleInputs);
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) {
    const Meaning meaning = load_meaning(block, part, column + int64_t{c} * Lanes<float>::kCount);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec<float> both = meaning.scale * input[r].scale;
      sums[r][c] = fused<float>(as_floats(dots[r][c]), both, sums[r][c]);
      if constexpr (Block::kHasMinima) {
        sums[r][c] = fused<float>(meaning.minimum, splat(input[r].scaled_sums[half]), sums[r][c]);
      }
    }
  }
}

/// R rows by two vectors of a panel's columns from `column` on.
template <int R, class Block>
inline void quantized_tile(const BlockTask<Block>& task, const Tile& tile, int64_t column) {
  constexpr int kVectors = 2;
  constexpr int64_t kCount = Lanes<float>::kCount;
  constexpr int kScales = static_cast<int>(kBlockInputs / Block::kScaleInputs);
  constexpr int kGroups = static_cast<int>(Block::kScaleInputs / 4);
  const int64_t first = tile.panel * kPanel + column;
  float* out = task.out + tile.node * task.out_stride + first;
  const int64_t left = task.out_size - first;
  const int64_t end = (tile.end + kBlockInputs - 1) / kBlockInputs;
  const Block* panel = task.weight + tile.panel * task.blocks;
  Vec<float> sums[R][kVectors] = {};
  if (tile.begin > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kVectors; ++c) {
        sums[r][c] = load_columns(out + r * task.out_stride + c * kCount, left - c * kCount);
      }
    }
  }
  for (int64_t b = tile.begin / kBlockInputs; b < end; ++b) {
    constexpr int64_t kRuns = Block::kInputs / kBlockInputs;
    const Block& block = panel[b / kRuns];
    const QuantizedBlock* input = task.quantized + b * task.nodes + tile.node;
    if (task.reads_ahead && tile.node == 0 && column == 0) {
      constexpr int64_t kRunBytes = sizeof(Block) / kRuns;
      read_ahead(reinterpret_cast<const char*>(panel) + b * kRunBytes, kRunBytes);
    }
#pragma GCC unroll 2
    for (int part = 0; part < kScales; ++part) {
      Ints dots[R][kVectors];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int c = 0; c < kVectors; ++c) {
          dots[r][c] = Ints{} + input[r].starts[part];
        }
      }
      add_products<R, kVectors>(block.codes[b % kRuns], column, input, part * kGroups,
                                (part + 1) * kGroups, dots);
      add_scaled(block, b % kRuns * kScales + part, column, input, dots, sums);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) {
      store_columns(out + r * task.out_stride + c * kCount, sums[r][c], left - c * kCount);
    }
  }
}

template <class Block>
inline void quantized_columns(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  const auto run = [&]<int R>(const Tile& tile) {
    for (int64_t column = 0; column < kPanel; column += int64_t{2} * Lanes<float>::kCount) {
      quantized_tile<R>(task, tile, column);
    }
  };
  // Fewer rows leave room for the sums in registers. Where all rows fit in one tile, weights that
  // come from memory are worth more than that.
  constexpr int kFewerRows = std::min(std::max(4, kTileRows / 2), kTileRows);
  if (task.nodes <= kTileRows) {
    for_each_tile<kTileRows>(task.nodes, task.in, begin, end, run);
  } else {
    for_each_tile<kFewerRows>(task.nodes, task.in, begin, end, run);
  }
}
