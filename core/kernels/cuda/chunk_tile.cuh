#pragma once
// Shared memory of the blocks of attention's first kernel: what a tile's rows see of a chunk, in
// groups of 16 positions, and their queries, scores and weights.
#include "core/kernels/cuda/chunk_pass.cuh"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {

constexpr int kChunk = kCudaAttentionChunk;
constexpr int kGroup = kStepInputs;       // positions of a group: a step of an mma
constexpr int kGroups = kChunk / kGroup;  // of a chunk
constexpr int kScoreStride = kChunk + 4;  // banks of a row's scores: other ones than the next's
constexpr int kSeenWords = kGroups * 2;   // of `seen` and `same`
constexpr int kFragmentWords = 2 * kParts * kWarp;  // of the rows of 8 and a step

struct Tile {
  /// The queries by steps of dimensions; then, in their place, weights by groups of positions:
  /// [steps][tiles of 8 rows][kParts][lanes].
  InputFragment* parts;
  int32_t row_tiles;
  float* scores;     ///< [tile_rows][kScoreStride]
  int32_t* visible;  ///< [nodes][kChunk] row of values, or kHidden
  uint32_t* seen;    ///< [kGroups] a bit for each node that sees something of the group
  uint32_t* same;    ///< [kGroups] whether all nodes see the same rows of values
  float* levels;     ///< [2][kLevels] of a codebook: of keys, then values

  /// The first lane's of a step or group, and 8 rows.
  __device__ InputFragment* fragments(int step, int row_tile) const {
    return parts + (step * row_tiles + row_tile) * kParts * kWarp;
  }
};

SPECDEC_DEVICE int32_t part_words(const ChunkPass& pass) {
  const int32_t steps = tiles_of(pass.task.cache.head_dim, kStepInputs);
  return (steps > kGroups ? steps : kGroups) * (pass.tile_rows / kTileRows) * kFragmentWords;
}

inline unsigned shared_bytes(const ChunkPass& pass) {
  const int32_t words = part_words(pass) + pass.tile_rows * kScoreStride +
                        most_nodes(pass) * kChunk + kSeenWords +
                        (pass.task.cache.levels == nullptr ? 0 : 2 * kLevels);
  return static_cast<unsigned>(words) * static_cast<unsigned>(sizeof(uint32_t));
}

__device__ inline Tile tile_in_shared(const ChunkPass& pass) {
  auto* words = reinterpret_cast<uint32_t*>(shared_memory());
  auto* scores = reinterpret_cast<float*>(words + part_words(pass));
  auto* visible = reinterpret_cast<int32_t*>(scores + pass.tile_rows * kScoreStride);
  auto* seen = reinterpret_cast<uint32_t*>(visible + most_nodes(pass) * kChunk);
  return {reinterpret_cast<InputFragment*>(words),
          pass.tile_rows / kTileRows,
          scores,
          visible,
          seen,
          seen + kGroups,
          reinterpret_cast<float*>(seen + kSeenWords)};
}

/// Writes numbers k and k + 1 of a row and a step, for an even k, as the lanes hold them.
__device__ inline void put_pair(InputFragment* fragments, int row, int k, float first,
                                float second) {
  uint32_t parts[kParts];
  split_pair(first, second, parts);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    fragments[part * kWarp + row * 4 + k % 8 / 2].word[k / 8] = parts[part];
  }
}

/// Copies the queries of the tile's rows: a warp takes a row.
__device__ inline void fill_queries(const ChunkPass& pass, const TileRows& rows, const Tile& tile) {
  const PagedAttentionTask& task = pass.task;
  const int dim = task.cache.head_dim;
  for (auto r = static_cast<int>(warp_index()); r < rows.count; r += kTensorWarps) {
    const int64_t node = rows.first_node + rows.node(r);
    const float* query = task.queries + (node * task.heads + rows.head(r)) * dim;
    for (int d = 2 * static_cast<int>(lane_index()); d < tiles_of(dim, kStepInputs) * kStepInputs;
         d += 2 * kWarp) {
      put_pair(tile.fragments(d / kStepInputs, r / kTileRows), r % kTileRows, d % kStepInputs,
               d < dim ? query[d] : 0.0F, d + 1 < dim ? query[d + 1] : 0.0F);
    }
  }
}

/// Copies the levels of the block's head.
__device__ inline void fill_levels(const PagedCache& cache, const Tile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2 * kLevels) {
    const bool is_key = thread < kLevels;
    tile.levels[thread] = levels_of(cache, static_cast<int>(blockIdx.y), is_key)[thread % kLevels];
  }
}

/// Finds what the tile's nodes see of a group, two nodes at a time; a warp.
__device__ inline void fill_group(const ChunkPass& pass, const TileRows& rows, const Tile& tile,
                                  int group) {
  const int lane = static_cast<int>(lane_index());
  const int offset = group * kGroup + lane % kGroup;
  uint32_t seen = 0;
  unsigned others = 0;
  int32_t of_first_node = kHidden;
  for (int32_t pair = 0; pair < rows.nodes; pair += 2) {
    const int32_t n = pair + lane / kGroup;
    int32_t row = kHidden;
    if (n < rows.nodes) {
      row = visible_row(pass, rows.first_node + n, offset);
      tile.visible[n * kChunk + offset] = row;
    }
    if (pair == 0) {
      of_first_node = __shfl_sync(kAllLanes, row, lane % kGroup);
    }
    others |= __ballot_sync(kAllLanes, n < rows.nodes && row != of_first_node);
    const unsigned sees = __ballot_sync(kAllLanes, row != kHidden);
    seen |= ((sees & 0xFFFFU) != 0 ? 1U : 0U) << pair;
    seen |= (sees >> 16U != 0 ? 2U : 0U) << pair;
  }
  if (lane == 0) {
    tile.seen[group] = seen;
    tile.same[group] = others == 0 ? 1 : 0;
  }
}

/// Rows that are multiplied with what one node of the tile sees: its own, or all of them.
struct SharedView {
  int32_t node, begin, end;
  bool is_whole;  ///< whether they are all rows of the tile

  __device__ bool has(int32_t row) const { return row >= begin && row < end; }
  /// Whether the view has one of the kTileRows rows of a tile.
  __device__ bool has_tile(int row_tile) const {
    return begin < (row_tile + 1) * kTileRows && end > row_tile * kTileRows;
  }
};

/// Calls use(view) for each view of a group in which something is seen. How many rows share one
/// changes no bits: a column of a product depends on its own row alone.
template <class Use>
__device__ inline void for_each_view(const TileRows& rows, const Tile& tile, int group,
                                     const Use& use) {
  const uint32_t seen = tile.seen[group];
  const bool same = tile.same[group] != 0;
  for (int32_t n = 0; n < (same ? 1 : rows.nodes); ++n) {
    if ((seen >> static_cast<unsigned>(n) & 1U) != 0) {
      const int32_t begin = rows.first_row(n);
      const int32_t end = same ? rows.count : begin + rows.group;
      use(SharedView{n, begin, end < rows.count ? end : rows.count, same});
    }
  }
}

}  // namespace specdec::cuda
