// Inputs of products on tensor cores, split into bfloat16 numbers that carry all their bits; see
// tensor_product.cuh.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {
namespace {

struct SplitTask {
  SplitInputs to;
  const float* input;  ///< [rows, in]
  bool has_sums;
};

/// A warp adds up kSumInputs inputs from `step` on of each row of a tile, four lanes a row.
__device__ inline void write_input_sums(const SplitTask& task, int32_t step) {
  const int lane = static_cast<int>(lane_index());
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int32_t row = tile * kTileRows + lane / 4;
  const int32_t in = task.to.in;
  const int32_t first = step * kStepInputs + lane % 4 * (kSumInputs / 4);
  float sum = 0.0F;
  for (int32_t k = first; row < task.to.rows && k < first + kSumInputs / 4 && k < in; ++k) {
    sum += task.input[static_cast<int64_t>(row) * in + k];
  }
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lane % 4 == 0) {
    const int32_t group = step % kSteps * kStepInputs / kSumInputs;
    task.to.sums(tile)[step / kSteps * kChunkSums + group * kTileRows + lane / 4] = sum;
  }
}

/// A thread makes a lane's fragments of all parts: grid (tiles of rows, steps in groups of
/// kTensorWarps).
__global__ void __launch_bounds__(kTensorThreads) split_kernel(SplitTask task) {
  await_earlier_kernels();
  const int lane = static_cast<int>(lane_index());
  const int32_t step = static_cast<int32_t>(blockIdx.y * kTensorWarps + warp_index());
  const int32_t in = task.to.in;
  if (step >= steps_of(in)) {
    return;
  }
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int32_t row = tile * kTileRows + lane / 4;
  InputFragment fragments[kParts] = {};
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    const int32_t k = step * kStepInputs + fragment_input(lane, word);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t parts[kParts];
      const bool exists = row < task.to.rows && k + i < in;
      split(exists ? task.input[static_cast<int64_t>(row) * in + k + i] : 0.0F, parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        fragments[part].word[word] |= parts[part] << (16U * static_cast<unsigned>(i));
      }
    }
  }
  InputFragment* out = task.to.fragments(tile) + static_cast<int64_t>(step) * kParts * kWarp + lane;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    out[part * kWarp] = fragments[part];
  }
  if (task.has_sums && step * kStepInputs % kSumInputs == 0) {
    write_input_sums(task, step);
  }
}

}  // namespace

int split_inputs(const SplitInputs& split, const float* input, bool has_sums, void* stream) {
  const SplitTask task = {split, input, has_sums};
  return launch(split_kernel, warp_shape(tiles_of(split.rows, kTileRows), steps_of(split.in)),
                stream, task);
}

int64_t specdec_cuda_split_bytes(int32_t rows, int32_t in) {
  constexpr int64_t kBytes = kChunkFragments * static_cast<int64_t>(sizeof(InputFragment)) +
                             kChunkSums * static_cast<int64_t>(sizeof(float));
  return static_cast<int64_t>(tiles_of(rows, kTileRows)) * chunks_of(in) * kBytes;
}

}  // namespace specdec::cuda
