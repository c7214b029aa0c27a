// The best token that a grammar allows in each row of logits. A block takes a row.
#include "core/kernels/cuda/best.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/row_mask.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

/// Shared memory: a Best for each warp, bits of the allowed tokens.
__global__ void __launch_bounds__(kThreads) best_allowed_kernel(BestAllowedTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<Best*>(shared_memory());
  const auto index = static_cast<int64_t>(blockIdx.x);
  const float* row = task.logits + index * task.stride;
  const uint32_t* allowed = allowed_tokens<kThreads>(task.masks, index, task.vocab,
                                                     reinterpret_cast<uint32_t*>(scratch + kWarps));
  Best best = no_best();
  bool damaged = false;
  for (auto id = static_cast<int32_t>(threadIdx.x); id < task.vocab; id += kThreads) {
    const float logit = row[id];
    damaged = damaged || !(logit < device::infinity());
    if (allows(allowed, id)) {
      best = best_of_both(best, best_of_one(logit, id));
    }
  }
  best = best_of_block<kThreads>(best, scratch);
  damaged = __syncthreads_or(damaged ? 1 : 0) != 0;
  if (threadIdx.x == 0) {
    task.tokens[index] = damaged || best.number == device::minus_infinity() ? -1 : best.id;
    task.largest[2 * index] = best.number;
    task.largest[2 * index + 1] = best.second;
  }
}

}  // namespace

int specdec_cuda_best_allowed(const BestAllowedTask* task, void* stream) {
  if (task->count > 0 && !rows_are_apart(*task)) {
    return kInvalidValue;
  }
  return launch_masked_rows<kThreads>(best_allowed_kernel, *task, task->count,
                                      kWarps * sizeof(Best), stream);
}

}  // namespace specdec::cuda
