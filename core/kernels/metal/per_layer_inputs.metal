// Gemma 3n's sparse gate and the layers' own inputs.
#include "core/kernels/metal/reduce.metalh"
#include "core/kernels/metal/sizes.h"

using namespace specdec;

/// A group takes a row of [rows, 2 * size]. Metal has no float64, which the other devices sum in.
kernel void cut_gate(device float* gate_up [[buffer(0)]],
                     constant mps::CutSizes& sizes [[buffer(1)]],
                     threadgroup float* scratch GROUP_MEMORY,
                     uint3 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd_group [[simdgroup_index_in_threadgroup]]) {
  device float* gate = gate_up + static_cast<int64_t>(group.x) * 2 * sizes.size;
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  float sum = 0.0F;
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    sum += gate[i];
  }
  const float mean =
      mps::group_sum<mps::kRowThreads>(sum, place, scratch) / static_cast<float>(sizes.size);
  float squares = 0.0F;
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    const float distance = gate[i] - mean;
    squares = portable::fused(distance, distance, squares);
  }
  squares = mps::group_sum<mps::kRowThreads>(squares, place, scratch);
  const float cut = portable::fused(
      sizes.deviations, portable::square_root(squares / static_cast<float>(sizes.size)), mean);
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    const float above = gate[i] - cut;
    gate[i] = above < 0.0F ? 0.0F : above;
  }
}

/// A group takes a layer of a token.
kernel void per_layer_inputs(
    const device float* context [[buffer(0)]], const device float* token [[buffer(1)]],
    const device float* norm [[buffer(2)]], device float* out [[buffer(3)]],
    constant mps::PerLayerSizes& sizes [[buffer(4)]], threadgroup float* scratch GROUP_MEMORY,
    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const float root_of_half = 0.70710678118654752F;
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  const int64_t layer = group.x;
  const int64_t row = group.y;
  const int64_t from = (row * sizes.layers + layer) * sizes.size;
  const int64_t to = (layer * sizes.rows + row) * sizes.size;
  const float square = mps::mean_square<mps::kRowThreads>(context + from, sizes.size,
                                                          sizes.context_scale, place, scratch);
  const float factor = 1.0F / portable::square_root(square + sizes.eps);
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    const float normed =
        portable::rounded_product(context[from + i] * sizes.context_scale * factor, norm[i]);
    out[to + i] = (normed + token[from + i]) * root_of_half;
  }
}
