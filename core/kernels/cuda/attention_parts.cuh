#pragma once
// What the chunks of an attention contribute, between its two kernels.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/online_softmax.h"

namespace specdec::cuda {

/// What a chunk holds; the parts of a node stand in this order.
enum class ChunkKind : int32_t { kMeans, kTokens, kExact };

/// Where the parts of a kind begin among those of a node.
SPECDEC_DEVICE int32_t first_part(const PagedAttentionTask& task, ChunkKind kind) {
  return (kind == ChunkKind::kMeans ? 0 : task.mean_chunks) +
         (kind == ChunkKind::kExact ? task.chunks : 0);
}

/// Chunk of a position.
SPECDEC_DEVICE int32_t chunk_of(int32_t position) { return position / kCudaAttentionChunk; }

/// Chunks of all kinds.
SPECDEC_DEVICE int32_t all_chunks(const PagedAttentionTask& task) {
  return task.mean_chunks + task.chunks + task.exact_chunks;
}

/// Where the part of a head of a node stands.
SPECDEC_DEVICE int64_t part_index(const PagedAttentionTask& task, int32_t node, int32_t head,
                                  int32_t part) {
  return (static_cast<int64_t>(node) * task.heads + head) * all_chunks(task) + part;
}

/// The workspace: mixed values [parts, head_dim], then [parts] SoftmaxPart.
SPECDEC_DEVICE device::SoftmaxPart* parts_of(const PagedAttentionTask& task) {
  const int64_t parts = static_cast<int64_t>(task.nodes) * task.heads * all_chunks(task);
  return reinterpret_cast<device::SoftmaxPart*>(task.workspace + parts * task.cache.head_dim);
}

/// Launches the second kernel: out = the chunks added up, without the rotation of the values.
int join_chunks(const PagedAttentionTask& task, void* stream);

}  // namespace specdec::cuda
