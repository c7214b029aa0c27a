#pragma once
// What kernels are written with, compiled by nvcc; see core/kernels/cuda/emulation/cuda_launch.h.
#include <cuda_runtime.h>
#include <launch_rules.h>

#include <array>
#include <cstdint>

#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {

/// The block's shared memory: as many bytes as the launch asks for.
__device__ inline unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

/// Blocks of the block's cluster: 1 = it was launched without.
__device__ inline unsigned cluster_blocks() {
#if __CUDA_ARCH__ >= 900
  unsigned blocks = 1;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
#else
  return 1;
#endif
}

/// Waits for all threads of the cluster, and shows them what each wrote before. A block whose
/// shared memory others read calls it before it ends, too.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// The number that block `block` of the cluster, whose threads have not ended, has where `own` lies
/// in this block's shared memory.
__device__ inline float read_shared_of(const float* own, unsigned block) {
#if __CUDA_ARCH__ >= 900
  float number = 0.0F;
  uint32_t there = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(number) : "r"(there) : "memory");
  return number;
#else
  (void)block;
  return *own;
#endif
}

/// Waits for all that was launched before on the stream, and lets the next kernel begin, which then
/// waits here itself. Each thread of each kernel calls it. What a kernel reads before must not be
/// written by the kernel right before it; those further back have ended. See Overlap in
/// docs/gpu.md.
__device__ inline void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// c += a * b: tiles that the lanes of a warp hold as mma.m16n8k16 of bfloat16 says. All lanes of
/// the warp execute it together, so it is volatile: nothing may move it into a branch of some.
__device__ inline void multiply_tiles(float (&c)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Runs kernel(task) on a stream (cudaStream_t); returns the error of the launch, 0 = none.
template <class Task>
int launch(void (*kernel)(Task), const LaunchShape& shape, void* stream, const Task& task) {
  const cudaError_t error =
      allow_shared_bytes(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  if (error != cudaSuccess) {
    return error;
  }
  std::array<cudaLaunchAttribute, 2> attributes = {};
  unsigned count = 0;
  if (may_begin_early(stream)) {
    cudaLaunchAttribute& early = attributes[count++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid_x, shape.grid_y, shape.grid_z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes.data();
  config.numAttrs = count;
  const cudaError_t launched = cudaLaunchKernelEx(&config, kernel, task);
  if (launched != cudaSuccess) {
    cudaGetLastError();  // else the next call's
  }
  return launched;
}

}  // namespace specdec::cuda
