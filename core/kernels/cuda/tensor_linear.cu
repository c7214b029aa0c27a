// Products of up to 64 rows with a matrix on tensor cores, by blocks of their own or in clusters.
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {
namespace {

/// Outputs from which on groups of two tiles of them fill a GPU; these read the inputs half as
/// often.
constexpr int32_t kPairedOutputs = 8192;
/// Outputs from which on several rows are multiplied by clusters of blocks.
constexpr int32_t kClusteredOutputs = 512;

/// What a warp multiplies. A block alone has one group of tiles of outputs, whose chunks its warps
/// take in turn. The eight blocks of a cluster take the chunks of eight groups in turn, one group
/// a warp: so a block reads an eighth of the inputs, once for all its warps, and adds up and writes
/// the group of its own number. The sums are the same.
struct Share {
  int32_t group;
  ChunkRange chunks;

  /// `groups`: how many there are.
  __device__ Share(int32_t groups, int32_t all_chunks)
      : group(static_cast<int32_t>(blockIdx.x)),
        chunks{static_cast<int32_t>(warp_index()), all_chunks} {
    if (cluster_blocks() > 1) {
      const int32_t block = group % kTensorWarps;
      group += chunks.first - block;
      chunks.first = block;
    }
    if (group >= groups) {  // the last cluster is filled up
      chunks.end = 0;
    }
  }
};
static_assert(kTensorWarps == kMaxCluster);

/// Writes the sums of a block's group. sum_of(taker, i): number i of those of a taker of chunks.
template <int kOutputTiles, int kTiles, class SumOf>
__device__ inline void write_sums(const TensorLinearTask& task, const SumOf& sum_of) {
  constexpr int kOutputs = kOutputTiles * kTileOutputs;
  constexpr int kCount = kBlockSums<kOutputTiles, kTiles>;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kTensorThreads) {
    const int32_t row = static_cast<int32_t>(blockIdx.y) * kTiles * kTileRows + i / kOutputs;
    const int32_t output = static_cast<int32_t>(blockIdx.x) * kOutputs + i % kOutputs;
    if (row >= task.rows || output >= task.outputs) {
      continue;
    }
    const float sum = added_sums([&](int taker) { return sum_of(taker, i); });
    task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
  }
}

SPECDEC_DEVICE SplitInputs split_of(const TensorLinearTask& task) {
  return {task.workspace, task.rows, task.in};
}

/// A block or, in a cluster, a warp: a group of kOutputTiles tiles of outputs and up to kTiles
/// tiles of rows.
template <class Format, int kOutputTiles, int kTiles>
__global__ void __launch_bounds__(kTensorThreads, 2)
    tensor_kernel(FormatTask<TensorLinearTask, Format> kernel_task) {
  const TensorLinearTask& task = kernel_task.task;
  const int lane = static_cast<int>(lane_index());
  const int32_t chunks = chunks_of(task.in);
  const int32_t first_tile = static_cast<int32_t>(blockIdx.y) * kTiles;
  const int32_t tiles = tiles_of(task.rows, kTileRows) - first_tile;
  const SplitInputs split = split_of(task);
  const Share share(tiles_of(task.outputs, kTileOutputs * kOutputTiles), chunks);
  WeightStream<Format, kOutputTiles, kChunksAhead<Format, kOutputTiles, kTiles>> weights(
      first_weights<Format>(task.fragments, task.outputs, task.in, share.group * kOutputTiles),
      share.chunks);
  await_earlier_kernels();  // the last one splits the inputs
  // One row is an eighth of a tile: of its others nothing is read.
  const int held = kTiles > 1 || lane / 4 < task.rows - first_tile * kTileRows ? lane : lane % 4;
  const InputAddress inputs = {split.fragments(first_tile) + held,
                               split.sums(first_tile) + lane % 4 * 2, 1, chunks * kChunkFragments,
                               chunks * kChunkSums};
  Sums<kOutputTiles, kTiles> sums;
  add_chunks(kernel_task.format, weights, inputs, tiles, sums);
  auto* shared = reinterpret_cast<float*>(shared_memory());
  share_sums(sums, shared);
  constexpr int kCount = kBlockSums<kOutputTiles, kTiles>;
  if (cluster_blocks() == 1) {
    __syncthreads();
    write_sums<kOutputTiles, kTiles>(task,
                                     [&](int warp, int i) { return shared[warp * kCount + i]; });
    return;
  }
  sync_cluster();
  const float* own = shared + static_cast<int>(blockIdx.x) % kTensorWarps * kCount;
  write_sums<kOutputTiles, kTiles>(task, [&](int block, int i) {
    return read_shared_of(own + i, static_cast<unsigned>(block));
  });
  sync_cluster();  // others read this block's sums
}

template <int kOutputTiles, int kTiles, class Format>
int launch_product(const FormatTask<TensorLinearTask, Format>& kernel_task, void* stream) {
  const TensorLinearTask& task = kernel_task.task;
  LaunchShape shape;
  const int32_t groups = tiles_of(task.outputs, kTileOutputs * kOutputTiles);
  if (task.rows > 1 && task.outputs >= kClusteredOutputs && has_clusters()) {
    shape.cluster = kTensorWarps;
  }
  shape.grid_x =
      static_cast<unsigned>(tiles_of(groups, static_cast<int32_t>(shape.cluster))) * shape.cluster;
  shape.grid_y = static_cast<unsigned>(tiles_of(task.rows, kTileRows * kTiles));
  shape.threads = kTensorThreads;
  shape.shared_bytes = kTensorWarps * kBlockSums<kOutputTiles, kTiles> * sizeof(float);
  return launch(tensor_kernel<Format, kOutputTiles, kTiles>, shape, stream, kernel_task);
}

template <int kOutputTiles, class Format>
int launch_product(const FormatTask<TensorLinearTask, Format>& task, void* stream) {
  const int32_t tiles = tiles_of(task.task.rows, kTileRows);
  if (tiles == 1) {
    return launch_product<kOutputTiles, 1>(task, stream);
  }
  constexpr int kShared = Format::kIsExpanded ? 1 : kOutputTiles;  // all that registers hold
  return tiles <= 4 ? launch_product<kShared, 4>(task, stream)
                    : launch_product<kShared, Format::kRowTiles>(task, stream);
}

}  // namespace

int specdec_cuda_tensor_linear(const TensorLinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  if (!is_aligned(task->fragments) || !is_aligned(task->workspace) ||
      specdec_cuda_fragment_bytes(task->outputs, task->in, task->format) == 0) {
    return kInvalidValue;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    using Format = decltype(fragments);
    const int error = task->is_split ? 0 : split_inputs(split_of(*task), task->input, stream);
    if (error != 0) {
      return error;
    }
    const FormatTask<TensorLinearTask, Format> kernel_task = {*task, fragments};
    return task->outputs >= kPairedOutputs
               ? launch_product<Format::kOutputTiles>(kernel_task, stream)
               : launch_product<1>(kernel_task, stream);
  });
}

}  // namespace specdec::cuda
