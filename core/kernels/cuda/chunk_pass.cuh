#pragma once
// Chunks that the blocks of attention's first kernel take.
#include "core/kernels/cuda/attention_parts.cuh"
#include "core/kernels/cuda/seen_keys.cuh"

namespace specdec::cuda {

/// A launch of the first kernel, over chunks of a kind. Exact pages, or the columns of means, are
/// the pages of the task's cache then.
struct ChunkPass {
  PagedAttentionTask task;
  ChunkKind kind;
  int32_t tile_rows;  ///< rows of a tile; those of a kv head are numbered node after node
};

SPECDEC_DEVICE int32_t group_of(const PagedAttentionTask& task) {
  return task.heads / task.cache.kv_heads;
}

/// The tile of a block: query heads of one kv head, of neighbouring nodes.
struct TileRows {
  int32_t group;       ///< query heads of a kv head
  int32_t skipped;     ///< heads of the first node that the tile before has
  int32_t count;       ///< rows
  int32_t first_node;  ///< nodes of the tile are numbered from 0, which is this one
  int32_t nodes;

  __device__ int32_t node(int32_t row) const { return (skipped + row) / group; }
  __device__ int32_t head(int32_t row) const {
    return static_cast<int32_t>(blockIdx.y) * group + (skipped + row) % group;
  }
  /// First row of a node: negative where the tile before has it.
  __device__ int32_t first_row(int32_t node) const { return node * group - skipped; }
};

__device__ inline TileRows tile_rows(const ChunkPass& pass) {
  const int32_t group = group_of(pass.task);
  const int32_t first = static_cast<int32_t>(blockIdx.x) * pass.tile_rows;
  const int32_t left = pass.task.nodes * group - first;
  TileRows rows = {group, first % group, left < pass.tile_rows ? left : pass.tile_rows,
                   first / group, 0};
  rows.nodes = rows.node(rows.count - 1) + 1;
  return rows;
}

/// The most nodes of a tile.
SPECDEC_DEVICE int32_t most_nodes(const ChunkPass& pass) {
  const int32_t group = group_of(pass.task);
  return (pass.tile_rows + group - 2) / group + 1;
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
__device__ inline bool sees_chunk(const ChunkPass& pass, const TileRows& rows) {
  for (int32_t n = 0; n < rows.nodes; ++n) {
    if (sees_chunk(pass, rows.first_node + n)) {
      return true;
    }
  }
  return false;
}

/// Row of the values that a node sees at position `offset` of the block's chunk; kHidden = none.
__device__ inline int32_t visible_row(const ChunkPass& pass, int32_t node, int32_t offset) {
  const PagedAttentionTask& task = pass.task;
  const auto kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t position = chunk_begin(pass, node) + offset;
  return pass.kind == ChunkKind::kMeans
             ? visible_mean(task.cache, task.pooled, node, kv_head, position)
             : visible_token(task.cache, task.pooled, node, kv_head, position,
                             pass.kind == ChunkKind::kExact);
}

}  // namespace specdec::cuda
