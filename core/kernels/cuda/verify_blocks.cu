// Block verification of drafted chains (Sun et al., 2025, arXiv:2403.10444, Algorithm 2), as
// decoders/verifiers/block.h has it. A block of threads takes a chain.
#include "core/kernels/cuda/verify_chain.cuh"

namespace specdec::cuda {
namespace {

__global__ void __launch_bounds__(kVerifyThreads) block_kernel(VerifyChainsTask task) {
  await_earlier_kernels();
  auto chain = chain_of_block<VerifyRules>(task, reinterpret_cast<double*>(shared_memory()));
  auto draws = draws_of_block<VerifyRules>(task);
  const int32_t accepted = device::verify_block<double>(&chain, &draws, chain.length());
  chain.finish(accepted, draws);
}

}  // namespace

int specdec_cuda_verify_blocks(const VerifyChainsTask* task, void* stream) {
  return launch_chains(block_kernel, *task, stream);
}

}  // namespace specdec::cuda
