// Which drafted tokens of a chain stay, and what comes after them.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/verify_chain.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = kVerifyThreads;

__global__ void __launch_bounds__(kThreads) verify_kernel(VerifyChainsTask task) {
  await_earlier_kernels();
  verify_chain<VerifyRules>(task, reinterpret_cast<double*>(shared_memory()));
}

/// A chain whose target's best tokens are known.
struct MatchedChain {
  const int32_t* best;
  const int32_t* tokens;
  int32_t length;
  int32_t node;

  __device__ int32_t child_after(int32_t parent, int32_t last) const {
    return last == parent && parent < length ? parent + 1 : -1;
  }
  __device__ int32_t token(int32_t child) const { return tokens[child - 1]; }
  __device__ int32_t choose(int32_t after) const { return best[after]; }
  __device__ void enter(int32_t entered) { node = entered; }
};

/// A thread takes a chain.
__global__ void __launch_bounds__(kThreads) match_kernel(MatchChainsTask task) {
  await_earlier_kernels();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= task.chains) {
    return;
  }
  MatchedChain chain = {task.best + index * (task.capacity + 1),
                        task.tokens + index * task.capacity, task.lengths[index], 0};
  task.next[index] = device::match(&chain);
  task.accepted[index] = chain.node;
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
