// A token of each row of probabilities, drawn with the random numbers of CounterRandomness. A block
// takes a row.
#include "core/kernels/cuda/draw.cuh"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

constexpr int kThreads = kVerifyThreads;

struct RowWeights {
  const double* probs;

  __device__ double operator()(int32_t token) const { return probs[token]; }
};

/// Shared memory: sums of blocks of weights.
__global__ void __launch_bounds__(kThreads) draw_rows_kernel(DrawRowsTask task) {
  await_earlier_kernels();
  auto* sums = reinterpret_cast<double*>(shared_memory());
  const auto row = static_cast<int64_t>(blockIdx.x);
  const RowWeights weights = {task.probs + row * task.vocab};
  sum_blocks<VerifyRules>(weights, task.vocab, sums);
  if (threadIdx.x == 0) {
    const double uniform =
        device::uniform(task.key[0], task.key[1], static_cast<uint64_t>(task.positions[row]),
                        task.purpose, task.choice);
    const int32_t token = draw(weights, task.vocab, sums, uniform);
    task.tokens[row] = token;
    if (task.named != nullptr) {
      task.named[row] = task.names[token];
    }
  }
}

}  // namespace

int specdec_cuda_draw_rows(const DrawRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  if (task->count < 0 || task->vocab <= 0) {
    return kInvalidValue;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(task->count);
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>(draw_blocks(task->vocab) * sizeof(double));
  return launch(draw_rows_kernel, shape, stream, *task);
}

}  // namespace specdec::cuda
