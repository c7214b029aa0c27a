#include "core/kernels/cuda/best.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;  // loads in flight of a thread

SPECDEC_DEVICE int32_t argmax_chunks(int32_t size) {
  return (size + kCudaArgmaxChunk - 1) / kCudaArgmaxChunk;
}

/// A block looks through a chunk of a row.
__global__ void __launch_bounds__(kThreads) argmax_chunk_kernel(ArgmaxTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<Best*>(shared_memory());
  const float* row = task.rows + static_cast<int64_t>(blockIdx.x) * task.stride;
  const int begin = static_cast<int>(blockIdx.y) * kCudaArgmaxChunk;
  const int end = begin + kCudaArgmaxChunk < task.size ? begin + kCudaArgmaxChunk : task.size;
  Best best = no_best();
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
        best = best_of_both(best, best_of_one(numbers[i], id));
      }
    }
  }
  best = best_of_block<kThreads>(best, scratch);
  if (threadIdx.x != 0) {
    return;
  }
  float* out = task.workspace + 3 * (static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y);
  out[0] = best.number;
  out[1] = device::float_of(static_cast<uint32_t>(best.id));
  out[2] = best.second;
}

/// A warp joins a row's chunks.
__global__ void __launch_bounds__(kWarp) argmax_kernel(ArgmaxTask task) {
  await_earlier_kernels();
  const int32_t chunks = argmax_chunks(task.size);
  Best best = no_best();
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kWarp) {
    const float* found = task.workspace + 3 * (static_cast<int64_t>(blockIdx.x) * chunks + chunk);
    best =
        best_of_both(best, {found[0], static_cast<int32_t>(device::bits_of(found[1])), found[2]});
  }
  best = best_of_warp(best);
  if (threadIdx.x == 0) {
    task.ids[blockIdx.x] = best.id;
    if (task.tokens != nullptr) {
      const int32_t id = best.id < 0 ? 0 : best.id;
      task.tokens[blockIdx.x] = task.names != nullptr ? task.names[id] : id;
    }
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
