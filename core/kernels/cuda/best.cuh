#pragma once
// The two largest of a row of numbers, and the id of the largest.
#include <cuda_launch.h>

#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {

/// Largest of some numbers of a row, its id, and the second largest.
struct Best {
  float number;
  int32_t id;  ///< -1: `number` is a NaN, which is better than all
  float second;
};

/// The best of no number.
__device__ inline Best no_best() {
  return {device::minus_infinity(), INT32_MAX, device::minus_infinity()};
}

/// The best of one number.
__device__ inline Best best_of_one(float number, int32_t id) {
  return {number, number == number ? id : -1, device::minus_infinity()};
}

/// Whether `a` comes before `b`: the larger, of equal ones the lower id.
__device__ inline bool is_better(Best a, Best b) {
  if (a.id < 0 || b.id < 0) {
    return a.id < 0;
  }
  return a.number > b.number || (a.number == b.number && a.id < b.id);
}

/// The best of both, with the second largest of all.
__device__ inline Best best_of_both(Best a, Best b) {
  const bool first = is_better(a, b);
  Best best = first ? a : b;
  const float other = first ? b.number : a.number;
  best.second = other > best.second ? other : best.second;
  return best;
}

/// The best of the warp's, in every lane.
__device__ inline Best best_of_warp(Best best) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.number, lanes),
                        __shfl_xor_sync(kAllLanes, best.id, lanes),
                        __shfl_xor_sync(kAllLanes, best.second, lanes)};
    best = best_of_both(best, other);
  }
  return best;
}

/// The best of the block's, in thread 0. `scratch`: one for each warp, in shared memory.
template <int kThreads>
__device__ inline Best best_of_block(Best best, Best* scratch) {
  best = best_of_warp(best);
  if (lane_index() == 0) {
    scratch[warp_index()] = best;
  }
  __syncthreads();
  for (int warp = 1; threadIdx.x == 0 && warp < kThreads / kWarp; ++warp) {
    best = best_of_both(best, scratch[warp]);
  }
  return best;
}

}  // namespace specdec::cuda
