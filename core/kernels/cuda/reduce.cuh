#pragma once
// Reductions of a warp and a block, in an order that the number of threads fixes.
#include <cuda_launch.h>

namespace specdec::cuda {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// Warps of a block are numbered from 0.
__device__ inline unsigned warp_index() { return threadIdx.x / kWarp; }
__device__ inline unsigned lane_index() { return threadIdx.x % kWarp; }

/// Of the warp's numbers, in every lane: the same bits in each, since a + b is b + a.
template <class Real>
__device__ inline Real warp_sum(Real number) {
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

/// Of the block's numbers, in every thread. `scratch`: a number for each warp, in shared memory; it
/// may be used again at once.
template <int kThreads, class Real>
__device__ inline Real block_sum(Real number, Real* scratch) {
  number = warp_sum(number);
  if (lane_index() == 0) {
    scratch[warp_index()] = number;
  }
  __syncthreads();
  Real sum = scratch[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    sum += scratch[warp];
  }
  __syncthreads();
  return sum;
}

/// The largest, of numbers that are not NaN; else as block_sum.
template <int kThreads>
__device__ inline float block_largest(float number, float* scratch) {
  number = warp_largest(number);
  if (lane_index() == 0) {
    scratch[warp_index()] = number;
  }
  __syncthreads();
  float largest = scratch[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    largest = scratch[warp] > largest ? scratch[warp] : largest;
  }
  __syncthreads();
  return largest;
}

}  // namespace specdec::cuda
