// Rows of a matrix that is arranged for tensor cores; see fragment_formats.cuh.
#include "core/kernels/cuda/fragment_formats.cuh"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

/// A weight, rounded as those of rows are.
template <class Format>
__device__ inline float fragment_weight(const EmbedRowsTask& task, const Format& format,
                                        int32_t output, int32_t k) {
  const auto* bytes = static_cast<const unsigned char*>(task.weight);
  const int64_t chunk =
      static_cast<int64_t>(output / kTileOutputs) * chunks_of(task.in) + k / kChunkInputs;
  const int32_t in_step = k % kStepInputs;
  const int32_t lane = output % 8 * 4 + in_step % 8 / 2;
  const int32_t second = output % kTileOutputs / 8;  // of the lane's two outputs
  const auto* fragments =
      reinterpret_cast<const WeightFragment*>(bytes + chunk * kChunkBytes<Format>);
  const uint32_t code = Format::code(fragments, lane, k % kChunkInputs / kStepInputs,
                                     in_step / 8 * 2 + second, k % 2);
  if constexpr (Format::kScaleWords == 0) {
    return format.weight(code);
  } else {
    const auto* scales =
        reinterpret_cast<const uint32_t*>(bytes + scales_offset<Format>(task.outputs, task.in)) +
        chunk * kChunkScaleWords<Format> + (output % 8 * 2 + second) * Format::kScaleWords;
    const int32_t group = k % kChunkInputs / (Format::kScaleSteps * kStepInputs);
    if constexpr (Format::kHasZeros) {
      return device::rounded_product(format.weight(code) - Format::zero(scales, group),
                                     Format::scale(scales, group));
    }
    if constexpr (Format::kIsAffine) {
      return device::fused(format.weight(code), Format::scale(scales, group),
                           -Format::minimum(scales, group));
    }
    const float scaled = device::rounded_product(format.weight(code), Format::scale(scales, group));
    if constexpr (Format::kHasMinima) {
      return scaled - Format::minimum(scales, group);
    }
    return scaled;
  }
}

/// A block reads one row.
template <class Format>
__global__ void __launch_bounds__(kTensorThreads)
    embed_fragments_kernel(FormatTask<EmbedRowsTask, Format> kernel_task) {
  const EmbedRowsTask& task = kernel_task.task;
  const auto index = static_cast<int64_t>(blockIdx.x);
  const int32_t output = task.ids[index];
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kTensorThreads) {
    task.out[index * task.in + k] =
        fragment_weight(task, kernel_task.format, output, k) * task.factor;
  }
}

}  // namespace

int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in, CudaWeights format) {
  return with_fragments(format, int64_t{0}, [&](auto fragments) {
    using Format = decltype(fragments);
    return static_cast<int64_t>(weight_tiles(outputs)) * chunks_of(in) *
           (kChunkBytes<Format> + kChunkScaleWords<Format> * 4);
  });
}

int specdec_cuda_embed_fragments(const EmbedRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(task->count);
    shape.threads = kTensorThreads;
    using Format = decltype(fragments);
    return launch(embed_fragments_kernel<Format>, shape, stream,
                  FormatTask<EmbedRowsTask, Format>{*task, fragments});
  });
}

}  // namespace specdec::cuda
