// Products with weights in blocks, of core/kernels/block_product.cpp; see
// core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/block_codes_simd.h"
#include "core/kernels/simd/quantize_simd.h"
#include "core/kernels/simd/quantized_product_simd.h"

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
