// Parallel residual streams. A thread takes a column of all streams of a token.
#include "core/kernels/metal/reduce.metalh"
#include "core/kernels/metal/sizes.h"

using namespace specdec;

/// A group takes a token: out = tanh(weight * rms_norm(input)).
kernel void altup_route(const device float* input [[buffer(0)]],
                        const device float* weight [[buffer(1)]],
                        const device float* norm [[buffer(2)]], device float* out [[buffer(3)]],
                        constant mps::StreamSizes& sizes [[buffer(4)]],
                        threadgroup float* scratch GROUP_MEMORY,
                        uint3 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  const device float* row = input + static_cast<int64_t>(group.x) * sizes.size;
  const float square = mps::mean_square<mps::kRowThreads>(row, sizes.size, 1.0F, place, scratch);
  const float factor = 1.0F / portable::square_root(square + sizes.eps);
  for (int32_t stream = 0; stream < sizes.count; ++stream) {
    float sum = 0.0F;
    for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
      sum = portable::fused(row[i] * factor * norm[i],
                            weight[static_cast<int64_t>(stream) * sizes.size + i], sum);
    }
    sum = mps::group_sum<mps::kRowThreads>(sum, place, scratch);
    if (place.index == 0) {
      out[static_cast<int64_t>(group.x) * sizes.count + stream] = portable::hyperbolic_tangent(sum);
    }
  }
}

namespace {

/// Row o of a matrix [any, count] times a token's routes.
inline float routed(const device float* matrix, const device float* routes, int32_t o,
                    int32_t count) {
  float sum = 0.0F;
  for (int32_t i = 0; i < count; ++i) {
    sum = portable::fused(matrix[o * count + i], routes[i], sum);
  }
  return sum;
}

}  // namespace

/// Grid (groups of columns, tokens). A thread reads its column before it writes it.
kernel void altup_predict(const device float* streams [[buffer(0)]],
                          const device float* routes [[buffer(1)]],
                          const device float* coefficients [[buffer(2)]],
                          device float* out [[buffer(3)]],
                          constant mps::StreamSizes& sizes [[buffer(4)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t column = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (column >= sizes.size) {
    return;
  }
  const device float* own = routes + static_cast<int64_t>(group.y) * sizes.count;
  const int64_t stride = static_cast<int64_t>(sizes.rows) * sizes.size;
  const int64_t first = static_cast<int64_t>(group.y) * sizes.size + column;
  float numbers[mps::kMaxStreams];
  for (int32_t s = 0; s < sizes.count; ++s) {
    numbers[s] = streams[s * stride + first];
  }
  for (int32_t p = 0; p < sizes.count; ++p) {
    float sum = numbers[p];
    for (int32_t q = 0; q < sizes.count; ++q) {
      sum = portable::fused(routed(coefficients, own, p * sizes.count + q, sizes.count), numbers[q],
                            sum);
    }
    out[p * stride + first] = sum;
  }
}

/// Grid (groups of columns, tokens).
kernel void altup_correct(const device float* activated [[buffer(0)]],
                          const device float* routes [[buffer(1)]],
                          const device float* coefficients [[buffer(2)]],
                          device float* streams [[buffer(3)]],
                          constant mps::StreamSizes& sizes [[buffer(4)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t column = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (column >= sizes.size) {
    return;
  }
  const device float* own = routes + static_cast<int64_t>(group.y) * sizes.count;
  const int64_t stride = static_cast<int64_t>(sizes.rows) * sizes.size;
  const int64_t first = static_cast<int64_t>(group.y) * sizes.size + column;
  const float innovation = activated[first] - streams[sizes.active * stride + first];
  for (int32_t p = 0; p < sizes.count; ++p) {
    const float share = routed(coefficients, own, p, sizes.count) + 1.0F;
    streams[p * stride + first] = portable::fused(share, innovation, streams[p * stride + first]);
  }
}

/// A group takes a row.
kernel void match_rms(const device float* like [[buffer(0)]], device float* values [[buffer(1)]],
                      constant mps::StreamSizes& sizes [[buffer(2)]],
                      threadgroup float* scratch GROUP_MEMORY,
                      uint3 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const float smallest_square = 1e-5F;
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  const int64_t first = static_cast<int64_t>(group.x) * sizes.size;
  const float wanted = portable::square_root(
      mps::mean_square<mps::kRowThreads>(like + first, sizes.size, 1.0F, place, scratch));
  const float square =
      mps::mean_square<mps::kRowThreads>(values + first, sizes.size, 1.0F, place, scratch);
  const float found = portable::square_root(square < smallest_square ? smallest_square : square);
  for (int32_t i = place.index; i < sizes.size; i += mps::kRowThreads) {
    values[first + i] = values[first + i] * wanted / found;
  }
}

/// out = the mean of streams [count, size].
kernel void mean_stream(const device float* streams [[buffer(0)]], device float* out [[buffer(1)]],
                        constant mps::StreamSizes& sizes [[buffer(2)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i >= sizes.size) {
    return;
  }
  float sum = 0.0F;
  for (int32_t s = 0; s < sizes.count; ++s) {
    sum += streams[static_cast<int64_t>(s) * sizes.size + i];
  }
  out[i] = sum / static_cast<float>(sizes.count);
}
