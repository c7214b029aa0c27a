// Products of up to 64 rows with a bfloat16 matrix on tensor cores, by mma.m16n8k16: the weights
// are its left operand (16 outputs), rows its right one (8 rows), so 1 to 8 rows cost the same.
// Each operand lies in memory as the lanes hold it, and is read without shared memory. The sums of
// 64 inputs are made by the tensor cores, which truncate, and added in float32.
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/weight_formats.cuh"

namespace specdec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTileOutputs = 16;
constexpr int kTileRows = 8;
constexpr int kStepInputs = 16;  // of an mma
constexpr int kSteps = 4;        // whose sums the tensor cores add up
constexpr int kChunkInputs = kSteps * kStepInputs;
constexpr int kParts = 3;     // of an input: 24 bits
constexpr int kMaxTiles = 8;  // of rows, of a block
/// So many outputs fill a GPU with blocks of two tiles of them, which read the inputs half as
/// often.
constexpr int32_t kPairedOutputs = 8192;

/// A step of a tile of weights, for one lane.
struct alignas(16) WeightFragment {
  uint32_t word[4];
};
/// A step of one part of a tile of rows, for one lane.
struct alignas(8) InputFragment {
  uint32_t word[2];
};

SPECDEC_DEVICE int32_t tiles_of(int32_t count, int32_t each) { return (count + each - 1) / each; }
SPECDEC_DEVICE int32_t steps_of(int32_t in) { return tiles_of(in, kChunkInputs) * kSteps; }

/// First of the two inputs that a lane holds in a word, of the lower or the upper eight of a step.
__device__ inline int32_t fragment_input(int lane, int half) { return lane % 4 * 2 + half * 8; }

/// A thread makes a lane's fragment: grid (tiles of outputs, steps in groups of kWarps).
__global__ void __launch_bounds__(kThreads) pack_kernel(PackFragmentsTask task) {
  const auto* weight = static_cast<const uint16_t*>(task.weight);
  const int lane = static_cast<int>(lane_index());
  const int32_t step = static_cast<int32_t>(blockIdx.y * kWarps + warp_index());
  const int32_t steps = steps_of(task.in);
  if (step >= steps) {
    return;
  }
  WeightFragment fragment{};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int32_t output =
        static_cast<int32_t>(blockIdx.x) * kTileOutputs + lane / 4 + word % 2 * 8;
    const int32_t k = step * kStepInputs + fragment_input(lane, word / 2);
    const auto bits = [&](int32_t input) {
      return output < task.outputs && input < task.in
                 ? static_cast<uint32_t>(weight[static_cast<int64_t>(output) * task.in + input])
                 : 0U;
    };
    fragment.word[word] = bits(k) | bits(k + 1) << 16U;
  }
  auto* fragments = static_cast<WeightFragment*>(task.fragments);
  fragments[(static_cast<int64_t>(blockIdx.x) * steps + step) * kWarp + lane] = fragment;
}

/// Parts of a number: they add up to it, but for what lies below its 24 bits.
__device__ inline void split(float number, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const device::Bfloat16Bits rounded = device::narrow(number, device::Bfloat16Bits{});
    parts[part] = rounded.bits;
    const bool finite = (rounded.bits & 0x7F80U) != 0x7F80U;
    number = finite ? number - device::widen(rounded) : 0.0F;
  }
}

/// A thread makes a lane's fragments of all parts: grid (tiles of rows, steps in groups of kWarps).
__global__ void __launch_bounds__(kThreads) split_kernel(TensorLinearTask task) {
  const int lane = static_cast<int>(lane_index());
  const int32_t step = static_cast<int32_t>(blockIdx.y * kWarps + warp_index());
  const int32_t steps = steps_of(task.in);
  if (step >= steps) {
    return;
  }
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kTileRows + lane / 4;
  InputFragment fragments[kParts] = {};
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    const int32_t k = step * kStepInputs + fragment_input(lane, word);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t parts[kParts];
      const bool exists = row < task.rows && k + i < task.in;
      split(exists ? task.input[static_cast<int64_t>(row) * task.in + k + i] : 0.0F, parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        fragments[part].word[word] |= parts[part] << (16U * static_cast<unsigned>(i));
      }
    }
  }
  auto* out = static_cast<InputFragment*>(task.workspace) +
              (static_cast<int64_t>(blockIdx.x) * steps + step) * kParts * kWarp + lane;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    out[part * kWarp] = fragments[part];
  }
}

/// Sums of a block's tiles of outputs and rows, as a lane holds them.
template <int kOutputTiles, int kTiles>
struct Sums {
  float numbers[kOutputTiles][kTiles][4] = {};
};

/// Adds the products of a chunk of inputs. Fragments of one tile of outputs, and of rows, are
/// `weight_stride` and `input_stride` apart.
template <int kOutputTiles, int kTiles>
__device__ inline void add_chunk(const WeightFragment* weights, int64_t weight_stride,
                                 const InputFragment* inputs, int64_t input_stride, int32_t tiles,
                                 Sums<kOutputTiles, kTiles>& sums) {
  WeightFragment steps[kOutputTiles][kSteps];
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      steps[o][step] = weights[o * weight_stride + step * kWarp];
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile >= tiles) {
      break;
    }
    float chunk[kOutputTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
        const InputFragment input = inputs[tile * input_stride + (step * kParts + part) * kWarp];
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          multiply_tiles(chunk[o], steps[o][step].word, input.word);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kOutputTiles; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums.numbers[o][tile][i] += chunk[o][i];
      }
    }
  }
}

/// Shared memory: [warps][kTiles * 8 rows][kOutputTiles * 16 outputs].
template <int kOutputTiles, int kTiles>
constexpr int kBlockSums = kOutputTiles* kTileOutputs* kTiles* kTileRows;

/// A warp's sums, to shared memory.
template <int kOutputTiles, int kTiles>
__device__ inline void share_sums(const Sums<kOutputTiles, kTiles>& sums, float* shared) {
  constexpr int kOutputs = kOutputTiles * kTileOutputs;
  const int lane = static_cast<int>(lane_index());
  float* out = shared + static_cast<int>(warp_index()) * kBlockSums<kOutputTiles, kTiles>;
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * kTileRows + lane % 4 * 2 + i % 2;
        const int output = o * kTileOutputs + lane / 4 + i / 2 * 8;
        out[row * kOutputs + output] = sums.numbers[o][tile][i];
      }
    }
  }
}

/// Adds the warps' sums in their order, and writes them.
template <int kOutputTiles, int kTiles>
__device__ inline void write_sums(const TensorLinearTask& task, const float* shared) {
  constexpr int kOutputs = kOutputTiles * kTileOutputs;
  constexpr int kCount = kBlockSums<kOutputTiles, kTiles>;
  for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kThreads) {
    const int32_t row = static_cast<int32_t>(blockIdx.y) * kTiles * kTileRows + i / kOutputs;
    const int32_t output = static_cast<int32_t>(blockIdx.x) * kOutputs + i % kOutputs;
    if (row >= task.rows || output >= task.outputs) {
      continue;
    }
    float sum = shared[i];
    for (int warp = 1; warp < kWarps; ++warp) {
      sum += shared[warp * kCount + i];
    }
    task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
  }
}

/// A block: kOutputTiles tiles of outputs and up to kTiles tiles of rows. Its warps take the chunks
/// of inputs in turn.
template <int kOutputTiles, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) tensor_kernel(TensorLinearTask task) {
  const int lane = static_cast<int>(lane_index());
  const int32_t steps = steps_of(task.in);
  const int32_t first_tile = static_cast<int32_t>(blockIdx.y) * kTiles;
  const int32_t tiles = tiles_of(task.rows, kTileRows) - first_tile;
  const int64_t weight_stride = static_cast<int64_t>(steps) * kWarp;
  const int64_t input_stride = weight_stride * kParts;
  const auto* weights = static_cast<const WeightFragment*>(task.fragments) +
                        blockIdx.x * kOutputTiles * weight_stride + lane;
  const auto* inputs =
      static_cast<const InputFragment*>(task.workspace) + first_tile * input_stride + lane;
  Sums<kOutputTiles, kTiles> sums;
  for (int32_t step = static_cast<int32_t>(warp_index()) * kSteps; step < steps;
       step += kWarps * kSteps) {
    add_chunk(weights + static_cast<int64_t>(step) * kWarp, weight_stride,
              inputs + static_cast<int64_t>(step) * kParts * kWarp, input_stride, tiles, sums);
  }
  auto* shared = reinterpret_cast<float*>(shared_memory());
  share_sums(sums, shared);
  __syncthreads();
  write_sums<kOutputTiles, kTiles>(task, shared);
}

template <int kOutputTiles, int kTiles>
int launch_product(const TensorLinearTask& task, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles_of(task.outputs, kTileOutputs * kOutputTiles));
  shape.grid_y = static_cast<unsigned>(tiles_of(task.rows, kTileRows * kTiles));
  shape.threads = kThreads;
  shape.shared_bytes = kWarps * kBlockSums<kOutputTiles, kTiles> * sizeof(float);
  return launch(tensor_kernel<kOutputTiles, kTiles>, shape, stream, task);
}

template <int kOutputTiles>
int launch_product(const TensorLinearTask& task, void* stream) {
  const int32_t tiles = tiles_of(task.rows, kTileRows);
  if (tiles == 1) {
    return launch_product<kOutputTiles, 1>(task, stream);
  }
  return tiles <= 4 ? launch_product<kOutputTiles, 4>(task, stream)
                    : launch_product<kOutputTiles, kMaxTiles>(task, stream);
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

/// Tiles of outputs in memory: whole pairs.
int32_t weight_tiles(int32_t outputs) { return tiles_of(outputs, 2 * kTileOutputs) * 2; }

LaunchShape step_shape(int32_t tiles, int32_t in) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(tiles_of(steps_of(in), kWarps));
  shape.threads = kThreads;
  return shape;
}

}  // namespace

int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in) {
  return static_cast<int64_t>(weight_tiles(outputs)) * steps_of(in) * kWarp *
         static_cast<int64_t>(sizeof(WeightFragment));
}

int64_t specdec_cuda_split_bytes(int32_t rows, int32_t in) {
  return static_cast<int64_t>(tiles_of(rows, kTileRows)) * steps_of(in) * kParts * kWarp *
         static_cast<int64_t>(sizeof(InputFragment));
}

int specdec_cuda_pack_fragments(const PackFragmentsTask* task, void* stream) {
  if (task->outputs == 0 || task->in == 0) {
    return 0;
  }
  if (!is_aligned(task->fragments)) {
    return kInvalidValue;
  }
  return launch(pack_kernel, step_shape(weight_tiles(task->outputs), task->in), stream, *task);
}

int specdec_cuda_tensor_linear(const TensorLinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  if (!is_aligned(task->fragments) || !is_aligned(task->workspace)) {
    return kInvalidValue;
  }
  const int32_t tiles = tiles_of(task->rows, kTileRows);
  const int error = launch(split_kernel, step_shape(tiles, task->in), stream, *task);
  if (error != 0) {
    return error;
  }
  return task->outputs >= kPairedOutputs ? launch_product<2>(*task, stream)
                                         : launch_product<1>(*task, stream);
}

}  // namespace specdec::cuda
