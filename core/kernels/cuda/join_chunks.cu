// The second kernel of attention (attention.cu): chunks added up in their order.
#include "core/kernels/cuda/attention_parts.cuh"
#include "core/kernels/cuda/hadamard.cuh"
#include "core/kernels/cuda/seen_keys.cuh"
#include "core/kernels/cuda/split_inputs.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;  // of a multiprocessor; left to choose, the compiler spills registers

/// What the chunks so far contribute to one head of a node, and number d of their mixed values.
struct JoinedChunks {
  device::SoftmaxPart sum;
  float number;

  __device__ void add(device::SoftmaxPart part, float mixed) {
    const device::SoftmaxMerge merged = device::merge(sum, part);
    number = device::merge_mixed(merged, number, mixed);
    sum = merged.part;
  }
};

/// Splits what a block has written of a row of all heads; the last one splits zeros behind it too.
__device__ inline void split_head(const PagedAttentionTask& task, int32_t node, int32_t head) {
  const int32_t dim = task.cache.head_dim;
  const int32_t size = task.heads * dim;
  split_columns<kThreads>({task.split, task.nodes, size}, node,
                          task.out + static_cast<int64_t>(node) * size, head * dim,
                          head + 1 == task.heads ? split_end(size) : (head + 1) * dim);
}

/// A block adds up the chunks of one head of a node, and undoes the rotation of its values.
__global__ void __launch_bounds__(kThreads, kBlocks) join_kernel(PagedAttentionTask task) {
  await_earlier_kernels();
  const auto head = static_cast<int32_t>(blockIdx.x);
  const auto node = static_cast<int32_t>(blockIdx.y);
  const int dim = task.cache.head_dim;
  const int32_t position = task.cache.positions[node];
  const int32_t means = means_at(task.cache, task.pooled, position);
  const SeenTokens seen = tokens_seen(task.cache, task.pooled, position);
  const device::SoftmaxPart* parts = parts_of(task) + part_index(task, node, head, 0);
  const float* mixed = task.workspace + part_index(task, node, head, 0) * dim;
  float* out = task.out + (static_cast<int64_t>(node) * task.heads + head) * dim;
  float* sums = task.cache.hadamard ? reinterpret_cast<float*>(shared_memory()) : out;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    if (position < 0) {
      sums[d] = 0.0F;
      continue;
    }
    JoinedChunks joined = {device::nothing_seen(), 0.0F};
    // The chunks that begin at `begin` and before `end`, whose parts stand from `part` on.
    const auto add = [&](int32_t part, int32_t begin, int32_t end) {
      for (; begin < end; begin += kCudaAttentionChunk, ++part) {
        joined.add(parts[part], mixed[static_cast<int64_t>(part) * dim + d]);
      }
    };
    add(first_part(task, ChunkKind::kMeans), 0, means);
    const int32_t tokens = first_part(task, ChunkKind::kTokens);
    add(tokens, 0, seen.sink_end);
    if (seen.first < seen.exact) {
      const int32_t behind_sink = chunk_of(seen.sink_end + kCudaAttentionChunk - 1);
      const int32_t chunk = chunk_of(seen.first) > behind_sink ? chunk_of(seen.first) : behind_sink;
      add(tokens + chunk, chunk * kCudaAttentionChunk, seen.exact);
    }
    if (seen.exact < seen.end) {
      add(first_part(task, ChunkKind::kExact), chunk_of(seen.exact) * kCudaAttentionChunk,
          seen.end);
    }
    sums[d] = joined.number * (1.0F / joined.sum.total);
  }
  if (task.cache.hadamard) {
    hadamard_head<kThreads>(sums, dim, out);
  }
  if (task.split != nullptr) {
    split_head(task, node, head);
  }
}

}  // namespace

int join_chunks(const PagedAttentionTask& task, void* stream) {
  LaunchShape join;
  join.grid_x = static_cast<unsigned>(task.heads);
  join.grid_y = static_cast<unsigned>(task.nodes);
  join.threads = kThreads;
  if (task.cache.hadamard) {
    join.shared_bytes = static_cast<unsigned>(task.cache.head_dim * sizeof(float));
  }
  return launch(join_kernel, join, stream, task);
}

}  // namespace specdec::cuda
