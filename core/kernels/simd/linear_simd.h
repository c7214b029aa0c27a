// The matrix product of core/kernels/linear_product.cpp; see core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/row_tiles_simd.h"
#include "core/kernels/simd/tile_product_simd.h"

/// A tile's rows by P panels from its own on.
template <int R, int P, class T, class Weight>
inline void linear_tile(const LinearTask<T, Weight>& task, const Tile& tile) {
  TileProduct<P, T, Weight> product = {task.input + tile.node * task.in + tile.begin,
                                       task.in,
                                       tile.end - tile.begin,
                                       {},
                                       {},
                                       task.out_stride,
                                       {},
                                       tile.begin > 0,
                                       task.reads_ahead && tile.node == 0};
  for (int p = 0; p < P; ++p) {
    const int64_t panel = tile.panel + p;
    product.weights[p] = task.weight + (panel * task.in + tile.begin) * kPanel;
    product.out[p] = task.out + tile.node * task.out_stride + panel * kPanel;
    product.left[p] = task.out_size - panel * kPanel;
  }
  panels_tile<R>(product);
}

/// Panels begin to end of all rows.
template <class T, class Weight>
inline void linear_columns(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  if (task.nodes == 1) {
    int64_t panel = begin;
    for (; panel + 2 <= end; panel += 2) {  // two chains of additions hide each other's latency
      linear_tile<1, 2>(task, {0, panel, 0, task.in});
    }
    for (; panel < end; ++panel) {
      linear_tile<1, 1>(task, {0, panel, 0, task.in});
    }
    return;
  }
  for_each_tile<kTileRows>(task.nodes, task.in, begin, end,
                           [&]<int R>(const Tile& tile) { linear_tile<R, 1>(task, tile); });
}
