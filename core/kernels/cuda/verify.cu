// Which drafted tokens of a chain stay, and what comes after them.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/verify_chain.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = kVerifyThreads;

__global__ void __launch_bounds__(kThreads) verify_kernel(VerifyChainsTask task) {
  verify_chain<VerifyRules>(task, reinterpret_cast<double*>(shared_memory()));
}

/// A thread takes a chain.
__global__ void __launch_bounds__(kThreads) match_kernel(MatchChainsTask task) {
  const int64_t chain = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (chain >= task.chains) {
    return;
  }
  const int32_t* best = task.best + chain * (task.capacity + 1);
  const int32_t* tokens = task.tokens + chain * task.capacity;
  int32_t node = 0;
  while (node < task.lengths[chain] && tokens[node] == best[node]) {
    ++node;
  }
  task.accepted[chain] = node;
  task.next[chain] = best[node];
}

}  // namespace

int specdec_cuda_verify_chains(const VerifyChainsTask* task, void* stream) {
  return launch_chains(verify_kernel, *task, stream);
}

int specdec_cuda_match_chains(const MatchChainsTask* task, void* stream) {
  if (task->chains == 0) {
    return 0;
  }
  if (task->chains < 0 || task->capacity < 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task->chains + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(match_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
