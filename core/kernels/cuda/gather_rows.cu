#include <cuda_launch.h>

#include "core/kernels/cuda/gather_kernels.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;

/// A thread copies an element.
__global__ void __launch_bounds__(kThreads) gather_rows_kernel(GatherRowsTask task) {
  await_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<int64_t>(task.rows) * task.columns) {
    return;
  }
  const int64_t row = i / task.columns;
  const int64_t column = i - row * task.columns;
  task.out[i] = task.input[static_cast<int64_t>(task.sources[row]) * task.columns + column];
}

}  // namespace

int specdec_cuda_gather_rows(const GatherRowsTask* task, void* stream) {
  if (task->rows < 0 || task->columns < 0) {
    return kInvalidValue;
  }
  const int64_t elements = static_cast<int64_t>(task->rows) * task->columns;
  if (elements == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(gather_rows_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
