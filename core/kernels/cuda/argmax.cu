#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;  // loads in flight of a thread

/// Of some numbers of a row: the largest, its id, and the second largest.
struct Best {
  float number;
  int32_t id;  ///< -1: of a NaN, which is better than all
  float second;
};

__device__ inline Best none() {
  return {device::minus_infinity(), INT32_MAX, device::minus_infinity()};
}

__device__ inline bool is_better(Best a, Best b) {
  if (a.id < 0 || b.id < 0) {
    return a.id < 0;
  }
  return a.number > b.number || (a.number == b.number && a.id < b.id);
}

/// Of both sets of numbers.
__device__ inline Best joined(Best a, Best b) {
  const bool first = is_better(a, b);
  Best best = first ? a : b;
  const float other = first ? b.number : a.number;
  best.second = other > best.second ? other : best.second;
  return best;
}

__device__ inline Best joined_in_warp(Best best) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.number, lanes),
                        __shfl_xor_sync(kAllLanes, best.id, lanes),
                        __shfl_xor_sync(kAllLanes, best.second, lanes)};
    best = joined(best, other);
  }
  return best;
}

SPECDEC_DEVICE int32_t argmax_chunks(int32_t size) {
  return (size + kCudaArgmaxChunk - 1) / kCudaArgmaxChunk;
}

/// A block looks through a chunk of a row.
__global__ void __launch_bounds__(kThreads) argmax_chunk_kernel(ArgmaxTask task) {
  auto* scratch = reinterpret_cast<Best*>(shared_memory());
  const float* row = task.rows + static_cast<int64_t>(blockIdx.x) * task.stride;
  const int begin = static_cast<int>(blockIdx.y) * kCudaArgmaxChunk;
  const int end = begin + kCudaArgmaxChunk < task.size ? begin + kCudaArgmaxChunk : task.size;
  Best best = none();
  for (int first = begin + static_cast<int>(threadIdx.x); first < end;
       first += kUnrolled * kThreads) {
    float numbers[kUnrolled];
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      const int id = first + i * kThreads;
      numbers[i] = id < end ? row[id] : device::minus_infinity();
    }
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      const int id = first + i * kThreads;
      if (id < end) {
        best = joined(best,
                      {numbers[i], numbers[i] == numbers[i] ? id : -1, device::minus_infinity()});
      }
    }
  }
  best = joined_in_warp(best);
  if (lane_index() == 0) {
    scratch[warp_index()] = best;
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    best = joined(best, scratch[warp]);
  }
  float* out = task.workspace + 3 * (static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y);
  out[0] = best.number;
  out[1] = device::float_of(static_cast<uint32_t>(best.id));
  out[2] = best.second;
}

/// A warp joins a row's chunks.
__global__ void __launch_bounds__(kWarp) argmax_kernel(ArgmaxTask task) {
  const int32_t chunks = argmax_chunks(task.size);
  Best best = none();
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kWarp) {
    const float* found = task.workspace + 3 * (static_cast<int64_t>(blockIdx.x) * chunks + chunk);
    best = joined(best, {found[0], static_cast<int32_t>(device::bits_of(found[1])), found[2]});
  }
  best = joined_in_warp(best);
  if (threadIdx.x == 0) {
    task.ids[blockIdx.x] = best.id;
    task.largest[2 * blockIdx.x] = best.number;
    task.largest[2 * blockIdx.x + 1] = best.second;
  }
}

}  // namespace

int64_t specdec_cuda_argmax_workspace(const ArgmaxTask* task) {
  return int64_t{3} * task->count * argmax_chunks(task->size);
}

int specdec_cuda_argmax(const ArgmaxTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->count);
  shape.grid_y = static_cast<unsigned>(argmax_chunks(task->size));
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(Best);
  if (const int error = launch(argmax_chunk_kernel, shape, stream, *task); error != 0) {
    return error;
  }
  LaunchShape join;
  join.grid_x = static_cast<unsigned>(task->count);
  join.threads = kWarp;
  return launch(argmax_kernel, join, stream, *task);
}

}  // namespace specdec::cuda
