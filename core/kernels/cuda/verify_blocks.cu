// Block verification of drafted chains (Sun et al., 2025, arXiv:2403.10444, Algorithm 2), as
// decoders/verifiers/block.h has it. A block of threads takes a chain.
#include "core/kernels/cuda/verify_chain.cuh"

namespace specdec::cuda {
namespace {

/// w_i of i tokens.
__device__ inline double weight_of(const Chain& chain, int32_t tokens) {
  double weight = 1.0;
#pragma unroll 1
  for (int32_t i = 0; i < tokens; ++i) {
    const double next = weight * chain.target_mass(i) / chain.drafted_mass(i);
    weight = next < 1.0 ? next : 1.0;
  }
  return weight;
}

/// h_i of fewer than all tokens, from the sum of their residual.
__device__ inline double acceptance(double rest_sum, double weight) {
  const double sum = rest_sum + 1.0 - weight;
  return sum > 0.0 ? rest_sum / sum : 0.0;
}

/// The most tokens whose choice passes are sought from the end.
__global__ void __launch_bounds__(kVerifyThreads) block_kernel(VerifyChainsTask task) {
  auto* sums = reinterpret_cast<double*>(shared_memory());
  const Chain chain = {task, static_cast<int64_t>(blockIdx.x)};
  int32_t accepted = task.lengths[chain.index];
  int32_t choice = 0;
  bool passed = chain.uniform(choice++) < weight_of(chain, accepted);
  ChainWeights weights{};
  double left = 0.0;  // the sum of the residual
  while (!passed && accepted > 0) {
    --accepted;
    const double weight = weight_of(chain, accepted);
    weights = chain.residual(accepted, weight);
    sum_blocks<VerifyRules>(weights, task.vocab, sums);
    left = total_of(sums, task.vocab);
    passed = accepted == 0 || chain.uniform(choice++) < acceptance(left, weight);
    __syncthreads();  // the sums have been read
  }
  if (!(left > 0.0)) {  // after all tokens, or when only rounding made the rejection possible
    weights = chain.weights(accepted);
    sum_blocks<VerifyRules>(weights, task.vocab, sums);
  }
  if (threadIdx.x == 0) {
    task.accepted[chain.index] = accepted;
    task.next[chain.index] = draw(weights, task.vocab, sums, chain.uniform(choice));
  }
}

}  // namespace

int specdec_cuda_verify_blocks(const VerifyChainsTask* task, void* stream) {
  return launch_chains(block_kernel, *task, stream);
}

}  // namespace specdec::cuda
