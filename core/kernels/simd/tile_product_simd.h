// Products of rows with matrices in panels; included inside a namespace, after row_tiles_simd.h, by
// linear_simd.h and block_product_simd.h; see core/kernels/simd/for_each_simd.h.

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

/// What a tile multiplies: inputs of its rows, and as many rows of each of P panels.
template <int P, class T, class Weight>
struct TileProduct {
  const T* input;
  int64_t input_stride;
  int64_t inputs;
  const Weight* weights[P];  ///< [inputs, kPanel]
  T* out[P];                 ///< a panel's first column
  int64_t out_stride;
  int64_t left[P];           ///< columns of the matrix from there on
  bool adds;                 ///< to what `out` holds
  bool reads_ahead = false;  ///< asks for the weights long before they are multiplied
};

/// R rows by two vectors of columns in each of P panels. Between calls for successive inputs the
/// sums wait in `out`, which rounds nothing.
template <int R, int P, bool kAhead, class T, class Weight>
inline void product_tile(const TileProduct<P, T, Weight>& product, int64_t column) {
  Vec<T> low[R][P] = {};
  Vec<T> high[R][P] = {};
  if (product.adds) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const T* out = product.out[p] + column;
      const int64_t left = product.left[p] - column;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        low[r][p] = load_columns(out + r * product.out_stride, left);
        high[r][p] = load_columns(out + r * product.out_stride + kPanel / 2, left - kPanel / 2);
      }
    }
  }
  for (int64_t k = 0; k < product.inputs; ++k) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if constexpr (kAhead) {
        read_ahead(product.weights[p] + k * kPanel, kPanel * sizeof(Weight));
      }
      const WeightPair<T> w = load_pair(product.weights[p] + k * kPanel, column);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec<T> x = splat(product.input[r * product.input_stride + k]);
        low[r][p] = fused<T>(w.low, x, low[r][p]);
        high[r][p] = fused<T>(w.high, x, high[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    T* out = product.out[p] + column;
    const int64_t left = product.left[p] - column;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      store_columns(out + r * product.out_stride, low[r][p], left);
      store_columns(out + r * product.out_stride + kPanel / 2, high[r][p], left - kPanel / 2);
    }
  }
}

/// All columns of P panels.
template <int R, int P, class T, class Weight>
inline void panels_tile(const TileProduct<P, T, Weight>& product) {
  for (int64_t column = 0; column < kPanel / 2; column += Lanes<T>::kCount) {
    if (product.reads_ahead && column == 0) {
      product_tile<R, P, true>(product, column);
    } else {
      product_tile<R, P, false>(product, column);
    }
  }
}
