// Products of up to 64 rows with a matrix on tensor cores.
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {
namespace {

/// Outputs from which on blocks of two tiles of them fill a GPU; these read the inputs half as
/// often.
constexpr int32_t kPairedOutputs = 8192;

/// Writes the sums of a block.
template <int kOutputTiles, int kTiles>
__device__ inline void write_sums(const TensorLinearTask& task, const float* shared) {
  constexpr int kOutputs = kOutputTiles * kTileOutputs;
  constexpr int kCount = kBlockSums<kOutputTiles, kTiles>;
  for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kTensorThreads) {
    const int32_t row = static_cast<int32_t>(blockIdx.y) * kTiles * kTileRows + i / kOutputs;
    const int32_t output = static_cast<int32_t>(blockIdx.x) * kOutputs + i % kOutputs;
    if (row >= task.rows || output >= task.outputs) {
      continue;
    }
    const float sum = added_sums<kCount>(shared, i);
    task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
  }
}

SPECDEC_DEVICE SplitInputs split_of(const TensorLinearTask& task) {
  return {task.workspace, task.rows, task.in};
}

/// A block: kOutputTiles tiles of outputs and up to kTiles tiles of rows.
template <class Format, int kOutputTiles, int kTiles>
__global__ void __launch_bounds__(kTensorThreads, 2)
    tensor_kernel(FormatTask<TensorLinearTask, Format> kernel_task) {
  const TensorLinearTask& task = kernel_task.task;
  const int lane = static_cast<int>(lane_index());
  const int32_t chunks = chunks_of(task.in);
  const int32_t first_tile = static_cast<int32_t>(blockIdx.y) * kTiles;
  const int32_t tiles = tiles_of(task.rows, kTileRows) - first_tile;
  const SplitInputs split = split_of(task);
  WeightStream<Format, kOutputTiles, kChunksAhead<Format, kOutputTiles, kTiles>> weights(
      first_weights<Format>(task.fragments, task.outputs, task.in,
                            static_cast<int32_t>(blockIdx.x) * kOutputTiles),
      task.in);
  await_earlier_kernels();  // the last one splits the inputs
  const int32_t rows = task.rows - first_tile * kTileRows;
  const int row = kTiles > 1 || lane / 4 < rows ? lane / 4 : 0;
  const InputAddress inputs = {split.fragments(first_tile) + row * 4 + lane % 4,
                               split.sums(first_tile) + lane % 4 * 2,
                               1,
                               static_cast<int64_t>(chunks) * kChunkFragments,
                               static_cast<int64_t>(chunks) * kChunkSums,
                               rows - lane / 4};
  Sums<kOutputTiles, kTiles> sums;
  add_chunks(kernel_task.format, weights, inputs, tiles, sums);
  auto* shared = reinterpret_cast<float*>(shared_memory());
  share_sums(sums, shared);
  __syncthreads();
  write_sums<kOutputTiles, kTiles>(task, shared);
}

template <int kOutputTiles, int kTiles, class Format>
int launch_product(const FormatTask<TensorLinearTask, Format>& kernel_task, void* stream) {
  const TensorLinearTask& task = kernel_task.task;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles_of(task.outputs, kTileOutputs * kOutputTiles));
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
