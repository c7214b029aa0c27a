// Products of tokens with the matrices of their experts on tensor cores. Inputs are split once, row
// after row; the lanes of a block gather the rows of its pairs, wherever they lie.
#include "core/kernels/cuda/expert_pairs.cuh"
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {
namespace {

/// Shared memory of a block.
struct TensorExpertShared {
  float sums[kTensorWarps * kBlockSums<1, 1>];
  PairList<kTensorThreads, kTileRows> list;
};

SPECDEC_DEVICE SplitInputs split_of(const ExpertLinearTask& task) {
  return {task.workspace, task.pairs / task.rows_share, task.in};
}

/// Whether the blocks of an expert are those of its first pair. Else each expert has its own.
SPECDEC_DEVICE bool has_blocks_for_pairs(const ExpertLinearTask& task) {
  return task.pairs < task.count;
}

/// A row of inputs among those that are split: its tile, and its place there.
struct SplitRow {
  int32_t tile, place;
};

/// Row of a pair of the tile; for a pair that is missing, that of the first one, whose sums nobody
/// reads.
__device__ inline SplitRow split_row(const ExpertLinearTask& task, const int32_t* pairs, int i) {
  const int32_t row = (pairs[i] < 0 ? pairs[0] : pairs[i]) / task.rows_share;
  return {row / kTileRows, row % kTileRows};
}

/// Where a lane's inputs of a tile of pairs lie.
__device__ inline InputAddress gathered_inputs(const ExpertLinearTask& task, const int32_t* pairs) {
  const int lane = static_cast<int>(lane_index());
  const SplitInputs split = split_of(task);
  const SplitRow multiplied = split_row(task, pairs, lane / 4);
  const SplitRow first = split_row(task, pairs, lane % 4 * 2);
  const SplitRow second = split_row(task, pairs, lane % 4 * 2 + 1);
  const float* sums = split.sums(first.tile) + first.place;
  return {split.fragments(multiplied.tile) + multiplied.place * 4 + lane % 4, sums,
          split.sums(second.tile) + second.place - sums, 0, 0};
}

__device__ inline void write_pairs(const ExpertLinearTask& task, const TensorExpertShared& shared) {
  constexpr int kCount = kBlockSums<1, 1>;
  for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kTensorThreads) {
    const int32_t pair = shared.list.pairs[i / kTileOutputs];
    const int32_t output = static_cast<int32_t>(blockIdx.x) * kTileOutputs + i % kTileOutputs;
    if (pair >= 0 && output < task.outputs) {
      task.out[static_cast<int64_t>(pair) * task.outputs + output] =
          added_sums([&](int warp) { return shared.sums[warp * kCount + i]; });
    }
  }
}

/// Grid (tiles of outputs, pairs or experts, whichever are fewer). A block takes all pairs of an
/// expert, a tile of them after the other; those of a pair that is not its expert's first one end.
template <class Format>
__global__ void __launch_bounds__(kTensorThreads, 2)
    tensor_expert_kernel(FormatTask<ExpertLinearTask, Format> kernel_task) {
  await_earlier_kernels();
  const ExpertLinearTask& task = kernel_task.task;
  auto& shared = *reinterpret_cast<TensorExpertShared*>(shared_memory());
  const auto slot = static_cast<int32_t>(blockIdx.y);
  int32_t expert = slot;
  int32_t next = 0;
  if (has_blocks_for_pairs(task)) {
    expert = task.experts[slot];
    next = slot;
    if (expert < 0 || expert >= task.count ||
        rank_among_equals(task, slot, expert, shared.list) > 0) {
      return;
    }
  }
  const auto* matrix = static_cast<const unsigned char*>(task.weight) + expert * task.expert_bytes;
  const int32_t* pairs = shared.list.pairs;
  while (next < task.pairs) {
    list_pairs(task, next, expert, shared.list);
    if (pairs[0] < 0) {
      return;
    }
    const int32_t last = pairs[kTileRows - 1];
    WeightStream<Format, 1, kChunksAhead<Format, 1, 1>> weights(
        first_weights<Format>(matrix, task.outputs, task.in, static_cast<int32_t>(blockIdx.x)),
        {static_cast<int32_t>(warp_index()), chunks_of(task.in)});
    Sums<1, 1> sums;
    add_chunks(kernel_task.format, weights, gathered_inputs(task, pairs), 1, sums);
    share_sums(sums, shared.sums);
    __syncthreads();
    write_pairs(task, shared);
    __syncthreads();  // before the list is used again
    next = last < 0 ? task.pairs : last + 1;
  }
}

template <class Format>
int launch_tensor_experts(const ExpertLinearTask& task, const Format& format, void* stream) {
  const int error = task.is_split ? 0 : split_inputs(split_of(task), task.input, stream);
  if (error != 0) {
    return error;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles_of(task.outputs, kTileOutputs));
  shape.grid_y = static_cast<unsigned>(has_blocks_for_pairs(task) ? task.pairs : task.count);
  shape.threads = kTensorThreads;
  shape.shared_bytes = sizeof(TensorExpertShared);
  return launch(tensor_expert_kernel<Format>, shape, stream,
                FormatTask<ExpertLinearTask, Format>{task, format});
}

}  // namespace

int specdec_cuda_tensor_experts(const ExpertLinearTask* task, void* stream) {
  if (task->pairs == 0 || task->outputs == 0) {
    return 0;
  }
  if (task->pairs < 0 || task->outputs < 0 || task->rows_share <= 0 || task->in <= 0 ||
      task->count <= 0 || task->count > kMaxGridY || task->expert_bytes % 16 != 0 ||
      !is_aligned(task->weight) || !is_aligned(task->workspace)) {
    return kInvalidValue;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    return launch_tensor_experts(*task, fragments, stream);
  });
}

}  // namespace specdec::cuda
