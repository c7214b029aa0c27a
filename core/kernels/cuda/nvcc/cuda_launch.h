#pragma once
// What kernels are written with, compiled by nvcc; see core/kernels/cuda/emulation/cuda_launch.h.
#include <cuda_runtime.h>

#include <cstdint>

#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {

/// The block's shared memory: as many bytes as the launch asks for.
__device__ inline unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

/// c += a * b: tiles that the lanes of a warp hold as mma.m16n8k16 of bfloat16 says.
__device__ inline void multiply_tiles(float (&c)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Lets a kernel have so many bytes of shared memory. The limit is the kernel's, graphs that were
/// recorded with more may be launched again: it is never lowered.
template <class Task>
cudaError_t allow_shared_bytes(void (*kernel)(Task), unsigned bytes) {
  constexpr unsigned kDefaultSharedBytes = 48U << 10U;
  if (bytes <= kDefaultSharedBytes) {
    return cudaSuccess;
  }
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  const auto wanted = static_cast<int>(bytes);
  if (error != cudaSuccess || attributes.maxDynamicSharedSizeBytes >= wanted) {
    return error;
  }
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted);
}

/// Runs kernel(task) on a stream (cudaStream_t); returns the error of the launch, 0 = none.
template <class Task>
int launch(void (*kernel)(Task), const LaunchShape& shape, void* stream, const Task& task) {
  const cudaError_t error = allow_shared_bytes(kernel, shape.shared_bytes);
  if (error != cudaSuccess) {
    return error;
  }
  const dim3 grid(shape.grid_x, shape.grid_y, shape.grid_z);
  kernel<<<grid, shape.threads, shape.shared_bytes, static_cast<cudaStream_t>(stream)>>>(task);
  return cudaGetLastError();
}

}  // namespace specdec::cuda
