#pragma once
// Chunks that the blocks of attention's first kernel take.
#include "core/kernels/cuda/attention_parts.cuh"
#include "core/kernels/cuda/seen_keys.cuh"

namespace specdec::cuda {

constexpr int kRows = 8;  // of a tile: query heads of one kv head, of neighbouring nodes

/// A launch of the first kernel, over chunks of a kind. Exact pages, or the columns of means, are
/// the pages of the task's cache then.
struct ChunkPass {
  PagedAttentionTask task;
  ChunkKind kind;
};

/// Rows and chunks as the two kernels number them.
struct Layout {
  int32_t group, rows, tiles;  ///< query heads of a kv head; rows and tiles of each kv head

  __device__ int32_t node(int32_t row) const { return row / group; }
  __device__ int32_t head(int32_t row, int32_t kv_head) const {
    return kv_head * group + row % group;
  }
};

SPECDEC_DEVICE Layout layout_of(const PagedAttentionTask& task) {
  const int32_t group = task.heads / task.cache.kv_heads;
  const int32_t rows = task.nodes * group;
  return {group, rows, (rows + kRows - 1) / kRows};
}

/// Where the block's chunk begins for a node. Those of exact pages are numbered from the first one
/// on that the node sees, so that few blocks are launched.
__device__ inline int32_t chunk_begin(const ChunkPass& pass, int32_t node) {
  const PagedCache& cache = pass.task.cache;
  auto chunk = static_cast<int32_t>(blockIdx.z);
  if (pass.kind == ChunkKind::kExact) {
    chunk += chunk_of(tokens_seen(cache, pass.task.pooled, cache.positions[node]).exact);
  }
  return chunk * kCudaAttentionChunk;
}

/// Whether a node sees something of the block's chunk.
__device__ inline bool sees_chunk(const ChunkPass& pass, int32_t node) {
  const PagedCache& cache = pass.task.cache;
  const PooledCache& pooled = pass.task.pooled;
  const int32_t position = cache.positions[node];
  const int32_t begin = chunk_begin(pass, node);
  if (pass.kind == ChunkKind::kMeans) {
    return begin < means_at(cache, pooled, position);
  }
  const SeenTokens seen = tokens_seen(cache, pooled, position);
  if (pass.kind == ChunkKind::kExact) {
    return begin < seen.end;
  }
  return begin < seen.sink_end || (begin < seen.exact && seen.first < seen.exact &&
                                   seen.first < begin + kCudaAttentionChunk);
}

/// Whether a row of this block's tile sees something of its chunk: the same in all threads. A
/// graph launches blocks for more positions than there are.
__device__ inline bool sees_chunk(const ChunkPass& pass, const Layout& layout) {
  const auto row = static_cast<int32_t>(blockIdx.x) * kRows;
  const int32_t end = row + kRows < layout.rows ? row + kRows : layout.rows;
  for (int32_t node = layout.node(row); node <= layout.node(end - 1); ++node) {
    if (sees_chunk(pass, node)) {
      return true;
    }
  }
  return false;
}

}  // namespace specdec::cuda
