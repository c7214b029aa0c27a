// The matrix product of core/kernels/linear.cpp; see core/kernels/for_each_simd.h.

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

/// A half's bits in the low end of each lane. Shifted into place a half is 2^112 too small,
/// subnormals included; infinities and NaNs need the largest exponent again.
inline Vec<float> widen_half(typename Lanes<float>::Wide half) {
  using Wide = typename Lanes<float>::Wide;
  const auto scaled = same_bits<Vec<float>>((half & 0x7FFFU) << 13) * 0x1p112F;
  const auto special = same_bits<Wide>((half & 0x7C00U) == 0x7C00U) & 0x7F800000U;
  return same_bits<Vec<float>>(same_bits<Wide>(scaled) | special | ((half & 0x8000U) << 16));
}

inline WeightPair<float> load_pair(const Fp16* weights, int64_t column) {
  using Wide = typename Lanes<float>::Wide;
  const auto words = load_raw<Wide>(weights + 2 * column);
  return {widen_half(words & 0xFFFFU), widen_half(words >> 16)};
}

/// Where a tile works: rows of input and out from `node` on, a panel, inputs begin to end.
struct Tile {
  int64_t node;
  int64_t panel;
  int64_t begin, end;
  int64_t column;
};

/// The columns of a row that a vector holds; the last panel may hold fewer than a vector.
template <class T>
inline Vec<T> load_columns(const T* from, int64_t columns) {
  return columns >= Lanes<T>::kCount ? load(from) : load_part(from, std::max<int64_t>(0, columns));
}

template <class T>
inline void store_columns(T* to, Vec<T> sums, int64_t columns) {
  if (columns >= Lanes<T>::kCount) {
    store(to, sums);
  } else if (columns > 0) {
    store_part(to, sums, columns);
  }
}

/// R rows by two vectors of columns in each of P panels. Between calls for successive inputs the
/// sums wait in `out`, which rounds nothing.
template <int R, int P, class T, class Weight>
inline void linear_tile(const LinearTask<T, Weight>& task, const Tile& tile) {
  const T* input = task.input + tile.node * task.in;
  const Weight* weights[P];
  T* out[P];
  int64_t left[P];
  Vec<T> low[R][P] = {};
  Vec<T> high[R][P] = {};
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const int64_t first = (tile.panel + p) * kPanel + tile.column;
    weights[p] = task.weight + (tile.panel + p) * kPanel * task.in;
    out[p] = task.out + tile.node * task.out_size + first;
    left[p] = task.out_size - first;
    if (tile.begin > 0) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        low[r][p] = load_columns(out[p] + r * task.out_size, left[p]);
        high[r][p] = load_columns(out[p] + r * task.out_size + kPanel / 2, left[p] - kPanel / 2);
      }
    }
  }
  for (int64_t k = tile.begin; k < tile.end; ++k) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const WeightPair<T> w = load_pair(weights[p] + k * kPanel, tile.column);
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
      store_columns(out[p] + r * task.out_size, low[r][p], left[p]);
      store_columns(out[p] + r * task.out_size + kPanel / 2, high[r][p], left[p] - kPanel / 2);
    }
  }
}

/// All columns of P panels.
template <int R, int P, class T, class Weight>
inline void linear_panels(const LinearTask<T, Weight>& task, Tile tile) {
  for (tile.column = 0; tile.column < kPanel / 2; tile.column += Lanes<T>::kCount) {
    linear_tile<R, P>(task, tile);
  }
}

/// As many rows as the registers hold sums of: two vectors each, beside the weights.
constexpr int kTileRows = kVectorBytes == 64 ? 12 : kVectorBytes == 32 ? 6 : 4;

/// `rows` rows, at most R, of one panel.
template <int R, class T, class Weight>
inline void linear_some_rows(const LinearTask<T, Weight>& task, const Tile& tile, int64_t rows) {
  if constexpr (R > 1) {
    if (rows < R) {
      linear_some_rows<R - 1>(task, tile, rows);
      return;
    }
  }
  linear_panels<R, 1>(task, tile);
}

/// Inputs that are worked through at once where there are many rows: a panel's part stays in the
/// second-level cache, a tile's inputs in the first.
constexpr int64_t kInputBlock = 512;

/// Panels begin to end of all rows.
template <class T, class Weight>
inline void linear_columns(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  if (task.nodes == 1) {
    int64_t panel = begin;
    for (; panel + 2 <= end; panel += 2) {  // two chains of additions hide each other's latency
      linear_panels<1, 2>(task, {0, panel, 0, task.in, 0});
    }
    for (; panel < end; ++panel) {
      linear_panels<1, 1>(task, {0, panel, 0, task.in, 0});
    }
    return;
  }
  const int64_t tiles = (task.nodes + kTileRows - 1) / kTileRows;
  const int64_t block = tiles == 1 ? task.in : kInputBlock;
  for (int64_t k = 0; k < task.in; k += block) {
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t node = i * task.nodes / tiles;
        linear_some_rows<kTileRows>(task, {node, panel, k, std::min(k + block, task.in), 0},
                                    (i + 1) * task.nodes / tiles - node);
      }
    }
  }
}
