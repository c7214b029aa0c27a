#pragma once
// What kernels are written with, compiled by nvcc; see core/kernels/cuda/emulation/cuda_launch.h.
#include <cuda_runtime.h>

#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {

/// The block's shared memory: as many bytes as the launch asks for.
__device__ inline unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

/// Runs kernel(task) on a stream (cudaStream_t); returns the error of the launch, 0 = none.
template <class Task>
int launch(void (*kernel)(Task), const LaunchShape& shape, void* stream, const Task& task) {
  constexpr unsigned kDefaultSharedBytes = 48U << 10U;
  if (shape.shared_bytes > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) {
      return error;
    }
  }
  const dim3 grid(shape.grid_x, shape.grid_y, shape.grid_z);
  kernel<<<grid, shape.threads, shape.shared_bytes, static_cast<cudaStream_t>(stream)>>>(task);
  return cudaGetLastError();
}

}  // namespace specdec::cuda
