// Which drafted tokens of a chain stay, and what comes after them. A block takes a chain.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/philox.h"
#include "core/kernels/device/verify.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kDrawBlock = 256;  // weights whose sum a draw can skip
constexpr uint32_t kVerifyPurpose = 2;

SPECDEC_DEVICE int32_t draw_blocks(int32_t vocab) { return (vocab + kDrawBlock - 1) / kDrawBlock; }

/// Weights of a token after a node: the target's, or what is left of them after a rejection.
struct Weights {
  const double* target;   ///< [vocab]
  const double* drafted;  ///< [vocab], or nullptr
  int32_t rejected;       ///< token that was chosen deterministically; -1 = none
  int32_t first;          ///< of the token that index 0 means

  __device__ double operator[](int32_t index) const {
    const int32_t token = first + index;
    if (drafted != nullptr) {
      return device::residual_weight(target[token], drafted[token]);
    }
    return token == rejected ? 0.0 : target[token];
  }
};

/// One chain's arrays.
struct Chain {
  const VerifyChainsTask& task;
  int64_t index;

  __device__ const double* target(int32_t node) const {
    return task.target + (index * (task.capacity + 1) + node) * task.vocab;
  }
  __device__ const double* drafted(int32_t node) const {
    return task.drafted == nullptr ? nullptr
                                   : task.drafted + (index * task.capacity + node) * task.vocab;
  }
  __device__ int32_t token(int32_t node) const { return task.tokens[index * task.capacity + node]; }
  __device__ double uniform(int32_t choice) const {
    return device::uniform(task.keys[2 * index], task.keys[2 * index + 1],
                           static_cast<uint64_t>(task.positions[index]), kVerifyPurpose,
                           static_cast<uint32_t>(choice));
  }
  /// Whether the child of a node is accepted by random number `node`.
  __device__ bool accepts(int32_t node) const {
    const double* q = drafted(node);
    return device::accepts(uniform(node), target(node)[token(node)],
                           q == nullptr ? 1.0 : q[token(node)]);
  }
};

/// Sums of the blocks of weights, to shared memory; whether any is above zero, in every thread.
__device__ inline bool sum_blocks(const Weights& weights, int32_t vocab, double* sums) {
  bool positive = false;
  for (auto block = static_cast<int32_t>(threadIdx.x); block < draw_blocks(vocab);
       block += kThreads) {
    const int32_t first = block * kDrawBlock;
    const int32_t end = first + kDrawBlock < vocab ? first + kDrawBlock : vocab;
    double sum = 0.0;
    for (int32_t token = first; token < end; ++token) {
      sum += weights[token];
    }
    sums[block] = sum;
    positive = positive || sum > 0.0;
  }
  return __syncthreads_or(positive ? 1 : 0) != 0;
}

/// The token that a uniform number draws; of one thread.
__device__ inline int32_t draw(const Weights& weights, int32_t vocab, const double* sums,
                               double uniform) {
  double total = 0.0;
  for (int32_t block = 0; block < draw_blocks(vocab); ++block) {
    total += sums[block];
  }
  double passed = 0.0;
  double ignored = 0.0;
  const double target = uniform * total;
  const int32_t first = device::pick(sums, draw_blocks(vocab), target, passed) * kDrawBlock;
  Weights block = weights;
  block.first = first;
  const int32_t left = vocab - first;
  return first +
         device::pick(block, left < kDrawBlock ? left : kDrawBlock, target - passed, ignored);
}

/// All threads walk the chain alike; they meet where the weights are summed.
__global__ void __launch_bounds__(kThreads) verify_kernel(VerifyChainsTask task) {
  auto* sums = reinterpret_cast<double*>(shared_memory());
  const Chain chain = {task, static_cast<int64_t>(blockIdx.x)};
  const int32_t length = task.lengths[chain.index];
  int32_t node = 0;
  Weights weights{};
  bool rejected = false;
  for (; node < length; ++node) {
    if (chain.accepts(node)) {
      continue;
    }
    weights = {chain.target(node), chain.drafted(node), chain.token(node), 0};
    rejected = sum_blocks(weights, task.vocab, sums);
    if (rejected) {  // else only rounding made a rejection possible
      break;
    }
    __syncthreads();
  }
  if (!rejected) {
    weights = {chain.target(node), nullptr, -1, 0};
    sum_blocks(weights, task.vocab, sums);
  }
  if (threadIdx.x == 0) {
    const int32_t choice = rejected ? node + 1 : node;
    task.accepted[chain.index] = node;
    task.next[chain.index] = draw(weights, task.vocab, sums, chain.uniform(choice));
  }
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
  if (task->chains == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->chains);
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>(draw_blocks(task->vocab) * sizeof(double));
  return launch(verify_kernel, shape, stream, *task);
}

int specdec_cuda_match_chains(const MatchChainsTask* task, void* stream) {
  if (task->chains == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task->chains + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  return launch(match_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
