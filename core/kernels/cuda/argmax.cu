#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/portable.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 512;

struct Candidate {
  float number;
  int32_t id;  ///< -1: of a NaN, which is better than all
};

__device__ inline bool is_better(Candidate a, Candidate b) {
  if (a.id < 0 || b.id < 0) {
    return a.id < 0;
  }
  return a.number > b.number || (a.number == b.number && a.id < b.id);
}

__device__ inline Candidate best_of_warp(Candidate best) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, best.number, lanes),
                             __shfl_xor_sync(kAllLanes, best.id, lanes)};
    best = is_better(other, best) ? other : best;
  }
  return best;
}

/// A block looks through a row.
__global__ void __launch_bounds__(kThreads) argmax_kernel(ArgmaxTask task) {
  auto* scratch = reinterpret_cast<Candidate*>(shared_memory());
  const float* row = task.rows + static_cast<int64_t>(blockIdx.x) * task.stride;
  Candidate best = {device::minus_infinity(), INT32_MAX};
  for (int id = static_cast<int>(threadIdx.x); id < task.size; id += kThreads) {
    const float number = row[id];
    const Candidate next = {number, number == number ? id : -1};
    best = is_better(next, best) ? next : best;
  }
  best = best_of_warp(best);
  if (lane_index() == 0) {
    scratch[warp_index()] = best;
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  for (int warp = 0; warp < kThreads / kWarp; ++warp) {
    best = is_better(scratch[warp], best) ? scratch[warp] : best;
  }
  task.ids[blockIdx.x] = best.id;
  if (task.largest != nullptr) {
    task.largest[blockIdx.x] = best.number;
  }
}

}  // namespace

int specdec_cuda_argmax(const ArgmaxTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->count);
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * sizeof(Candidate);
  return launch(argmax_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
