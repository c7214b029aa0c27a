#include <cuda_launch.h>

#include "core/kernels/cuda/verify_chain.cuh"
#include "tests/core/kernels/cuda/planted_kernels.h"

namespace specdec::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kAll = 0xFFFFFFFFU;

struct SumTask {
  Fault fault;
  const float* input;
  float* out;
};

__device__ float input_of(const SumTask& task) {
  return task.input[blockIdx.x * kThreads + threadIdx.x];
}

/// The sum of what the block's threads have.
__device__ float sum_of_block(const SumTask& task, float* sums, float sum) {
  const unsigned lane = threadIdx.x % kWarp;
  if (task.fault == Fault::kDifferentShuffles && lane % 2 == 1) {
    __ballot_sync(kAll, 1);
  }
  if (task.fault != Fault::kDivergentShuffle || lane % 2 == 0) {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(task.fault == Fault::kPartialMask ? kAll >> 16U : kAll, sum, lanes);
    }
  }
  if (lane == 0) {
    sums[threadIdx.x / kWarp + (task.fault == Fault::kSharedMemoryOverrun ? 1U : 0U)] = sum;
  }
  if (task.fault != Fault::kNoBarrier) {
    __syncthreads();
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

__global__ void sum_kernel(SumTask task) {
  const float early = task.fault == Fault::kEarlyRead ? input_of(task) : 0.0F;
  if (task.fault == Fault::kEarlyWrite && threadIdx.x % kWarp == 0) {
    task.out[blockIdx.x] = -1.0F;
  }
  if (task.fault != Fault::kUnawaited || threadIdx.x == 7) {
    await_earlier_kernels();
  }
  auto* sums = reinterpret_cast<float*>(shared_memory());
  const float once =
      sum_of_block(task, sums, task.fault == Fault::kEarlyRead ? early : input_of(task));
  if (task.fault == Fault::kDivergentBarrier && threadIdx.x == 5) {
    return;
  }
  if (task.fault != Fault::kEarlyReuse) {
    __syncthreads();
  }
  const float twice = sum_of_block(task, sums, 2.0F * input_of(task));
  if (threadIdx.x % kWarp == 0 && twice != 2.0F * once) {
    task.out[blockIdx.x] = -1.0F;
  } else if (threadIdx.x == 0) {
    task.out[blockIdx.x] = once;
  }
}

struct ClusterTask {
  ClusterFault fault;
  float* out;
};

/// Each block writes a number for each block of its cluster, and adds those that are meant for it.
__global__ void cluster_kernel(ClusterTask task) {
  await_earlier_kernels();
  auto* numbers = reinterpret_cast<float*>(shared_memory());
  const unsigned block = blockIdx.x % cluster_blocks();
  if (task.fault == ClusterFault::kMissingThread && block == 1 && threadIdx.x == 5) {
    return;
  }
  if (threadIdx.x < cluster_blocks()) {
    numbers[threadIdx.x] = static_cast<float>(100 * block + threadIdx.x);
  }
  if (task.fault != ClusterFault::kNoBarrier) {
    sync_cluster();
  }
  if (threadIdx.x == 0) {
    float sum = 0.0F;
    for (unsigned other = 0; other < cluster_blocks(); ++other) {
      sum += read_shared_of(numbers + block, other);
    }
    task.out[blockIdx.x] = sum;
  }
  if (task.fault != ClusterFault::kEarlyEnd) {
    sync_cluster();
  }
}

struct WithoutBarrier : VerifyRules {
  static void meet() {}
  static bool any(bool holds) { return holds; }
};

struct AcceptsEqual : VerifyRules {
  static bool accepts(double uniform, double target, double drafted) {
    return uniform <= target / drafted;
  }
};

struct FirstUnchecked : VerifyRules {
  static constexpr int32_t kUnchecked = 1;
};

template <class Rules>
__global__ void verify_kernel(VerifyChainsTask task) {
  await_earlier_kernels();
  verify_chain<Rules>(task, reinterpret_cast<double*>(shared_memory()));
}

}  // namespace

int planted_sum(Fault fault, const float* input, float* out, unsigned blocks, void* stream) {
  LaunchShape shape;
  shape.grid_x = blocks;
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(float);
  return launch(sum_kernel, shape, stream, SumTask{fault, input, out});
}

int planted_cluster_sum(ClusterFault fault, float* out, unsigned blocks, unsigned cluster) {
  LaunchShape shape;
  shape.grid_x = blocks;
  shape.cluster = cluster;
  shape.threads = 2 * kWarp;
  shape.shared_bytes = kMaxCluster * sizeof(float);
  return launch(cluster_kernel, shape, nullptr, ClusterTask{fault, out});
}

int planted_verify(VerifyFault fault, const VerifyChainsTask& task) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task.chains);
  shape.threads = kVerifyThreads;
  shape.shared_bytes = static_cast<unsigned>(draw_blocks(task.vocab) * sizeof(double));
  switch (fault) {
    case VerifyFault::kNoBarrier:
      return launch(verify_kernel<WithoutBarrier>, shape, nullptr, task);
    case VerifyFault::kAcceptsEqual:
      return launch(verify_kernel<AcceptsEqual>, shape, nullptr, task);
    case VerifyFault::kFirstUnchecked:
      return launch(verify_kernel<FirstUnchecked>, shape, nullptr, task);
  }
  return kInvalidValue;
}

}  // namespace specdec::cuda
