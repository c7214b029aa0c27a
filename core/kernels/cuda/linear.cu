// Products of rows with a matrix in float32, and rows of a table. A block computes kProductOutputs
// outputs of some rows.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/row_product.cuh"

namespace specdec::cuda {
namespace {

constexpr int kMaxRows = 8;

struct LinearKernelTask {
  LinearTask task;
  RowProduct product;
};

template <int kRows>
__global__ void __launch_bounds__(kProductThreads) linear_kernel(LinearKernelTask kernel_task) {
  await_earlier_kernels();
  const LinearTask& task = kernel_task.task;
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kProductOutputs;
  const auto first_row = static_cast<int32_t>(blockIdx.y) * kRows;
  const auto rows = [&](int r) { return first_row + r < task.rows ? first_row + r : -1; };
  const float sum = row_product<kRows>(kernel_task.product, first_output, rows,
                                       reinterpret_cast<float*>(shared_memory()));
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t row = first_row + thread / kProductOutputs;
  const int32_t output = first_output + thread % kProductOutputs;
  if (thread < kRows * kProductOutputs && row < task.rows && output < task.outputs) {
    task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
  }
}

/// A block reads one row.
__global__ void __launch_bounds__(kProductThreads) embed_kernel(EmbedRowsTask task) {
  await_earlier_kernels();
  const auto index = static_cast<int64_t>(blockIdx.x);
  const float* row =
      static_cast<const float*>(task.weight) + static_cast<int64_t>(task.ids[index]) * task.in;
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kProductThreads) {
    task.out[index * task.in + k] = row[k] * task.factor;
  }
}

template <int kRows>
int launch_linear(const LinearTask& task, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task.outputs + kProductOutputs - 1) / kProductOutputs);
  shape.grid_y = static_cast<unsigned>((task.rows + kRows - 1) / kRows);
  if (shape.grid_y > kMaxGridY) {
    return kInvalidValue;
  }
  shape.threads = kProductThreads;
  shape.shared_bytes = kProductSharedBytes<kRows>;
  const LinearKernelTask kernel_task = {
      task,
      {task.weight, task.input, task.in, task.outputs, reads_by_eight(task.weight, task.in),
       reads_by_eight(task.input, task.in)}};
  return launch(linear_kernel<kRows>, shape, stream, kernel_task);
}

}  // namespace

int specdec_cuda_linear(const LinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  return task->rows == 1 ? launch_linear<1>(*task, stream) : launch_linear<kMaxRows>(*task, stream);
}

int specdec_cuda_embed_rows(const EmbedRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  if (task->format != WeightFormat::kFloat32) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->count);
  shape.threads = kProductThreads;
  return launch(embed_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
