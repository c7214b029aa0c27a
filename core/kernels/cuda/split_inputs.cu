// Inputs of products on tensor cores that no other kernel has split; see split_inputs.cuh.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/split_inputs.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kBlockInputs = kThreads / kSplitLanes * kStepInputs;

struct SplitTask {
  SplitInputs to;
  const float* input;  ///< [rows, in]
};

/// Grid (rows, inputs in groups of kBlockInputs).
__global__ void __launch_bounds__(kThreads) split_kernel(SplitTask task) {
  await_earlier_kernels();
  const auto row = static_cast<int32_t>(blockIdx.x);
  const auto first = static_cast<int32_t>(blockIdx.y) * kBlockInputs;
  const int32_t last = split_end(task.to.in);
  split_columns<kThreads>(task.to, row, task.input + static_cast<int64_t>(row) * task.to.in, first,
                          first + kBlockInputs < last ? first + kBlockInputs : last);
}

}  // namespace

int split_inputs(const SplitInputs& split, const float* input, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(split.rows);
  shape.grid_y = static_cast<unsigned>(tiles_of(split.in, kBlockInputs));
  shape.threads = kThreads;
  return launch(split_kernel, shape, stream, SplitTask{split, input});
}

int64_t specdec_cuda_split_bytes(int32_t rows, int32_t in) {
  constexpr int64_t kBytes = kChunkFragments * static_cast<int64_t>(sizeof(InputFragment)) +
                             kChunkSums * static_cast<int64_t>(sizeof(float));
  return static_cast<int64_t>(tiles_of(rows, kTileRows)) * chunks_of(in) * kBytes;
}

}  // namespace specdec::cuda
