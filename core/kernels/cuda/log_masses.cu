// What a grammar's mask leaves of the distribution after each node, or those of a path, and the
// mass of the token that came there. A block takes a node.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/row_mask.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

/// A row of logits, some of whose tokens are allowed.
struct MassRow {
  const float* logits;
  int32_t vocab;
  double scale;
  double* scratch;  ///< a number for each warp

  /// Logarithm of the sum of exp(logit * scale) of the allowed tokens; in every thread.
  __device__ double log_sum(const uint32_t* allowed) const {
    float best = device::minus_infinity();
    for (auto id = static_cast<int32_t>(threadIdx.x); id < vocab; id += kThreads) {
      best = allows(allowed, id) && logits[id] > best ? logits[id] : best;
    }
    best = block_largest<kThreads>(best, reinterpret_cast<float*>(scratch));
    double sum = 0.0;
    for (auto id = static_cast<int32_t>(threadIdx.x); id < vocab; id += kThreads) {
      if (allows(allowed, id)) {
        const double below = static_cast<double>(logits[id]) - static_cast<double>(best);
        sum += logits[id] == best ? 1.0 : exp(below * scale);
      }
    }
    return static_cast<double>(best) * scale + log(block_sum<kThreads>(sum, scratch));
  }
};

/// A node whose masses are wanted, and the token after it.
struct TakenToken {
  int32_t node;
  int32_t token;  ///< -1 = none

  /// The node and token at a place; none behind the end of the path.
  __device__ static TakenToken at(const LogMassesTask& task, int32_t place) {
    if (task.chosen != nullptr) {
      return {place, task.chosen[place]};
    }
    const int32_t accepted = *task.accepted;
    if (place > accepted) {
      return {0, -1};
    }
    return {task.path[place], place < accepted ? task.tokens[task.path[place + 1]] : *task.next};
  }
};

/// Shared memory: a number for each warp, bits of the allowed tokens.
__global__ void __launch_bounds__(kThreads) log_masses_kernel(LogMassesTask task) {
  await_earlier_kernels();
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  const auto place = static_cast<int32_t>(blockIdx.x);
  const TakenToken taken = TakenToken::at(task, place);
  if (taken.token < 0) {
    return;
  }
  const MassRow row = {task.logits + taken.node * task.stride, task.vocab,
                       inverse_temperature(task.temperature), scratch};
  const double all = row.log_sum(nullptr);
  const double left = row.log_sum(allowed_tokens<kThreads>(
      task.masks, taken.node, task.vocab, reinterpret_cast<uint32_t*>(scratch + kWarps)));
  if (threadIdx.x == 0) {
    task.allowed[place] = left < all ? left - all : 0.0;
    task.token[place] = static_cast<double>(row.logits[taken.token]) * row.scale - all;
  }
}

}  // namespace

int specdec_cuda_log_masses(const LogMassesTask* task, void* stream) {
  if (task->nodes > 0 && (!(task->temperature > 0.0) || !rows_are_apart(*task))) {
    return kInvalidValue;
  }
  return launch_masked_rows<kThreads>(log_masses_kernel, *task, task->nodes,
                                      kWarps * sizeof(double), stream);
}

}  // namespace specdec::cuda
