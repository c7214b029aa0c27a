#pragma once
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {

/// What a kernel of the emulation's own tests does wrong.
enum class Fault {
  kNone,
  kNoBarrier,            ///< between writing and reading shared memory
  kEarlyReuse,           ///< no barrier between reading shared memory and writing it again
  kDivergentShuffle,     ///< only even lanes call it
  kDivergentBarrier,     ///< thread 5 ends before it
  kDifferentShuffles,    ///< odd lanes vote meanwhile
  kPartialMask,          ///< a shuffle names half the lanes
  kSharedMemoryOverrun,  ///< by one float
  kUnawaited,            ///< only thread 7 waits for earlier kernels
  kEarlyRead,            ///< of its input, before it waits for earlier kernels
  kEarlyWrite            ///< of its output
};

/// out[b] = sum of input[128 * b ..], by blocks of 128 threads, which compute it twice.
int planted_sum(Fault fault, const float* input, float* out, unsigned blocks,
                void* stream = nullptr);

/// What a kernel whose blocks form a cluster does wrong.
enum class ClusterFault {
  kNone,
  kNoBarrier,     ///< between writing shared memory and reading that of others
  kEarlyEnd,      ///< blocks end while others read their shared memory
  kMissingThread  ///< thread 5 of block 1 ends before the barrier
};

/// out[b] = sum of 100 * i + b over the blocks i of the block's cluster, by blocks of 64 threads.
int planted_cluster_sum(ClusterFault fault, float* out, unsigned blocks, unsigned cluster);

/// What a verification kernel does wrong.
enum class VerifyFault {
  kNoBarrier,      ///< between writing and reading the sums that a draw is made by
  kAcceptsEqual,   ///< a random number that is not below the ratio
  kFirstUnchecked  ///< the first drafted token stays
};

/// specdec_cuda_verify_chains with a fault.
int planted_verify(VerifyFault fault, const VerifyChainsTask& task);

}  // namespace specdec::cuda
