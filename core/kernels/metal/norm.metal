#include "core/kernels/metal/reduce.metalh"
#include "core/kernels/metal/sizes.h"

using namespace specdec;

/// A group normalises a row.
kernel void rms_norm(const device float* input [[buffer(0)]],
                     const device float* scale [[buffer(1)]], device float* out [[buffer(2)]],
                     constant mps::NormSizes& sizes [[buffer(3)]],
                     threadgroup float* scratch GROUP_MEMORY,
                     uint3 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const int64_t first = static_cast<int64_t>(group.x) * sizes.size;
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  const float square =
      mps::mean_square<mps::kRowThreads>(input + first, sizes.size, 1.0F, place, scratch);
  const float inverse = 1.0F / portable::square_root(square + sizes.eps);
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    const float normed = portable::rounded_product(input[first + i] * inverse, scale[i]);
    out[first + i] = sizes.add != 0 ? out[first + i] + normed : normed;
  }
}
