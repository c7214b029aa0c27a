// How products are cut into tiles of rows and panels; included inside a namespace by linear_simd.h
// and block_product_simd.h; see core/kernels/simd/for_each_simd.h.

/// Sanitizers make each height of a tile a large function, so two heights, which run the same
/// lines, stand for all: how rows are cut into tiles changes no bit. Higher ones are not sanitized.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostTileRows = 2;
#else
constexpr int kMostTileRows = 12;
#endif

/// Number of rows whose sums the registers hold beside the weights, two vectors each.
constexpr int kTileRows = std::min(kVectorBytes == 64   ? 12
                                   : kVectorBytes == 32 ? 6
                                                        : 4,
                                   kMostTileRows);

/// Inputs that are worked through at once where there are many rows: a panel's part stays in the
/// second-level cache, a tile's inputs in the first.
constexpr int64_t kInputBlock = 512;

/// Bytes that weights are asked for ahead of their product (see ReadAhead).
constexpr int64_t kBytesAhead = 4096;

/// Asks for the `size` bytes that lie kBytesAhead behind `from`; these may be no weights any more.
inline void read_ahead(const void* from, int64_t size) {
  const auto first = reinterpret_cast<uintptr_t>(from) + kBytesAhead;
  for (int64_t line = 0; line < size; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<uintptr_t>(line)));
  }
}

/// Where a tile works: rows of input and out from `node` on, a panel, inputs begin to end.
struct Tile {
  int64_t node;
  int64_t panel;
  int64_t begin, end;
};

/// Calls run<rows>(tile) with the number of rows, at most R, as a constant.
template <int R, class Run>
inline void with_rows(int64_t rows, const Tile& tile, const Run& run) {
  if constexpr (R > 1) {
    if (rows < R) {
      with_rows<R - 1>(rows, tile, run);
      return;
    }
  }
  run.template operator()<R>(tile);
}

/// All tiles of `nodes` rows, at most R each, at the place of `panel`.
template <int R, class Run>
inline void for_each_row_tile(int64_t nodes, const Tile& panel, const Run& run) {
  const int64_t tiles = (nodes + R - 1) / R;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t node = i * nodes / tiles;
    with_rows<R>((i + 1) * nodes / tiles - node, {node, panel.panel, panel.begin, panel.end}, run);
  }
}

/// All tiles of `nodes` rows, at most R each, and the panels begin to end, each with its inputs in
/// their order.
template <int R, class Run>
inline void for_each_tile(int64_t nodes, int64_t in, int64_t begin, int64_t end, const Run& run) {
  const int64_t block = nodes <= R ? in : kInputBlock;
  for (int64_t k = 0; k < in; k += block) {
    for (int64_t panel = begin; panel < end; ++panel) {
      for_each_row_tile<R>(nodes, {0, panel, k, std::min(k + block, in)}, run);
    }
  }
}

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

/// A half's bits in the low end of each lane. Shifted into place a half is 2^112 too small,
/// subnormals included; infinities and NaNs need the largest exponent again.
inline Vec<float> widen_half(typename Lanes<float>::Wide half) {
  using Wide = typename Lanes<float>::Wide;
  const auto scaled = same_bits<Vec<float>>((half & 0x7FFFU) << 13) * 0x1p112F;
  const auto special = same_bits<Wide>((half & 0x7C00U) == 0x7C00U) & 0x7F800000U;
  return same_bits<Vec<float>>(same_bits<Wide>(scaled) | special | ((half & 0x8000U) << 16));
}
