#pragma once
// Reductions of a warp and a block, in an order that the number of threads fixes.
#include <cuda_launch.h>

namespace specdec::cuda {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// Warps of a block are numbered from 0.
__device__ inline unsigned warp_index() { return threadIdx.x / kWarp; }
__device__ inline unsigned lane_index() { return threadIdx.x % kWarp; }

/// Sum of the warp's numbers, in every lane: the same bits in each, since a + b is b + a.
template <class Real>
__device__ inline Real warp_sum(Real number) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    number += __shfl_xor_sync(kAllLanes, number, lanes);
  }
  return number;
}

/// A lane's half of the first 2 * kHalf numbers, added to those of the lane that takes the other
/// half; then half of these.
template <int kHalf, int kCount>
__device__ inline void halve_sums(float (&numbers)[kCount]) {
  if constexpr (kHalf > 0) {
    constexpr int kLanes = kWarp / kCount * kHalf;
    const bool takes_upper = (lane_index() & kLanes) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = takes_upper ? numbers[kHalf + i] : numbers[i];
      const float passed = takes_upper ? numbers[i] : numbers[kHalf + i];
      numbers[i] = kept + __shfl_xor_sync(kAllLanes, passed, kLanes);
    }
    halve_sums<kHalf / 2>(numbers);
  }
}

/// Sums over the warp of each of a lane's kCount numbers; lane l gets sum number l / (kWarp /
/// kCount). The bits are those of warp_sum, in kCount - 1 shuffles instead of kCount log2(kCount)
/// for the first log2(kCount) steps. Overwrites `numbers`.
template <int kCount>
__device__ inline float warp_sums(float (&numbers)[kCount]) {
  static_assert(kCount <= kWarp && (kCount & (kCount - 1)) == 0, "a power of two");
  halve_sums<kCount / 2>(numbers);
  for (int lanes = kWarp / kCount / 2; lanes > 0; lanes /= 2) {
    numbers[0] += __shfl_xor_sync(kAllLanes, numbers[0], lanes);
  }
  return numbers[0];
}

/// Largest of the warp's numbers, in every lane; none is NaN.
__device__ inline float warp_largest(float number) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, number, lanes);
    number = other > number ? other : number;
  }
  return number;
}

/// Sum of the block's numbers, in every thread. `scratch`: a number for each warp, in shared
/// memory; it may be used again at once.
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
