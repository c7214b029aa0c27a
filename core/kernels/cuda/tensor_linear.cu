// Products of up to 64 rows with a matrix on tensor cores, by mma.m16n8k16: the weights are its
// left operand (16 outputs), rows its right one (8 rows), so 1 to 8 rows cost the same. Each
// operand lies in memory as the lanes hold it, and is read without shared memory. The sums of up to
// 64 inputs, which share a scale, are made by the tensor cores, which truncate, and added in
// float32. Minima are multiplied by sums of inputs, which are made once a product.
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"

namespace specdec::cuda {
namespace {

constexpr int kTileRows = 8;
constexpr int kParts = 3;     // of an input: 24 bits
constexpr int kMaxTiles = 8;  // of rows, of a block
/// So many outputs fill a GPU with blocks of two tiles of them, which read the inputs half as
/// often.
constexpr int32_t kPairedOutputs = 8192;

/// A step of one part of a tile of rows, for one lane.
struct alignas(8) InputFragment {
  uint32_t word[2];
};

constexpr int kSumInputs = 32;  // that share a minimum
constexpr int kChunkSums = kChunkInputs / kSumInputs * kTileRows;

SPECDEC_DEVICE int32_t steps_of(int32_t in) { return chunks_of(in) * kSteps; }

/// Bytes of the inputs' fragments, behind which the workspace has their sums: for each tile of rows
/// and chunk kChunkSums, of kTileRows rows one after the other.
SPECDEC_DEVICE int64_t split_fragment_bytes(int32_t rows, int32_t in) {
  return static_cast<int64_t>(tiles_of(rows, kTileRows)) * steps_of(in) * kParts * kWarp *
         static_cast<int64_t>(sizeof(InputFragment));
}

SPECDEC_DEVICE float* input_sums(const TensorLinearTask& task) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(task.workspace) +
                                  split_fragment_bytes(task.rows, task.in));
}

/// A warp adds up kSumInputs inputs from `step` on of each row of a tile, four lanes a row.
__device__ inline void write_input_sums(const TensorLinearTask& task, int32_t step) {
  const int lane = static_cast<int>(lane_index());
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int32_t row = tile * kTileRows + lane / 4;
  const int32_t first = step * kStepInputs + lane % 4 * (kSumInputs / 4);
  float sum = 0.0F;
  for (int32_t k = first; row < task.rows && k < first + kSumInputs / 4 && k < task.in; ++k) {
    sum += task.input[static_cast<int64_t>(row) * task.in + k];
  }
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lane % 4 == 0) {
    const int64_t chunk = static_cast<int64_t>(tile) * chunks_of(task.in) + step / kSteps;
    const int32_t group = step % kSteps * kStepInputs / kSumInputs;
    input_sums(task)[chunk * kChunkSums + group * kTileRows + lane / 4] = sum;
  }
}

/// A thread makes a lane's fragments of all parts: grid (tiles of rows, steps in groups of
/// kTensorWarps).
__global__ void __launch_bounds__(kTensorThreads) split_kernel(TensorLinearTask task) {
  const int lane = static_cast<int>(lane_index());
  const int32_t step = static_cast<int32_t>(blockIdx.y * kTensorWarps + warp_index());
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
  if (task.format == CudaWeights::kQ4K && step * kStepInputs % kSumInputs == 0) {
    write_input_sums(task, step);
  }
}

/// Sums of a block's tiles of outputs and rows, as a lane holds them.
template <int kOutputTiles, int kTiles>
struct Sums {
  float numbers[kOutputTiles][kTiles][4] = {};
};

/// A chunk of the block's first tile of rows, as a lane needs it; that of the next tile is a stride
/// further.
struct InputAddress {
  const InputFragment* fragments;
  const float* sums;
  int64_t fragment_stride, sum_stride;
};

/// Where a lane's weights of a block's first tile and a chunk lie; those of its next tile are a
/// stride further.
struct WeightAddress {
  const unsigned char* fragments;
  const uint32_t* scales;
  int64_t fragment_stride, scale_stride;
};

/// What a lane holds of a chunk of a tile.
template <class Format>
struct WeightChunk {
  WeightFragment fragments[Format::kFragments + (Format::kMoreWords > 0 ? 1 : 0)];
  uint32_t scales[Format::kScaleWords > 0 ? 2 * Format::kScaleWords : 1];
};

template <class Format>
__device__ inline WeightChunk<Format> read_chunk(const WeightAddress& address, int tile) {
  WeightChunk<Format> chunk;
  const auto* fragments =
      reinterpret_cast<const WeightFragment*>(address.fragments + tile * address.fragment_stride);
#pragma unroll
  for (int f = 0; f < Format::kFragments; ++f) {
    chunk.fragments[f] = fragments[f * kWarp];
  }
  if constexpr (Format::kMoreWords == 2) {
    const InputFragment* more = reinterpret_cast<const InputFragment*>(fragments - lane_index() +
                                                                       Format::kFragments * kWarp) +
                                lane_index();
    chunk.fragments[Format::kFragments] = {{more->word[0], more->word[1], 0, 0}};
  }
  const uint32_t* scales = address.scales + tile * address.scale_stride;
#pragma unroll
  for (int i = 0; i < 2 * Format::kScaleWords; ++i) {
    chunk.scales[i] = scales[i];
  }
  return chunk;
}

/// Adds the products of a chunk of inputs with weights that are multiplied as they lie in memory.
template <class Format, int kOutputTiles, int kTiles>
__device__ inline void add_chunk(const WeightAddress& address, const InputAddress& inputs,
                                 int32_t tiles, Sums<kOutputTiles, kTiles>& sums) {
  WeightChunk<Format> weights[kOutputTiles];
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
    weights[o] = read_chunk<Format>(address, o);
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
        const InputFragment input =
            inputs.fragments[tile * inputs.fragment_stride + (step * kParts + part) * kWarp];
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          multiply_tiles(chunk[o], weights[o].fragments[step].word, input.word);
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

/// Products of one step with a tile of rows: the smallest parts first. What lies below the 24 bits
/// of an input and the bits of a weight together is left out.
template <class Format>
__device__ inline void multiply_parts(const uint32_t (&weights)[Format::kParts][4],
                                      const InputFragment* inputs, float (&sums)[4]) {
#pragma unroll
  for (int part = kParts - 1; part >= 0; --part) {
    const InputFragment input = inputs[part * kWarp];
#pragma unroll
    for (int weight_part = Format::kParts - 1; weight_part >= 0; --weight_part) {
      if (weight_part + part < kParts) {
        multiply_tiles(sums, weights[weight_part], input.word);
      }
    }
  }
}

/// Adds the sums of a chunk's inputs that share a scale.
template <class Format, int kTiles>
__device__ inline void add_scaled(const WeightChunk<Format>& weights, int group,
                                  const float (&chunk)[kTiles][4], const InputAddress& inputs,
                                  int32_t tiles, Sums<1, kTiles>& sums) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (Format::kHasMinima && tile >= tiles) {
      break;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& sum = sums.numbers[0][tile][i];
      if constexpr (Format::kScaleWords > 0) {
        // Numbers 0 and 1 are of the lane's first output, 2 and 3 of its second.
        const uint32_t* scales = weights.scales + i / 2 * Format::kScaleWords;
        sum = device::fused(chunk[tile][i], Format::scale(scales, group), sum);
        if constexpr (Format::kHasMinima) {
          const float total = inputs.sums[tile * inputs.sum_stride + group * kTileRows + i % 2];
          sum = device::fused(-Format::minimum(scales, group), total, sum);
        }
      } else {
        sum += chunk[tile][i];
      }
    }
  }
}

/// What add_chunk does, with weights that are expanded in registers, a step for all tiles of rows.
template <class Format, int kTiles>
__device__ inline void add_expanded_chunk(const WeightAddress& address, const InputAddress& inputs,
                                          int32_t tiles, Sums<1, kTiles>& sums) {
  const WeightChunk<Format> weights = read_chunk<Format>(address, 0);
#pragma unroll
  for (int group = 0; group < kSteps / Format::kScaleSteps; ++group) {
    float chunk[kTiles][4] = {};
#pragma unroll
    for (int s = 0; s < Format::kScaleSteps; ++s) {
      const int step = group * Format::kScaleSteps + s;
      uint32_t words[Format::kParts][4];
      Format::expand(weights.fragments, step, words);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= tiles) {
          break;
        }
        multiply_parts<Format>(
            words, inputs.fragments + tile * inputs.fragment_stride + step * kParts * kWarp,
            chunk[tile]);
      }
    }
    add_scaled<Format>(weights, group, chunk, inputs, tiles, sums);
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
  for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kTensorThreads) {
    const int32_t row = static_cast<int32_t>(blockIdx.y) * kTiles * kTileRows + i / kOutputs;
    const int32_t output = static_cast<int32_t>(blockIdx.x) * kOutputs + i % kOutputs;
    if (row >= task.rows || output >= task.outputs) {
      continue;
    }
    float sum = shared[i];
    for (int warp = 1; warp < kTensorWarps; ++warp) {
      sum += shared[warp * kCount + i];
    }
    task.out[row * task.out_stride + output] = task.bias == nullptr ? sum : sum + task.bias[output];
  }
}

/// Where a lane's weights of the block's first tile and chunk lie.
template <class Format>
__device__ inline WeightAddress first_weights(const TensorLinearTask& task, int32_t tile) {
  const auto* fragments = static_cast<const unsigned char*>(task.fragments);
  const int64_t first = static_cast<int64_t>(tile) * chunks_of(task.in);
  const auto lane = static_cast<int64_t>(lane_index());
  const auto* scales =
      reinterpret_cast<const uint32_t*>(fragments + scales_offset<Format>(task.outputs, task.in));
  return {fragments + first * kChunkBytes<Format> + lane * sizeof(WeightFragment),
          scales + first * kChunkScaleWords<Format> + lane / 4 * 2 * Format::kScaleWords,
          static_cast<int64_t>(chunks_of(task.in)) * kChunkBytes<Format>,
          static_cast<int64_t>(chunks_of(task.in)) * kChunkScaleWords<Format>};
}

/// A block: kOutputTiles tiles of outputs and up to kTiles tiles of rows. Its warps take the chunks
/// of inputs in turn.
template <class Format, int kOutputTiles, int kTiles>
__global__ void __launch_bounds__(kTensorThreads, 2) tensor_kernel(TensorLinearTask task) {
  const int lane = static_cast<int>(lane_index());
  const int32_t chunks = chunks_of(task.in);
  const int32_t first_tile = static_cast<int32_t>(blockIdx.y) * kTiles;
  const int32_t tiles = tiles_of(task.rows, kTileRows) - first_tile;
  const int64_t chunk_stride = kSteps * kParts * kWarp;
  const WeightAddress first =
      first_weights<Format>(task, static_cast<int32_t>(blockIdx.x) * kOutputTiles);
  const InputAddress first_inputs = {
      static_cast<const InputFragment*>(task.workspace) + first_tile * chunks * chunk_stride + lane,
      input_sums(task) + static_cast<int64_t>(first_tile) * chunks * kChunkSums + lane % 4 * 2,
      chunks * chunk_stride, static_cast<int64_t>(chunks) * kChunkSums};
  Sums<kOutputTiles, kTiles> sums;
  for (auto chunk = static_cast<int32_t>(warp_index()); chunk < chunks; chunk += kTensorWarps) {
    WeightAddress weights = first;
    weights.fragments += static_cast<int64_t>(chunk) * kChunkBytes<Format>;
    weights.scales += static_cast<int64_t>(chunk) * kChunkScaleWords<Format>;
    InputAddress inputs = first_inputs;
    inputs.fragments += chunk * chunk_stride;
    inputs.sums += static_cast<int64_t>(chunk) * kChunkSums;
    if constexpr (Format::kIsExpanded) {
      add_expanded_chunk<Format>(weights, inputs, tiles, sums);
    } else {
      add_chunk<Format>(weights, inputs, tiles, sums);
    }
  }
  auto* shared = reinterpret_cast<float*>(shared_memory());
  share_sums(sums, shared);
  __syncthreads();
  write_sums<kOutputTiles, kTiles>(task, shared);
}

template <class Format, int kOutputTiles, int kTiles>
int launch_product(const TensorLinearTask& task, void* stream) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles_of(task.outputs, kTileOutputs * kOutputTiles));
  shape.grid_y = static_cast<unsigned>(tiles_of(task.rows, kTileRows * kTiles));
  shape.threads = kTensorThreads;
  shape.shared_bytes = kTensorWarps * kBlockSums<kOutputTiles, kTiles> * sizeof(float);
  return launch(tensor_kernel<Format, kOutputTiles, kTiles>, shape, stream, task);
}

template <class Format, int kOutputTiles>
int launch_product(const TensorLinearTask& task, void* stream) {
  const int32_t tiles = tiles_of(task.rows, kTileRows);
  if (tiles == 1) {
    return launch_product<Format, kOutputTiles, 1>(task, stream);
  }
  return tiles <= 4 ? launch_product<Format, kOutputTiles, 4>(task, stream)
                    : launch_product<Format, kOutputTiles, kMaxTiles>(task, stream);
}

}  // namespace

int64_t specdec_cuda_split_bytes(int32_t rows, int32_t in) {
  return split_fragment_bytes(rows, in) + static_cast<int64_t>(tiles_of(rows, kTileRows)) *
                                              chunks_of(in) * kChunkSums *
                                              static_cast<int64_t>(sizeof(float));
}

int specdec_cuda_tensor_linear(const TensorLinearTask* task, void* stream) {
  if (task->rows == 0 || task->outputs == 0) {
    return 0;
  }
  if (!is_aligned(task->fragments) || !is_aligned(task->workspace) ||
      specdec_cuda_fragment_bytes(task->outputs, task->in, task->format) == 0) {
    return kInvalidValue;
  }
  const int32_t tiles = tiles_of(task->rows, kTileRows);
  const int error = launch(split_kernel, warp_shape(tiles, steps_of(task->in)), stream, *task);
  if (error != 0) {
    return error;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    using Format = decltype(fragments);
    return task->outputs >= kPairedOutputs
               ? launch_product<Format, Format::kOutputTiles>(*task, stream)
               : launch_product<Format, 1>(*task, stream);
  });
}

}  // namespace specdec::cuda
