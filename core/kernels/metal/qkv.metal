#include "core/kernels/device/rotary.h"
#include "core/kernels/metal/cache.metalh"
#include "core/kernels/metal/reduce.metalh"

using namespace specdec;

namespace {

/// A head of the projection, how it is normed, and the angles it is rotated by.
struct HeadInput {
  const device float* numbers;
  const device float* scale;
  const device float* cosines;
  const device float* sines;
  int32_t size;
  float eps;
};

inline float inverse_rms(HeadInput head, mps::ThreadPlace place, threadgroup float* scratch) {
  return 1.0F / portable::square_root(mps::mean_square<mps::kHeadThreads>(head.numbers, head.size,
                                                                          1.0F, place, scratch) +
                                      head.eps);
}

/// Norms and rotates a head, whose number i goes to out[i * stride]; the whole group.
template <class T>
inline void rotate_head(HeadInput head, bool norm, device T* out, int32_t stride,
                        mps::ThreadPlace place, threadgroup float* scratch) {
  const float factor = norm ? inverse_rms(head, place, scratch) : 1.0F;
  const int32_t half_size = head.size / 2;
  for (int32_t i = place.index; i < half_size; i += mps::kHeadThreads) {
    portable::RotaryPair pair = {head.numbers[i], head.numbers[half_size + i]};
    if (norm) {
      pair.low = pair.low * factor * head.scale[i];
      pair.high = pair.high * factor * head.scale[half_size + i];
    }
    pair = portable::rotate(pair, head.cosines[i], head.sines[i]);
    out[static_cast<int64_t>(i) * stride] = mps::narrowed(pair.low, T(0));
    out[static_cast<int64_t>(half_size + i) * stride] = mps::narrowed(pair.high, T(0));
  }
}

}  // namespace

/// A group takes a head of a token: a query, a key or a value.
#define QKV_KERNEL(name, Kv)                                                                       \
  kernel void name(                                                                                \
      const device float* qkv [[buffer(0)]], const device float* q_scale [[buffer(1)]],            \
      const device float* k_scale [[buffer(2)]], const device float* cosines [[buffer(3)]],        \
      const device float* sines [[buffer(4)]], device float* queries [[buffer(5)]],                \
      device Kv* keys [[buffer(6)]], device Kv* values [[buffer(7)]],                              \
      const device int32_t* rows [[buffer(8)]], const device int32_t* slots [[buffer(9)]],         \
      const device int32_t* positions [[buffer(10)]], const device int32_t* angles [[buffer(11)]], \
      const device int32_t* page_table [[buffer(12)]],                                             \
      constant mps::QkvSizes& sizes [[buffer(13)]], threadgroup float* scratch GROUP_MEMORY,       \
      uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],       \
      uint simd_group [[simdgroup_index_in_threadgroup]]) {                                        \
    const mps::ThreadPlace place = mps::place_of(lane, simd_group);                                \
    const int32_t head = static_cast<int32_t>(group.x);                                            \
    const int64_t node = group.y;                                                                  \
    const int32_t dim = sizes.cache.head_dim;                                                      \
    const int32_t kv_heads = sizes.cache.kv_heads;                                                 \
    if (positions[node] < 0) {                                                                     \
      return;                                                                                      \
    }                                                                                              \
    const int64_t width = sizes.heads + sizes.kv_projections * kv_heads;                           \
    const int64_t angle = static_cast<int64_t>(angles[node]) * (dim / 2);                          \
    HeadInput input = {qkv + (node * width + head) * dim,                                          \
                       q_scale,                                                                    \
                       cosines + angle,                                                            \
                       sines + angle,                                                              \
                       dim,                                                                        \
                       sizes.eps};                                                                 \
    if (head < sizes.heads) {                                                                      \
      rotate_head(input, sizes.query_norm != 0, queries + (node * sizes.heads + head) * dim, 1,    \
                  place, scratch);                                                                 \
      return;                                                                                      \
    }                                                                                              \
    const int32_t page = mps::page_of(page_table, sizes.cache, rows[node], slots[node]);           \
    const int32_t in_page = slots[node] % sizes.cache.page_size;                                   \
    const portable::PageShape shape = mps::page_shape(sizes.cache);                                \
    const int32_t kv_head = (head - sizes.heads) % kv_heads;                                       \
    if (head < sizes.heads + kv_heads) {                                                           \
      input.scale = k_scale;                                                                       \
      rotate_head(input, sizes.key_norm != 0,                                                      \
                  keys + portable::key_offset(shape, page, kv_head, in_page),                      \
                  sizes.cache.page_size, place, scratch);                                          \
      return;                                                                                      \
    }                                                                                              \
    if (sizes.kv_projections == 1) {                                                               \
      input.numbers -= static_cast<int64_t>(kv_heads) * dim;                                       \
    }                                                                                              \
    device Kv* value = values + portable::value_offset(shape, page, kv_head, in_page);             \
    const float factor = sizes.value_norm != 0 ? inverse_rms(input, place, scratch) : 1.0F;        \
    for (int32_t i = place.index; i < dim; i += mps::kHeadThreads) {                               \
      value[i] = mps::narrowed(input.numbers[i] * factor, Kv(0));                                  \
    }                                                                                              \
  }

QKV_KERNEL(qkv_to_cache_float32, float)
QKV_KERNEL(qkv_to_cache_bfloat16, ushort)
