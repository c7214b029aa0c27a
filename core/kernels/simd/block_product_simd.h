// Products with weights in blocks, of core/kernels/block_product.cpp; see
// core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/block_codes_simd.h"
#include "core/kernels/simd/quantize_simd.h"
#include "core/kernels/simd/quantized_product_simd.h"
#include "core/kernels/simd/tile_product_simd.h"

/// Number of rows whose sums the registers hold beside the meaning of the codes. More rows multiply
/// weights that were decoded before, once for all of them.
constexpr int kDecodingRows = std::min(kVectorBytes == 64   ? 12
                                       : kVectorBytes == 32 ? 4
                                                            : 2,
                                       kMostTileRows);

/// Eight bits of the format E4M3 in the low end of each lane. Shifted into place a number is 2^120
/// too small, subnormals included. NaNs are refused where weights are loaded.
inline Vec<float> widen_float8(Words bits) {
  const auto magnitude = same_bits<Vec<float>>((bits & 0x7FU) << 20) * 0x1p120F;
  return same_bits<Vec<float>>(same_bits<Words>(magnitude) | (bits & 0x80U) << 24);
}

/// What codes are looked up in, where they are.
struct NoLookup {
  explicit NoLookup(const float* /*numbers*/) {}
};
template <class Block>
using LookupOf = std::conditional_t<Block::kHasCodebook, Lookup, NoLookup>;

/// The weights of input number `place` of a group. An integer code times the scale is exact in
/// float32, a float code times it is rounded once.
template <class Block>
inline Vec<float> widen_codes(Words words, int place, const Meaning& meaning,
                              [[maybe_unused]] const LookupOf<Block>& numbers) {
  if constexpr (Block::kHasCodebook) {
    return numbers[(words >> (8 * place)) & 0x0FU] * meaning.scale;
  }
  if constexpr (Block::kIsFloat8) {
    return widen_float8((words >> (8 * place)) & 0xFFU) * meaning.scale;
  }
  const auto codes = same_bits<Ints>((words >> (8 * place)) & 0xFFU);
  const Vec<float> values = as_floats(codes - Block::kOffset);
  if constexpr (Block::kHasMinima) {
    return fused<float>(values, meaning.scale, meaning.minimum);
  }
  return values * meaning.scale;
}

/// R rows, all there are, by a panel's columns from `column` and kPanel / 2 + `column` on.
template <int R, class Block>
inline void block_tile(const BlockTask<Block>& task, int64_t panel, int64_t column) {
  const int64_t first = panel * kPanel + column;
  const LookupOf<Block> numbers(task.codebook);
  Vec<float> low[R] = {};
  Vec<float> high[R] = {};
  for (int64_t k = 0; k < task.in;) {
    const Block& block = task.weight[panel * task.blocks + k / Block::kInputs];
    const int64_t place_in_block = k % Block::kInputs;
    const auto& codes = block.codes[place_in_block / kBlockInputs];
    const int64_t part = place_in_block / Block::kScaleInputs;
    const Meaning low_meaning = load_meaning(block, part, column);
    const Meaning high_meaning = load_meaning(block, part, kPanel / 2 + column);
    const int64_t end = std::min(k + Block::kScaleInputs, task.in);
    for (int group = static_cast<int>(k % kBlockInputs / 4); k < end; ++group) {
      const Words low_codes = load_codes(codes, group, column);
      const Words high_codes = load_codes(codes, group, kPanel / 2 + column);
#pragma GCC unroll 4
      for (int place = 0; place < 4 && k < end; ++place, ++k) {
        const Vec<float> w_low = widen_codes<Block>(low_codes, place, low_meaning, numbers);
        const Vec<float> w_high = widen_codes<Block>(high_codes, place, high_meaning, numbers);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Vec<float> x = splat(task.input[r * task.in + k]);
          low[r] = fused<float>(w_low, x, low[r]);
          high[r] = fused<float>(w_high, x, high[r]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    float* out = task.out + r * task.out_stride + first;
    store_columns(out, low[r], task.out_size - first);
    store_columns(out + kPanel / 2, high[r], task.out_size - first - kPanel / 2);
  }
}

/// The weights of a panel's inputs begin to end, [inputs, kPanel].
template <class Block>
inline void decode_panel(const BlockTask<Block>& task, const Tile& tile, float* weights) {
  const Block* panel = task.weight + tile.panel * task.blocks;
  const LookupOf<Block> numbers(task.codebook);
  for (int64_t k = tile.begin; k < tile.end;) {
    const Block& block = panel[k / Block::kInputs];
    const int64_t place_in_block = k % Block::kInputs;
    const auto& codes = block.codes[place_in_block / kBlockInputs];
    const int64_t part = place_in_block / Block::kScaleInputs;
    const int64_t end = std::min(k + Block::kScaleInputs, tile.end);
    for (int64_t column = 0; column < kPanel; column += Lanes<float>::kCount) {
      const Meaning meaning = load_meaning(block, part, column);
      int64_t input = k;
      for (int group = static_cast<int>(k % kBlockInputs / 4); input < end; ++group) {
        const Words words = load_codes(codes, group, column);
#pragma GCC unroll 4
        for (int place = 0; place < 4 && input < end; ++place, ++input) {
          store(weights + (input - tile.begin) * kPanel + column,
                widen_codes<Block>(words, place, meaning, numbers));
        }
      }
    }
    k = end;
  }
}

/// All rows by a panel's decoded weights, [inputs, kPanel]. A function of its own, so that its
/// tiles are compiled once and not for each format.
__attribute__((noinline)) inline void multiply_decoded(const BlockRows& rows, const Tile& all,
                                                       const float* weights) {
  for_each_row_tile<kTileRows>(rows.nodes, all, [&]<int R>(const Tile& tile) {
    panels_tile<R, 1, float, float>({rows.input + tile.node * rows.in + tile.begin,
                                     rows.in,
                                     tile.end - tile.begin,
                                     {weights},
                                     {rows.out + tile.node * rows.out_stride + tile.panel * kPanel},
                                     rows.out_stride,
                                     {rows.out_size - tile.panel * kPanel},
                                     tile.begin > 0});
  });
}

/// Panels begin to end of all rows, by decoded weights.
template <class Block>
inline void decoded_columns(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  float weights[kInputBlock * kPanel];
  for (int64_t k = 0; k < task.in; k += kInputBlock) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const Tile all = {0, panel, k, std::min(k + kInputBlock, task.in)};
      decode_panel(task, all, weights);
      multiply_decoded(task, all, weights);
    }
  }
}

/// Panels begin to end of all rows.
template <class Block>
inline void block_columns(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  if (task.nodes > kDecodingRows) {
    decoded_columns(task, begin, end);
    return;
  }
  for (int64_t panel = begin; panel < end; ++panel) {
    with_rows<kDecodingRows>(task.nodes, {0, panel, 0, task.in}, [&]<int R>(const Tile& tile) {
      for (int64_t column = 0; column < kPanel / 2; column += Lanes<float>::kCount) {
        block_tile<R>(task, tile.panel, column);
      }
    });
  }
}
