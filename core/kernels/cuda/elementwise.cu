#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/split_inputs.cuh"
#include "core/kernels/device/activations.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;

/// The element of this thread.
__device__ inline int64_t element() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

LaunchShape shape_for(int64_t elements) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return shape;
}

/// Blocks of a row, a column a thread.
SPECDEC_DEVICE int64_t row_blocks(int64_t size) { return (size + kThreads - 1) / kThreads; }

/// A block computes kThreads columns of a row.
__global__ void __launch_bounds__(kThreads) gated_activation_kernel(GatedActivationTask task) {
  await_earlier_kernels();
  const int64_t row = static_cast<int64_t>(blockIdx.x) / row_blocks(task.size);
  const int64_t first = static_cast<int64_t>(blockIdx.x) % row_blocks(task.size) * kThreads;
  const int64_t column = first + threadIdx.x;
  float* out = task.out + row * task.size;
  if (column < task.size) {
    const float* gate = task.gate_up + row * 2 * task.size + column;
    const float activated = task.silu ? device::silu(*gate) : device::gelu_tanh(*gate);
    out[column] = activated * gate[task.size];
  }
  if (task.split != nullptr) {
    const auto size = static_cast<int32_t>(task.size);
    const auto begin = static_cast<int32_t>(first);
    const int32_t end = split_end(size);
    split_columns<kThreads>({task.split, static_cast<int32_t>(task.rows), size},
                            static_cast<int32_t>(row), out, begin,
                            begin + kThreads < end ? begin + kThreads : end);
  }
}

__global__ void __launch_bounds__(kThreads) elementwise_kernel(ElementwiseTask task) {
  await_earlier_kernels();
  const int64_t i = element();
  if (i >= task.size) {
    return;
  }
  switch (task.kind) {
    case ElementwiseTask::Kind::kAdd:
      task.out[i] += task.input[i];
      return;
    case ElementwiseTask::Kind::kSoftCap:
      task.out[i] = device::soft_cap(task.input[i], task.number);
      return;
  }
}

__global__ void __launch_bounds__(kThreads) copy_rows_kernel(CopyRowsTask task) {
  await_earlier_kernels();
  const int64_t i = element();
  if (i >= task.rows * task.columns) {
    return;
  }
  const int64_t row = i / task.columns;
  const int64_t column = i - row * task.columns;
  const float number = task.factor * task.input[i];
  task.out[row * task.out_stride + column] =
      task.scale == nullptr ? number : number * task.scale[column];
}

/// A thread forbids a column of a row: the unusable ones first, then those that are named.
__global__ void __launch_bounds__(kThreads) forbid_kernel(ForbidTask task) {
  await_earlier_kernels();
  const int64_t unusable = task.size - task.usable;
  const int64_t columns = unusable + task.count;
  const int64_t i = element();
  if (i >= task.rows * columns) {
    return;
  }
  const int64_t row = i / columns;
  const int64_t index = i - row * columns;
  const int64_t column = index < unusable ? task.usable + index : task.suppressed[index - unusable];
  task.logits[row * task.size + column] = device::minus_infinity();
}

}  // namespace

int specdec_cuda_gated_activation(const GatedActivationTask* task, void* stream) {
  const int64_t blocks = task->rows * row_blocks(task->size);
  return blocks == 0 ? 0
                     : launch(gated_activation_kernel, shape_for(blocks * kThreads), stream, *task);
}

int specdec_cuda_elementwise(const ElementwiseTask* task, void* stream) {
  return task->size == 0 ? 0 : launch(elementwise_kernel, shape_for(task->size), stream, *task);
}

int specdec_cuda_copy_rows(const CopyRowsTask* task, void* stream) {
  if (task->rows < 0 || task->columns < 0 || task->out_stride < task->columns) {
    return kInvalidValue;
  }
  const int64_t elements = task->rows * task->columns;
  return elements == 0 ? 0 : launch(copy_rows_kernel, shape_for(elements), stream, *task);
}

int specdec_cuda_forbid(const ForbidTask* task, void* stream) {
  if (task->usable < 0 || task->usable > task->size || task->count < 0) {
    return kInvalidValue;
  }
  const int64_t elements =
      static_cast<int64_t>(task->rows) * (task->size - task->usable + task->count);
  return elements == 0 ? 0 : launch(forbid_kernel, shape_for(elements), stream, *task);
}

}  // namespace specdec::cuda
