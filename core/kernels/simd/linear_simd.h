// The matrix product of core/kernels/linear.cpp; see core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/row_tiles_simd.h"

/// Output columns of a panel that a tile computes are two vectors: lanes from `column` on in each
/// of the panel's halves.
template <class T>
struct WeightPair {
  Vec<T> low, high;
};

template <class T>
inline WeightPair<T> load_pair(const T* weights, int64_t column) {
  return {load(weights + column), load(weights + kPanel / 2 + column)};
}

/// 16-bit formats: a word holds columns j (its low half) and j + 16.
inline WeightPair<float> load_pair(const Bf16* weights, int64_t column) {
  using Wide = typename Lanes<float>::Wide;
  const auto words = load_raw<Wide>(weights + 2 * column);
  return {same_bits<Vec<float>>(words << 16), same_bits<Vec<float>>(words & 0xFFFF0000U)};
}

inline WeightPair<float> load_pair(const Fp16* weights, int64_t column) {
  using Wide = typename Lanes<float>::Wide;
  const auto words = load_raw<Wide>(weights + 2 * column);
  return {widen_half(words & 0xFFFFU), widen_half(words >> 16)};
}

/// R rows by two vectors of columns in each of P panels. Between calls for successive inputs the
/// sums wait in `out`, which rounds nothing.
template <int R, int P, class T, class Weight>
inline void linear_tile(const LinearTask<T, Weight>& task, const Tile& tile, int64_t column) {
  const T* input = task.input + tile.node * task.in;
  const Weight* weights[P];
  T* out[P];
  int64_t left[P];
  Vec<T> low[R][P] = {};
  Vec<T> high[R][P] = {};
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const int64_t first = (tile.panel + p) * kPanel + column;
    weights[p] = task.weight + (tile.panel + p) * kPanel * task.in;
    out[p] = task.out + tile.node * task.out_stride + first;
    left[p] = task.out_size - first;
    if (tile.begin > 0) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        low[r][p] = load_columns(out[p] + r * task.out_stride, left[p]);
        high[r][p] = load_columns(out[p] + r * task.out_stride + kPanel / 2, left[p] - kPanel / 2);
      }
    }
  }
  for (int64_t k = tile.begin; k < tile.end; ++k) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const WeightPair<T> w = load_pair(weights[p] + k * kPanel, column);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec<T> x = splat(input[r * task.in + k]);
        low[r][p] = fused<T>(w.low, x, low[r][p]);
        high[r][p] = fused<T>(w.high, x, high[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      store_columns(out[p] + r * task.out_stride, low[r][p], left[p]);
      store_columns(out[p] + r * task.out_stride + kPanel / 2, high[r][p], left[p] - kPanel / 2);
    }
  }
}

/// All columns of P panels.
template <int R, int P, class T, class Weight>
inline void linear_panels(const LinearTask<T, Weight>& task, const Tile& tile) {
  for (int64_t column = 0; column < kPanel / 2; column += Lanes<T>::kCount) {
    linear_tile<R, P>(task, tile, column);
  }
}

/// Panels begin to end of all rows.
template <class T, class Weight>
inline void linear_columns(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  if (task.nodes == 1) {
    int64_t panel = begin;
    for (; panel + 2 <= end; panel += 2) {  // two chains of additions hide each other's latency
      linear_panels<1, 2>(task, {0, panel, 0, task.in});
    }
    for (; panel < end; ++panel) {
      linear_panels<1, 1>(task, {0, panel, 0, task.in});
    }
    return;
  }
  for_each_tile<kTileRows>(task.nodes, task.in, begin, end,
                           [&]<int R>(const Tile& tile) { linear_panels<R, 1>(task, tile); });
}
