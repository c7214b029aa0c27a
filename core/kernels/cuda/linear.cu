// Products of rows with a matrix, and rows of a table. A block computes kProductOutputs outputs of
// some rows.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/row_product.cuh"

namespace specdec::cuda {
namespace {

constexpr int kMaxRows = 8;

template <class Weights>
struct LinearKernelTask {
  LinearTask task;
  RowProduct<Weights> product;
};

template <class Weights, int kRows>
__global__ void __launch_bounds__(kProductThreads)
    linear_kernel(LinearKernelTask<Weights> kernel_task) {
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

template <class Weights>
struct EmbedKernelTask {
  EmbedRowsTask task;
  Weights format;
};

/// A block reads one row.
template <class Weights>
__global__ void __launch_bounds__(kProductThreads)
    embed_kernel(EmbedKernelTask<Weights> kernel_task) {
  const EmbedRowsTask& task = kernel_task.task;
  const auto index = static_cast<int64_t>(blockIdx.x);
  const Bytes row = static_cast<Bytes>(task.weight) + task.ids[index] * row_bytes<Weights>(task.in);
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kProductThreads) {
    task.out[index * task.in + k] = kernel_task.format.at(row, k) * task.factor;
  }
}

template <int kRows, class Weights>
int launch_linear(const LinearTask& task, Weights format, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task.outputs + kProductOutputs - 1) / kProductOutputs);
  shape.grid_y = static_cast<unsigned>((task.rows + kRows - 1) / kRows);
  if (shape.grid_y > kMaxGridY) {
    return kInvalidValue;
  }
  shape.threads = kProductThreads;
  shape.shared_bytes = kProductSharedBytes<kRows>;
  const LinearKernelTask<Weights> kernel_task = {
      task,
      {format, task.weight, task.input, task.in, task.outputs,
       reads_eight<Weights>(task.weight, task.in), reads_inputs_by_eight(task.input, task.in)}};
  return launch(linear_kernel<Weights, kRows>, shape, stream, kernel_task);
}

}  // namespace

int specdec_cuda_linear(const LinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  return with_format(task->format, [&](auto weights) {
    using Weights = decltype(weights);
    if (task->in % Weights::kBlock != 0) {
      return kInvalidValue;
    }
    return task->rows == 1 ? launch_linear<1>(*task, weights, stream)
                           : launch_linear<kMaxRows>(*task, weights, stream);
  });
}

int specdec_cuda_embed_rows(const EmbedRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  return with_format(task->format, [&](auto weights) {
    using Weights = decltype(weights);
    if (task->in % Weights::kBlock != 0) {
      return kInvalidValue;
    }
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(task->count);
    shape.threads = kProductThreads;
    return launch(embed_kernel<Weights>, shape, stream, EmbedKernelTask<Weights>{*task, weights});
  });
}

}  // namespace specdec::cuda
