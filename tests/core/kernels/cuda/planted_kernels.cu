#include <cuda_launch.h>

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

__global__ void sum_kernel(SumTask task) {
  auto* sums = reinterpret_cast<float*>(shared_memory());
  const unsigned lane = threadIdx.x % kWarp;
  float sum = task.input[blockIdx.x * kThreads + threadIdx.x];
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
  if (task.fault == Fault::kDivergentBarrier && threadIdx.x == 5) {
    return;
  }
  if (task.fault != Fault::kNoBarrier) {
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    task.out[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
  }
}

}  // namespace

int planted_sum(Fault fault, const float* input, float* out, unsigned blocks) {
  LaunchShape shape;
  shape.grid_x = blocks;
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(float);
  return launch(sum_kernel, shape, nullptr, SumTask{fault, input, out});
}

}  // namespace specdec::cuda
