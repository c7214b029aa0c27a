// Products of some rows with a matrix, by fused multiply-adds in float32. A block computes kOutputs
// outputs of kRows rows. The inputs are dealt out by eight to its lanes, as their number alone
// says; the lanes' sums, and then the warps', are added in a fixed order.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/weight_formats.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kOutputs = 4;
constexpr int kMaxRows = 8;

/// A task, and how its arrays may be read.
struct AlignedTask {
  LinearTask task;
  bool weights_by_eight, inputs_by_eight;
};

/// Weights k .. k + 7 of an output; zeros behind the last input.
template <class Weights>
__device__ inline void read_weights(const AlignedTask& aligned, int32_t output, int k,
                                    float* weights) {
  const LinearTask& task = aligned.task;
  const Bytes row = static_cast<Bytes>(task.weight) + output * row_bytes<Weights>(task.in);
  if (aligned.weights_by_eight && k + 8 <= task.in) {
    Weights::eight(row, k, weights);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    weights[i] = k + i < task.in ? Weights::at(row, k + i) : 0.0F;
  }
}

__device__ inline void read_inputs(const AlignedTask& aligned, int32_t row, int k, float* inputs) {
  const LinearTask& task = aligned.task;
  const float* from = task.input + static_cast<int64_t>(row) * task.in + k;
  if (aligned.inputs_by_eight && k + 8 <= task.in) {
    load_eight(from, inputs);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    inputs[i] = k + i < task.in ? from[i] : 0.0F;
  }
}

/// Adds eight inputs to the sums of a tile, one after the other.
template <class Weights, int kRows>
__device__ inline void add_eight(const AlignedTask& aligned, int32_t first_output,
                                 int32_t first_row, int k, float (&sums)[kRows][kOutputs]) {
  float weights[kOutputs][8];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    const int32_t output =
        first_output + o < aligned.task.outputs ? first_output + o : first_output;
    read_weights<Weights>(aligned, output, k, weights[o]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= aligned.task.rows) {
      break;
    }
    float inputs[8];
    read_inputs(aligned, first_row + r, k, inputs);
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[r][o] = device::fused(weights[o][i], inputs[i], sums[r][o]);
      }
    }
  }
}

template <class Weights, int kRows>
__global__ void __launch_bounds__(kThreads) linear_kernel(AlignedTask aligned) {
  constexpr int kSums = kRows * kOutputs;
  const LinearTask& task = aligned.task;
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kOutputs;
  const auto first_row = static_cast<int32_t>(blockIdx.y) * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  float sums[kRows][kOutputs] = {};
  for (int k = thread * 8; k < task.in; k += kThreads * 8) {
    add_eight<Weights, kRows>(aligned, first_output, first_row, k, sums);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float sum = warp_sum(sums[r][o]);
      if (lane_index() == 0) {
        scratch[static_cast<int>(warp_index()) * kSums + r * kOutputs + o] = sum;
      }
    }
  }
  __syncthreads();
  const int32_t row = first_row + thread / kOutputs;
  const int32_t output = first_output + thread % kOutputs;
  if (thread >= kSums || row >= task.rows || output >= task.outputs) {
    return;
  }
  float sum = scratch[thread];
  for (int warp = 1; warp < kWarps; ++warp) {
    sum += scratch[warp * kSums + thread];
  }
  task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
}

/// A block reads one row.
template <class Weights>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedRowsTask task) {
  const auto index = static_cast<int64_t>(blockIdx.x);
  const Bytes row = static_cast<Bytes>(task.weight) + task.ids[index] * row_bytes<Weights>(task.in);
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kThreads) {
    task.out[index * task.in + k] = Weights::at(row, k) * task.factor;
  }
}

template <class Weights, int kRows>
int launch_linear(const AlignedTask& aligned, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((aligned.task.outputs + kOutputs - 1) / kOutputs);
  shape.grid_y = static_cast<unsigned>((aligned.task.rows + kRows - 1) / kRows);
  shape.threads = kThreads;
  shape.shared_bytes = kWarps * kRows * kOutputs * sizeof(float);
  return launch(linear_kernel<Weights, kRows>, shape, stream, aligned);
}

}  // namespace

int specdec_cuda_linear(const LinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  return with_format(task->format, [&](auto weights) {
    using Weights = decltype(weights);
    if (task->in % Weights::kBlock != 0) {
      return kInvalidValue;
    }
    const AlignedTask aligned = {
        *task, reads_eight<Weights>(task->weight, task->in),
        reinterpret_cast<uintptr_t>(task->input) % 16 == 0 && task->in % 4 == 0};
    return task->rows == 1 ? launch_linear<Weights, 1>(aligned, stream)
                           : launch_linear<Weights, kMaxRows>(aligned, stream);
  });
}

int specdec_cuda_embed_rows(const EmbedRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  return with_format(task->format, [&](auto weights) {
    using Weights = decltype(weights);
    if (task->in % Weights::kBlock != 0) {
      return kInvalidValue;
    }
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(task->count);
    shape.threads = kThreads;
    return launch(embed_kernel<Weights>, shape, stream, *task);
  });
}

}  // namespace specdec::cuda
