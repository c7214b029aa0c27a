#pragma once
// The pairs of a token and one of its experts that a block multiplies with an expert's matrix.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"

namespace specdec::cuda {

/// Up to kPairs pairs of an expert, in shared memory of a block of kThreads.
template <int kThreads, int kPairs>
struct PairList {
  int32_t pairs[kPairs];               ///< -1 = none
  unsigned matches[kThreads / kWarp];  ///< of neighbouring pairs, a bit each
  int32_t counts[kThreads / kWarp];
};

/// How many pairs before `pair` have its expert; in every thread.
template <int kThreads, int kPairs>
__device__ inline int32_t rank_among_equals(const ExpertLinearTask& task, int32_t pair,
                                            int32_t expert, PairList<kThreads, kPairs>& list) {
  int32_t count = 0;
  for (auto p = static_cast<int32_t>(threadIdx.x); p < pair; p += kThreads) {
    count += task.experts[p] == expert ? 1 : 0;
  }
  return block_sum<kThreads>(count, list.counts);
}

/// Lists the first kPairs pairs of an expert from `first` on, or all there are; the whole block.
template <int kThreads, int kPairs>
__device__ inline void list_pairs(const ExpertLinearTask& task, int32_t first, int32_t expert,
                                  PairList<kThreads, kPairs>& list) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < kPairs) {
    list.pairs[thread] = -1;
  }
  int32_t found = 0;
  for (; first < task.pairs && found < kPairs; first += kThreads) {
    const int32_t p = first + thread;
    const bool matches = p < task.pairs && task.experts[p] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, matches ? 1 : 0);
    if (lane_index() == 0) {
      list.matches[warp_index()] = votes;
    }
    __syncthreads();
    int32_t index = found;
    for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) {
      const unsigned bits = list.matches[warp];
      index += warp < warp_index() ? __popc(bits) : 0;
      found += __popc(bits);
    }
    index += __popc(votes & ((1U << lane_index()) - 1U));
    if (matches && index < kPairs) {
      list.pairs[index] = p;
    }
    __syncthreads();
  }
}

}  // namespace specdec::cuda
