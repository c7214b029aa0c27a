#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/split_inputs.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;

/// (mean(row^2) + eps)^-1/2 of the block's row, of which each thread reads what it writes.
__device__ inline float inverse_rms(const float* row, const RmsNormTask& task) {
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < task.size; i += kThreads) {
    sum = device::fused(row[i], row[i], sum);
  }
  sum = block_sum<kThreads>(sum, scratch);
  return 1.0F / sqrtf(sum / static_cast<float>(task.size) + task.eps);
}

/// A block normalises a row.
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(RmsNormTask task) {
  await_earlier_kernels();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * task.size;
  const float* input = task.input + first;
  float* out = task.out + first;
  const int thread = static_cast<int>(threadIdx.x);
  const float inverse = task.scale == nullptr ? 1.0F : inverse_rms(input, task);
  for (int i = thread; i < task.size; i += kThreads) {
    const float normed = task.scale == nullptr
                             ? input[i]
                             : device::rounded_product(input[i] * inverse, task.scale[i]);
    out[i] = task.add ? out[i] + normed : normed;
  }
  const float* last = out;
  if (task.next != nullptr) {
    const float again = inverse_rms(out, task);
    for (int i = thread; i < task.size; i += kThreads) {
      task.normed[first + i] = device::rounded_product(out[i] * again, task.next[i]);
    }
    last = task.normed + first;
  }
  if (task.split != nullptr) {
    split_columns<kThreads>({task.split, task.rows, task.size}, static_cast<int32_t>(blockIdx.x),
                            last, 0, split_end(task.size));
  }
}

}  // namespace

int specdec_cuda_rms_norm(const RmsNormTask* task, void* stream) {
  if (task->rows == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->rows);
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(float);
  return launch(rms_norm_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
