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

/// A chain as the functions of device/verify.h walk it, with the weights of its next token; child
/// i is token i - 1. All threads walk alike; they meet where the weights are summed.
template <class Rules>
struct Chain {
  const VerifyChainsTask& task;
  int64_t index;
  double* sums;  ///< [draw_blocks(vocab)] in shared memory
  int32_t node;  ///< where it is
  bool summed;   ///< `sums` are those of `weights`
  ChainWeights weights;

  __device__ int32_t length() const { return task.lengths[index]; }
  __device__ int32_t child_after(int32_t parent, int32_t last) const {
    return last == parent && parent < length() ? parent + 1 : -1;
  }
  __device__ const double* target_row(int32_t row) const {
    return task.target + (index * (task.capacity + 1) + row) * task.vocab;
  }
  __device__ const double* drafted_row(int32_t row) const {
    return task.drafted == nullptr ? nullptr
                                   : task.drafted + (index * task.capacity + row) * task.vocab;
  }
  __device__ int32_t token(int32_t child) const {
    return task.tokens[index * task.capacity + child - 1];
  }
  __device__ double target(int32_t child) const { return target_row(child - 1)[token(child)]; }
  __device__ double drafted(int32_t child) const {
    const double* q = drafted_row(child - 1);
    return q == nullptr ? 1.0 : q[token(child)];
  }
  /// Leaves the target's weights after a node.
  __device__ void restore(int32_t after) {
    weights = {target_row(after), nullptr, -1, 1.0};
    summed = false;
  }
  __device__ void enter(int32_t entered) {
    node = entered;
    restore(entered);
  }
  /// Leaves the residual's weights after a node, summed; whether any is above zero.
  __device__ bool leave_residual(int32_t after, double scale) {
    Rules::meet();  // the sums have been read
    weights = {target_row(after), drafted_row(after), token(after + 1), scale};
    summed = true;
    return sum_blocks<Rules>(weights, task.vocab, sums);
  }
  __device__ bool reject(int32_t child) { return leave_residual(child - 1, 1.0); }
  __device__ double leave(int32_t after, double scale) {
    leave_residual(after, scale);
    return total_of(sums, task.vocab);
  }
  /// Writes what was decided, and draws the next token.
  __device__ void finish(int32_t accepted, VerifyDraws<Rules>& draws) {
    if (!summed) {
      Rules::meet();
      sum_blocks<Rules>(weights, task.vocab, sums);
    }
    if (threadIdx.x == 0) {
      task.accepted[index] = accepted;
      task.next[index] = draw(weights, task.vocab, sums, draws.uniform());
    }
  }
};

/// The block's chain, at its root. `sums`: shared memory.
template <class Rules>
__device__ inline Chain<Rules> chain_of_block(const VerifyChainsTask& task, double* sums) {
  return {task, static_cast<int64_t>(blockIdx.x), sums, 0, false, {}};
}

template <class Rules>
__device__ inline VerifyDraws<Rules> draws_of_block(const VerifyChainsTask& task) {
  return {task.keys, task.positions, static_cast<int64_t>(blockIdx.x), 0};
}

template <class Rules>
__device__ inline void verify_chain(const VerifyChainsTask& task, double* sums) {
  auto chain = chain_of_block<Rules>(task, sums);
  auto draws = draws_of_block<Rules>(task);
  device::verify_by_rejection(&chain, &draws);
  chain.finish(chain.node, draws);
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
