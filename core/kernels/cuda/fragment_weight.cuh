#pragma once
// Single weights of a matrix that is arranged for tensor cores.
#include "core/kernels/cuda/fragment_formats.cuh"

namespace specdec::cuda {

/// A matrix [outputs, in] in fragments.
struct FragmentMatrix {
  const void* memory;
  int32_t outputs, in;
};

/// A weight, rounded as those of rows are.
template <class Format>
__device__ inline float fragment_weight(const FragmentMatrix& matrix, const Format& format,
                                        int32_t output, int32_t k) {
  const auto* bytes = static_cast<const unsigned char*>(matrix.memory);
  const int64_t chunk =
      static_cast<int64_t>(output / kTileOutputs) * chunks_of(matrix.in) + k / kChunkInputs;
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
        reinterpret_cast<const uint32_t*>(bytes +
                                          scales_offset<Format>(matrix.outputs, matrix.in)) +
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

}  // namespace specdec::cuda
