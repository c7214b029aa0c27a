// Rearranges matrices as tensor cores take them; see fragment_formats.cuh.
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"

namespace specdec::cuda {
namespace {

/// Scale of the block that holds input k of an output, which begins with it; 0 where there is none.
template <class Format>
__device__ inline uint32_t scale_at(const PackFragmentsTask& task, int32_t output, int32_t k) {
  if (output >= task.outputs || k >= task.in) {
    return 0;
  }
  const Bytes block = static_cast<Bytes>(task.weight) +
                      output * row_bytes<typename Format::Weights>(task.in) +
                      static_cast<int64_t>(k / Format::Weights::kBlock) * Format::Weights::kBytes;
  return static_cast<uint32_t>(block[0]) | static_cast<uint32_t>(block[1]) << 8U;
}

/// Writes the scales of a tile and chunk; lanes 0 .. 7, of which each takes outputs g and g + 8.
template <class Format>
__device__ inline void pack_scales(const PackFragmentsTask& task, int32_t tile, int32_t chunk) {
  const int group = static_cast<int>(lane_index());
  if (group >= 8) {
    return;
  }
  const int64_t index = (static_cast<int64_t>(tile) * chunks_of(task.in) + chunk) * kScaleBytes;
  auto* scales = reinterpret_cast<ScalePair*>(static_cast<unsigned char*>(task.fragments) +
                                              scales_offset<Format>(task.outputs, task.in) + index);
#pragma unroll
  for (int i = 0; i < kChunkScales; ++i) {
    const int32_t k = chunk * kChunkInputs + i * (kChunkInputs / kChunkScales);
    const int32_t output = tile * kTileOutputs + group;
    scales[group * kChunkScales + i] =
        scale_at<Format>(task, output, k) | scale_at<Format>(task, output + 8, k) << 16U;
  }
}

/// A warp packs a chunk of a tile: grid (tiles of outputs, chunks in groups of kTensorWarps).
template <class Format>
__global__ void __launch_bounds__(kTensorThreads) pack_kernel(PackFragmentsTask task) {
  const int lane = static_cast<int>(lane_index());
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const auto chunk = static_cast<int32_t>(blockIdx.y * kTensorWarps + warp_index());
  if (chunk >= chunks_of(task.in)) {
    return;
  }
  const auto* weight = static_cast<Bytes>(task.weight);
  WeightFragment fragments[Format::kFragments] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int32_t output = tile * kTileOutputs + lane / 4 + w % 2 * 8;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int32_t k =
            chunk * kChunkInputs + step * kStepInputs + fragment_input(lane, w / 2) + i;
        const uint32_t code =
            output < task.outputs && k < task.in
                ? Format::code_at(weight + output * row_bytes<typename Format::Weights>(task.in), k)
                : Format::kZero;
        Format::put(code, step, w, i, fragments);
      }
    }
  }
  auto* out = reinterpret_cast<WeightFragment*>(
      static_cast<unsigned char*>(task.fragments) +
      (static_cast<int64_t>(tile) * chunks_of(task.in) + chunk) * kChunkBytes<Format>);
#pragma unroll
  for (int f = 0; f < Format::kFragments; ++f) {
    out[f * kWarp + lane] = fragments[f];
  }
  if (Format::kHasScales) {
    pack_scales<Format>(task, tile, chunk);
  }
}

}  // namespace

int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in, CudaWeights format) {
  return with_fragments(format, int64_t{0}, [&](auto fragments) {
    using Format = decltype(fragments);
    return static_cast<int64_t>(weight_tiles(outputs)) * chunks_of(in) *
           (kChunkBytes<Format> + kChunkScaleBytes<Format>);
  });
}

int specdec_cuda_pack_fragments(const PackFragmentsTask* task, void* stream) {
  if (task->outputs == 0 || task->in == 0) {
    return 0;
  }
  if (!is_aligned(task->fragments)) {
    return kInvalidValue;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    using Format = decltype(fragments);
    if (task->in % Format::Weights::kBlock != 0) {
      return kInvalidValue;
    }
    const LaunchShape shape = warp_shape(weight_tiles(task->outputs), chunks_of(task->in));
    return launch(pack_kernel<Format>, shape, stream, *task);
  });
}

}  // namespace specdec::cuda
