#pragma once
// What the chunks of an attention contribute, between its two kernels.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/online_softmax.h"

namespace specdec::cuda {

/// Chunks of all positions: of means, then of tokens.
SPECDEC_DEVICE int32_t all_chunks(const PagedAttentionTask& task) {
  return task.mean_chunks + task.chunks;
}

/// Where the part of a head of a node and a chunk stands.
SPECDEC_DEVICE int64_t part_index(const PagedAttentionTask& task, int32_t node, int32_t head,
                                  int32_t chunk) {
  return (static_cast<int64_t>(node) * task.heads + head) * all_chunks(task) + chunk;
}

/// The workspace: mixed values [parts, head_dim], then [parts] SoftmaxPart.
SPECDEC_DEVICE device::SoftmaxPart* parts_of(const PagedAttentionTask& task) {
  const int64_t parts = static_cast<int64_t>(task.nodes) * task.heads * all_chunks(task);
  return reinterpret_cast<device::SoftmaxPart*>(task.workspace + parts * task.cache.head_dim);
}

/// Launches the second kernel: out = the chunks added up, without the rotation of the values.
int join_chunks(const PagedAttentionTask& task, void* stream);

}  // namespace specdec::cuda
