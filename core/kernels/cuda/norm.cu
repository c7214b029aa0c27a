#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;

/// A block normalises a row.
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(RmsNormTask task) {
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const int64_t first = static_cast<int64_t>(blockIdx.x) * task.size;
  const float* input = task.input + first;
  float* out = task.out + first;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0.0F;
  for (int i = thread; i < task.size; i += kThreads) {
    sum = device::fused(input[i], input[i], sum);
  }
  sum = block_sum<kThreads>(sum, scratch);
  const float inverse = 1.0F / sqrtf(sum / static_cast<float>(task.size) + task.eps);
  for (int i = thread; i < task.size; i += kThreads) {
    const float normed = device::rounded_product(input[i] * inverse, task.scale[i]);
    out[i] = task.add ? out[i] + normed : normed;
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
