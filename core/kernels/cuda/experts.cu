// Mixtures of experts: the router's choice, products of tokens with their experts' matrices, and
// the weighted sum of their outputs.
#include "core/kernels/cuda/expert_pairs.cuh"
#include "core/kernels/cuda/row_product.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPairs = 4;  // of an expert, of a block of expert_linear

/// An expert and its logit, as they are ordered: the likeliest first, the lower number on a tie.
struct Choice {
  float logit;
  int32_t expert;
};

__device__ inline bool goes_before(Choice a, Choice b) {
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

/// The first of a row's experts after `last`; a warp. NaN goes last.
__device__ inline Choice next_choice(const float* logits, int32_t count, Choice last) {
  Choice best = {device::minus_infinity(), INT32_MAX};
  for (auto expert = static_cast<int32_t>(lane_index()); expert < count; expert += kWarp) {
    const float logit = logits[expert];
    const Choice next = {logit == logit ? logit : device::minus_infinity(), expert};
    best = goes_before(last, next) && goes_before(next, best) ? next : best;
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Choice other = {__shfl_xor_sync(kAllLanes, best.logit, lanes),
                          __shfl_xor_sync(kAllLanes, best.expert, lanes)};
    best = goes_before(other, best) ? other : best;
  }
  return best;
}

/// A warp takes a row. The denominator of the softmax over all experts cancels out.
__global__ void __launch_bounds__(kWarp) route_kernel(RouteTask task) {
  await_earlier_kernels();
  const auto row = static_cast<int64_t>(blockIdx.x);
  const float* logits = task.logits + row * task.count;
  int32_t* experts = task.experts + row * task.chosen;
  float* weights = task.weights + row * task.chosen;
  Choice choice = {-device::minus_infinity(), -1};
  float largest = 0.0F;
  float total = 0.0F;
  for (int32_t rank = 0; rank < task.chosen; ++rank) {
    choice = next_choice(logits, task.count, choice);
    if (lane_index() == 0) {
      const float logit = logits[choice.expert];
      largest = rank == 0 ? logit : largest;
      const float weight = device::exponential(logit - largest);
      experts[rank] = choice.expert;
      weights[rank] = weight;
      total += weight;
    }
  }
  if (lane_index() == 0) {
    for (int32_t rank = 0; rank < task.chosen; ++rank) {
      weights[rank] = weights[rank] / total * task.output_scale[experts[rank]];
    }
  }
}

struct ExpertKernelTask {
  ExpertLinearTask task;
  RowProduct product;  ///< of expert 0
  int32_t first_pair;  ///< of the launch
};

__device__ inline const float* expert_matrix(const ExpertLinearTask& task, int32_t expert) {
  const auto* bytes = static_cast<const unsigned char*>(task.weight) + expert * task.expert_bytes;
  return reinterpret_cast<const float*>(bytes);
}

/// Shared memory of a block.
struct ExpertShared {
  float sums[kProductSharedBytes<kPairs> / sizeof(float)];
  PairList<kProductThreads, kPairs> list;
};

/// Grid (groups of outputs, pairs). The block of each kPairs-th pair of an expert computes that
/// pair and those up to the next such one; the others end.
__global__ void __launch_bounds__(kProductThreads) expert_kernel(ExpertKernelTask kernel_task) {
  await_earlier_kernels();
  const ExpertLinearTask& task = kernel_task.task;
  auto& shared = *reinterpret_cast<ExpertShared*>(shared_memory());
  const int32_t pair = kernel_task.first_pair + static_cast<int32_t>(blockIdx.y);
  const int32_t expert = task.experts[pair];
  if (expert < 0 || expert >= task.count ||
      rank_among_equals(task, pair, expert, shared.list) % kPairs != 0) {
    return;
  }
  list_pairs(task, pair, expert, shared.list);
  const int32_t* pairs = shared.list.pairs;
  RowProduct product = kernel_task.product;
  product.weight = expert_matrix(task, expert);
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kProductOutputs;
  const auto rows = [&](int r) { return pairs[r] < 0 ? -1 : pairs[r] / task.rows_share; };
  const float sum = row_product<kPairs>(product, first_output, rows, shared.sums);
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t output = first_output + thread % kProductOutputs;
  if (thread < kPairs * kProductOutputs && pairs[thread / kProductOutputs] >= 0 &&
      output < task.outputs) {
    task.out[static_cast<int64_t>(pairs[thread / kProductOutputs]) * task.outputs + output] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) expert_sum_kernel(ExpertSumTask task) {
  await_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<int64_t>(task.rows) * task.size) {
    return;
  }
  const int64_t row = i / task.size;
  const float* output = task.outputs + row * task.chosen * task.size + i % task.size;
  float sum = 0.0F;
  for (int32_t rank = 0; rank < task.chosen; ++rank) {
    sum = device::fused(task.weights[row * task.chosen + rank],
                        output[static_cast<int64_t>(rank) * task.size], sum);
  }
  task.out[i] = sum;
}

int launch_experts(const ExpertLinearTask& task, void* stream) {
  const auto* weight = static_cast<const float*>(task.weight);
  ExpertKernelTask kernel_task = {task,
                                  {weight, task.input, task.in, task.outputs,
                                   reads_by_eight(weight, task.in) && task.expert_bytes % 16 == 0,
                                   reads_by_eight(task.input, task.in)},
                                  0};
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task.outputs + kProductOutputs - 1) / kProductOutputs);
  shape.threads = kProductThreads;
  shape.shared_bytes = sizeof(ExpertShared);
  for (; kernel_task.first_pair < task.pairs; kernel_task.first_pair += kMaxGridY) {
    const int32_t left = task.pairs - kernel_task.first_pair;
    shape.grid_y = static_cast<unsigned>(left < kMaxGridY ? left : kMaxGridY);
    const int error = launch(expert_kernel, shape, stream, kernel_task);
    if (error != 0) {
      return error;
    }
  }
  return 0;
}

}  // namespace

int specdec_cuda_route(const RouteTask* task, void* stream) {
  if (task->rows == 0 || task->chosen == 0) {
    return 0;
  }
  if (task->rows < 0 || task->chosen < 0 || task->chosen > task->count) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->rows);
  shape.threads = kWarp;
  return launch(route_kernel, shape, stream, *task);
}

int specdec_cuda_expert_linear(const ExpertLinearTask* task, void* stream) {
  if (task->pairs == 0 || task->outputs == 0) {
    return 0;
  }
  if (task->pairs < 0 || task->outputs < 0 || task->rows_share <= 0 || task->in <= 0 ||
      task->format != WeightFormat::kFloat32) {
    return kInvalidValue;
  }
  return launch_experts(*task, stream);
}

int specdec_cuda_expert_sum(const ExpertSumTask* task, void* stream) {
  const int64_t numbers = static_cast<int64_t>(task->rows) * task->size;
  if (numbers == 0) {
    return 0;
  }
  if (numbers < 0 || task->chosen < 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((numbers + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(expert_sum_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
