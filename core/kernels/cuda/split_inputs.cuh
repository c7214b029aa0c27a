#pragma once
// Inputs of products on tensor cores, split into bfloat16 numbers that carry all their bits: by the
// kernel that writes them, or by one of their own; tensor_product.cuh says how they lie in memory.
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {

constexpr int kSplitLanes = 4;     // that hold the inputs of a row in a step
constexpr int kSharedInputs = 32;  // of which such lanes make the sums, a fourth each
static_assert(kSplitDim % kSharedInputs == 0 && kSharedInputs == 2 * kSumInputs);

/// Input up to which a row is split: zeros follow the row's end.
SPECDEC_DEVICE int32_t split_end(int32_t in) { return chunks_of(in) * kChunkInputs; }

/// A lane's fragments of all parts of a step. `numbers`: the row's.
__device__ inline void split_step(const SplitInputs& to, int32_t row, const float* numbers,
                                  int32_t step) {
  const auto lane = static_cast<int>(threadIdx.x) % kSplitLanes;
  InputFragment fragments[kParts] = {};
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    const int32_t k = step * kStepInputs + fragment_input(lane, word);
    uint32_t parts[kParts];
    split_pair(k < to.in ? numbers[k] : 0.0F, k + 1 < to.in ? numbers[k + 1] : 0.0F, parts);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      fragments[part].word[word] = parts[part];
    }
  }
  InputFragment* out = to.fragments(row / kTileRows) + static_cast<int64_t>(step) * kParts * kWarp +
                       row % kTileRows * kSplitLanes + lane;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    out[part * kWarp] = fragments[part];
  }
}

/// A lane's share of the sums of kSharedInputs inputs from a step on: the first two lanes have the
/// first kSumInputs.
__device__ inline float sum_share(const SplitInputs& to, const float* numbers, int32_t step) {
  constexpr int kShare = kSharedInputs / kSplitLanes;
  const auto lane = static_cast<int>(threadIdx.x) % kSplitLanes;
  const int32_t first = step * kStepInputs + lane * kShare;
  float sum = 0.0F;
  for (int32_t k = first; k < first + kShare && k < to.in; ++k) {
    sum += numbers[k];
  }
  return sum;
}

/// Splits columns [first, end) of a row whose numbers the block has written, or nobody writes any
/// more. All threads of the block call it; it begins with a barrier. `first` and `end`: multiples
/// of kSharedInputs, `end` at most split_end().
template <int kThreads>
__device__ inline void split_columns(const SplitInputs& to, int32_t row, const float* numbers,
                                     int32_t first, int32_t end) {
  constexpr int kSharedSteps = kSharedInputs / kStepInputs;
  constexpr int32_t kBlockSteps = kThreads / kSplitLanes;
  const auto thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  for (int32_t begin = first / kStepInputs; begin < end / kStepInputs; begin += kBlockSteps) {
    const int32_t step = begin + thread / kSplitLanes;
    const bool exists = step < end / kStepInputs;
    if (exists) {
      split_step(to, row, numbers, step);
    }
    const bool is_summed = exists && step % kSharedSteps == 0;
    float sum = is_summed ? sum_share(to, numbers, step) : 0.0F;
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    if (is_summed && thread % 2 == 0) {
      const int32_t group = step % kSteps + thread % kSplitLanes / 2;
      to.sums(row / kTileRows)[step / kSteps * kChunkSums + group * kTileRows + row % kTileRows] =
          sum;
    }
  }
}

}  // namespace specdec::cuda
