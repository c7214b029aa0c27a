#pragma once
// Products of tiles of rows with a matrix on tensor cores, by mma.m16n8k16: the weights are its
// left operand (16 outputs), rows its right one (8 rows), so 1 to 8 rows cost the same. Each
// operand lies in memory as the lanes hold it, and is read without shared memory. The sums of up to
// 64 inputs, which share a scale, are made by the tensor cores, which truncate, and added in
// float32. Minima are multiplied by sums of inputs, which are made once a product. Eight take the
// chunks of inputs in turn, the warps of a block or the blocks of a cluster, and their sums are
// added in order: how a sum is cut depends on the number of inputs and the format alone.
#include "core/kernels/cuda/fragments.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/weight_stream.cuh"

namespace specdec::cuda {

constexpr int kTileRows = 8;
constexpr int kParts = 3;  // of an input: 24 bits

/// A step of one part of a tile of rows, for one lane.
struct alignas(8) InputFragment {
  uint32_t word[2];
};

/// All parts of a step of a tile of rows.
struct StepInputs {
  InputFragment parts[kParts];
};

/// `first`: of the first part, of this lane.
__device__ inline StepInputs read_step(const InputFragment* first) {
  StepInputs inputs;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    inputs.parts[part] = load_aligned<InputFragment>(first + part * kWarp);
  }
  return inputs;
}

constexpr int kSumInputs = 16;  // that share a minimum, at least
constexpr int kChunkSums = kChunkInputs / kSumInputs * kTileRows;
/// Fragments of a tile of rows and a chunk.
constexpr int kChunkFragments = kSteps * kParts * kWarp;

SPECDEC_DEVICE int32_t steps_of(int32_t in) { return chunks_of(in) * kSteps; }

/// Inputs as tensor cores read them: for each tile of rows and step the fragments of all parts, and
/// behind those of all tiles the inputs' sums: for each tile and chunk kChunkSums, of kTileRows
/// rows one after the other.
struct SplitInputs {
  void* memory;  ///< specdec_cuda_split_bytes() bytes
  int32_t rows, in;

  /// Fragments of a tile, from the first lane of its first step on.
  SPECDEC_DEVICE InputFragment* fragments(int32_t tile) const {
    return static_cast<InputFragment*>(memory) + first_fragment(tile);
  }
  /// Sums of a tile's inputs, from its first chunk on.
  SPECDEC_DEVICE float* sums(int32_t tile) const {
    auto* first = reinterpret_cast<float*>(static_cast<InputFragment*>(memory) +
                                           first_fragment(tiles_of(rows, kTileRows)));
    return first + static_cast<int64_t>(tile) * chunks_of(in) * kChunkSums;
  }

 private:
  SPECDEC_DEVICE int64_t first_fragment(int32_t tile) const {
    return static_cast<int64_t>(tile) * chunks_of(in) * kChunkFragments;
  }
};

/// Launches the kernel that makes them of inputs [rows, in].
int split_inputs(const SplitInputs& split, const float* input, void* stream);

/// Sums of a warp's tiles of outputs and rows, as a lane holds them.
template <int kOutputTiles, int kTiles>
struct Sums {
  float numbers[kOutputTiles][kTiles][4] = {};
};

/// A chunk of the first tile of rows, as a lane needs it; that of the next tile is a stride
/// further. A lane whose row is not there holds another one's, or what no kernel has written:
/// nobody reads its sums.
struct InputAddress {
  const InputFragment* fragments;
  const float* sums;   ///< those of the first of the lane's two rows
  int64_t second_sum;  ///< from there to those of the second
  int32_t fragment_stride, sum_stride;

  /// A step of a tile.
  __device__ StepInputs step(int tile, int step) const {
    return read_step(fragments + tile * fragment_stride + step * kParts * kWarp);
  }
};

/// Adds the products of a chunk of inputs with weights that are multiplied as they lie in memory.
template <class Format, int kOutputTiles, int kTiles>
__device__ inline void add_chunk(const WeightChunk<Format> (&weights)[kOutputTiles],
                                 const InputAddress& inputs, int32_t tiles,
                                 Sums<kOutputTiles, kTiles>& sums) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile > 0 && tile >= tiles) {
      break;
    }
    float chunk[kOutputTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const StepInputs step_inputs = inputs.step(tile, step);
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          multiply_tiles(chunk[o], weights[o].fragments[step].word, step_inputs.parts[part].word);
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
                                      const StepInputs& inputs, float (&sums)[4]) {
#pragma unroll
  for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
    for (int weight_part = Format::kParts - 1; weight_part >= 0; --weight_part) {
      if (weight_part + part < kParts) {
        multiply_tiles(sums, weights[weight_part], inputs.parts[part].word);
      }
    }
  }
}

/// The sum of a group of kGroupSteps steps' inputs in a row, of whose chunk `sums` has the first.
template <int kGroupSteps>
__device__ inline float input_sum(const float* sums, int group) {
  static_assert(kGroupSteps <= 2 && kSumInputs == kStepInputs);
  const float* first = sums + group * kGroupSteps * kTileRows;
  return kGroupSteps == 1 ? first[0] : first[0] + first[kTileRows];
}

/// Sums of a chunk's inputs that share a scale, by tiles of outputs and rows.
template <int kOutputTiles, int kTiles>
using ChunkSums = float[kOutputTiles][kTiles][4];

/// Adds the sums of a chunk's inputs that share a scale.
template <class Format, int kOutputTiles, int kTiles>
__device__ inline void add_scaled(const WeightChunk<Format> (&weights)[kOutputTiles], int group,
                                  const ChunkSums<kOutputTiles, kTiles>& chunk,
                                  const InputAddress& inputs, int32_t tiles,
                                  Sums<kOutputTiles, kTiles>& sums) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (Format::kHasMinima && tile > 0 && tile >= tiles) {
      break;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o) {
        float& sum = sums.numbers[o][tile][i];
        if constexpr (Format::kScaleWords > 0) {
          // Numbers 0 and 1 are of the lane's first output, 2 and 3 of its second.
          const uint32_t* scales = weights[o].scales + i / 2 * Format::kScaleWords;
          sum = device::fused(chunk[o][tile][i], Format::scale(scales, group), sum);
          if constexpr (Format::kHasMinima) {
            const float* sums_of_row =
                inputs.sums + tile * inputs.sum_stride + i % 2 * inputs.second_sum;
            sum = device::fused(-Format::minimum(scales, group),
                                input_sum<Format::kScaleSteps>(sums_of_row, group), sum);
          }
        } else {
          sum += chunk[o][tile][i];
        }
      }
    }
  }
}

/// What add_chunk does, with weights that are expanded in registers, a step for all tiles of rows.
template <class Format, int kOutputTiles, int kTiles>
__device__ inline void add_expanded_chunk(const Format& format,
                                          const WeightChunk<Format> (&weights)[kOutputTiles],
                                          const InputAddress& inputs, int32_t tiles,
                                          Sums<kOutputTiles, kTiles>& sums) {
#pragma unroll
  for (int group = 0; group < kSteps / Format::kScaleSteps; ++group) {
    ChunkSums<kOutputTiles, kTiles> chunk = {};
#pragma unroll
    for (int s = 0; s < Format::kScaleSteps; ++s) {
      const int step = group * Format::kScaleSteps + s;
      uint32_t words[kOutputTiles][Format::kParts][4];
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o) {
        format.expand(weights[o].fragments, step, words[o]);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile > 0 && tile >= tiles) {
          break;
        }
        const StepInputs step_inputs = inputs.step(tile, step);
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          multiply_parts<Format>(words[o], step_inputs, chunk[o][tile]);
        }
      }
    }
    add_scaled<Format>(weights, group, chunk, inputs, tiles, sums);
  }
}

/// Adds the products of all chunks that the warp takes with `tiles` tiles of rows.
template <class Format, int kOutputTiles, int kAhead, int kTiles>
__device__ inline void add_chunks(const Format& format,
                                  WeightStream<Format, kOutputTiles, kAhead>& stream,
                                  const InputAddress& first_inputs, int32_t tiles,
                                  Sums<kOutputTiles, kTiles>& sums) {
  stream.for_each([&](int32_t chunk, const WeightChunk<Format>(&weights)[kOutputTiles]) {
    InputAddress inputs = first_inputs;
    inputs.fragments += static_cast<int64_t>(chunk) * kChunkFragments;
    inputs.sums += static_cast<int64_t>(chunk) * kChunkSums;
    if constexpr (Format::kIsExpanded) {
      add_expanded_chunk(format, weights, inputs, tiles, sums);
    } else {
      add_chunk<Format>(weights, inputs, tiles, sums);
    }
  });
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

/// The sums of those that took the chunks in turn, added in their order: sum_of(taker).
template <class SumOf>
__device__ inline float added_sums(const SumOf& sum_of) {
  float sum = sum_of(0);
#pragma unroll
  for (int taker = 1; taker < kTensorWarps; ++taker) {
    sum += sum_of(taker);
  }
  return sum;
}

}  // namespace specdec::cuda
