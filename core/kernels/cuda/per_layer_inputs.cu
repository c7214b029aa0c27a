// Gemma 3n's sparse gate and the layers' own inputs.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;

/// A block takes a row; sums in float64, as on the host.
__global__ void __launch_bounds__(kThreads) cut_gate_kernel(CutGateTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  float* gate = task.gate_up + static_cast<int64_t>(blockIdx.x) * 2 * task.size;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  double sum = 0.0;
  for (int32_t i = thread; i < task.size; i += kThreads) {
    sum += static_cast<double>(gate[i]);
  }
  const double mean = block_sum<kThreads>(sum, scratch) / task.size;
  double squares = 0.0;
  for (int32_t i = thread; i < task.size; i += kThreads) {
    const double distance = static_cast<double>(gate[i]) - mean;
    squares += distance * distance;
  }
  squares = block_sum<kThreads>(squares, scratch);
  const auto cut =
      static_cast<float>(mean + static_cast<double>(task.deviations) * sqrt(squares / task.size));
  for (int32_t i = thread; i < task.size; i += kThreads) {
    const float above = gate[i] - cut;
    gate[i] = above < 0.0F ? 0.0F : above;
  }
}

/// A block takes a layer of a token.
__global__ void __launch_bounds__(kThreads) per_layer_kernel(PerLayerInputsTask task) {
  await_earlier_kernels();
  constexpr float kRootOfHalf = 0.70710678118654752F;
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const int64_t from = static_cast<int64_t>(blockIdx.x) * task.size;
  const auto row = static_cast<int64_t>(blockIdx.x) / task.layers;
  const auto layer = static_cast<int64_t>(blockIdx.x) % task.layers;
  const float* context = task.context + from;
  const float* token = task.token + from;
  float* out = task.out + (layer * task.rows + row) * task.size;
  float sum = 0.0F;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < task.size; i += kThreads) {
    const float x = context[i] * task.context_scale;
    sum = device::fused(x, x, sum);
  }
  sum = block_sum<kThreads>(sum, scratch);
  const float factor = 1.0F / sqrtf(sum / static_cast<float>(task.size) + task.eps);
  for (auto i = static_cast<int32_t>(threadIdx.x); i < task.size; i += kThreads) {
    const float normed =
        device::rounded_product(context[i] * task.context_scale * factor, task.norm[i]);
    out[i] = (normed + token[i]) * kRootOfHalf;
  }
}

LaunchShape shape_of(int64_t blocks, unsigned number_bytes) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(blocks);
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * number_bytes;
  return shape;
}

}  // namespace

int specdec_cuda_cut_gate(const CutGateTask* task, void* stream) {
  if (task->rows == 0) {
    return 0;
  }
  if (task->rows < 0 || task->size <= 0) {
    return kInvalidValue;
  }
  return launch(cut_gate_kernel, shape_of(task->rows, sizeof(double)), stream, *task);
}

int specdec_cuda_per_layer_inputs(const PerLayerInputsTask* task, void* stream) {
  const int64_t blocks = static_cast<int64_t>(task->rows) * task->layers;
  if (blocks == 0) {
    return 0;
  }
  if (blocks < 0 || blocks > INT32_MAX || task->size <= 0) {
    return kInvalidValue;
  }
  return launch(per_layer_kernel, shape_of(blocks, sizeof(float)), stream, *task);
}

}  // namespace specdec::cuda
