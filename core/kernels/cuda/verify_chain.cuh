#pragma once
// Rejection sampling over a drafted chain; a block takes a chain. Rules: see VerifyRules.
#include "core/kernels/cuda/draw.cuh"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {

/// Weights of a token after a node: the target's, or max(scale * target - drafted, 0) after a
/// rejection.
struct ChainWeights {
  const double* target;   ///< [vocab]
  const double* drafted;  ///< [vocab], or nullptr
  int32_t rejected;       ///< token that was chosen deterministically; -1 = none
  double scale;

  __device__ double operator()(int32_t token) const {
    const double mass = scale * target[token];
    if (drafted != nullptr) {
      return device::residual_weight(mass, drafted[token]);
    }
    return token == rejected ? 0.0 : mass;
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
  /// Probabilities of the child of a node.
  __device__ double target_mass(int32_t node) const { return target(node)[token(node)]; }
  __device__ double drafted_mass(int32_t node) const {
    const double* q = drafted(node);
    return q == nullptr ? 1.0 : q[token(node)];
  }
  __device__ double uniform(int32_t choice) const {
    return verify_uniform(task.keys, task.positions, index, choice);
  }
  __device__ ChainWeights weights(int32_t node) const { return {target(node), nullptr, -1, 1.0}; }
  /// After the child of a node was rejected.
  __device__ ChainWeights residual(int32_t node, double scale) const {
    return {target(node), drafted(node), token(node), scale};
  }
};

/// All threads walk the chain alike; they meet where the weights are summed. `sums`: shared memory.
template <class Rules>
__device__ inline void verify_chain(const VerifyChainsTask& task, double* sums) {
  const Chain chain = {task, static_cast<int64_t>(blockIdx.x)};
  const int32_t length = task.lengths[chain.index];
  int32_t node = 0;
  ChainWeights weights{};
  bool rejected = false;
  for (; node < length; ++node) {
    if (node < Rules::kUnchecked ||
        Rules::accepts(chain.uniform(node), chain.target_mass(node), chain.drafted_mass(node))) {
      continue;
    }
    weights = chain.residual(node, 1.0);
    rejected = sum_blocks<Rules>(weights, task.vocab, sums);
    if (rejected) {  // else only rounding made a rejection possible
      break;
    }
    Rules::meet();
  }
  if (!rejected) {
    weights = chain.weights(node);
    sum_blocks<Rules>(weights, task.vocab, sums);
  }
  if (threadIdx.x == 0) {
    const int32_t choice = rejected ? node + 1 : node;
    task.accepted[chain.index] = node;
    task.next[chain.index] = draw(weights, task.vocab, sums, chain.uniform(choice));
  }
}

/// Launches a kernel of kVerifyThreads a block, which takes a chain and sums of blocks of weights.
inline int launch_chains(void (*kernel)(VerifyChainsTask), const VerifyChainsTask& task,
                         void* stream) {
  if (task.chains == 0) {
    return 0;
  }
  if (task.chains < 0 || task.capacity < 0 || task.vocab <= 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task.chains);
  shape.threads = kVerifyThreads;
  shape.shared_bytes = static_cast<unsigned>(draw_blocks(task.vocab) * sizeof(double));
  return launch(kernel, shape, stream, task);
}

}  // namespace specdec::cuda
