#pragma once
// Reductions of a warp and a block, in an order that the number of threads fixes.
#include <cuda_launch.h>

namespace specdec::cuda {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// Warps of a block are numbered from 0.
__device__ inline unsigned warp_index() { return threadIdx.x / kWarp; }
__device__ inline unsigned lane_index() { return threadIdx.x % kWarp; }

/// Of the warp's numbers, in every lane: the same bits in each, since a + b is b + a.
__device__ inline float warp_sum(float number) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    number += __shfl_xor_sync(kAllLanes, number, lanes);
  }
  return number;
}

/// Of numbers that are not NaN.
__device__ inline float warp_largest(float number) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, number, lanes);
    number = other > number ? other : number;
  }
  return number;
}

/// Of the block's numbers, in every thread. `scratch`: a float for each warp, in shared memory; it
/// may be used again at once.
template <int kThreads>
__device__ inline float block_sum(float number, float* scratch) {
  number = warp_sum(number);
  if (lane_index() == 0) {
    scratch[warp_index()] = number;
  }
  __syncthreads();
  float sum = scratch[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    sum += scratch[warp];
  }
  __syncthreads();
  return sum;
}

}  // namespace specdec::cuda
