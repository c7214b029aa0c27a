#pragma once
#include <cuda_launch.h>

#include "core/kernels/device/portable.h"

namespace specdec::cuda {

/// What core/kernels/hadamard.h does to a head, in shared memory, to the same bits: `out` may be
/// `numbers`. The whole block, of kThreads. It waits for writes to `numbers` before it begins, and
/// thread t writes the dimensions t, t + kThreads, ... of `out`.
template <int kThreads>
__device__ inline void hadamard_head(float* numbers, int head_dim, float* out) {
  const int block = head_dim & -head_dim;
  for (int half = 1; half < block; half *= 2) {
    __syncthreads();
    for (int pair = static_cast<int>(threadIdx.x); pair < head_dim / 2; pair += kThreads) {
      const int first = 2 * pair - pair % half;
      const float low = numbers[first];
      const float high = numbers[first + half];
      numbers[first] = low + high;
      numbers[first + half] = low - high;
    }
  }
  __syncthreads();
  const float factor = 1.0F / device::square_root(static_cast<float>(block));
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kThreads) {
    out[d] = numbers[d] * factor;
  }
}

}  // namespace specdec::cuda
