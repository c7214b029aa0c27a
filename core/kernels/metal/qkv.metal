#include "core/kernels/device/rotary.h"
#include "core/kernels/metal/cache.metalh"
#include "core/kernels/metal/hadamard.metalh"
#include "core/kernels/metal/kv_formats.metalh"

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

/// Norms and rotates a head into the group's memory; the whole group.
inline void rotate_head(HeadInput head, bool norm, threadgroup float* out, mps::ThreadPlace place,
                        threadgroup float* scratch) {
  const float factor = norm ? inverse_rms(head, place, scratch) : 1.0F;
  const int32_t half_size = head.size / 2;
  for (int32_t i = place.index; i < half_size; i += mps::kHeadThreads) {
    portable::RotaryPair pair = {head.numbers[i], head.numbers[half_size + i]};
    if (norm) {
      pair.low = pair.low * factor * head.scale[i];
      pair.high = pair.high * factor * head.scale[half_size + i];
    }
    pair = portable::rotate(pair, head.cosines[i], head.sines[i]);
    out[i] = pair.low;
    out[half_size + i] = pair.high;
  }
}

/// A value's head into the group's memory; the whole group.
inline void copy_value(HeadInput head, bool norm, threadgroup float* out, mps::ThreadPlace place,
                       threadgroup float* scratch) {
  const float factor = norm ? inverse_rms(head, place, scratch) : 1.0F;
  for (int32_t i = place.index; i < head.size; i += mps::kHeadThreads) {
    out[i] = head.numbers[i] * factor;
  }
}

/// Multiplies numbers as the cache says, and waits until all threads have written theirs.
inline void finish_head(constant mps::CacheSizes& sizes, threadgroup float* numbers,
                        mps::ThreadPlace place) {
  if (sizes.hadamard != 0) {
    mps::hadamard_head<mps::kHeadThreads>(numbers, sizes.head_dim, place);
  } else {
    mps::wait_for_group();
  }
}

}  // namespace

/// A group takes a head of a token: a query, a key or a value.
#define QKV_KERNEL(name, Kv)                                                                       \
  kernel void name(                                                                                \
      const device float* qkv [[buffer(0)]], const device float* q_scale [[buffer(1)]],            \
      const device float* k_scale [[buffer(2)]], const device float* cosines [[buffer(3)]],        \
      const device float* sines [[buffer(4)]], device float* queries [[buffer(5)]],                \
      device mps::Kv::Element* keys [[buffer(6)]], device mps::Kv::Element* values [[buffer(7)]],  \
      const device int32_t* rows [[buffer(8)]], const device int32_t* slots [[buffer(9)]],         \
      const device int32_t* positions [[buffer(10)]], const device int32_t* angles [[buffer(11)]], \
      const device int32_t* page_table [[buffer(12)]],                                             \
      constant mps::QkvSizes& sizes [[buffer(13)]], threadgroup float* numbers GROUP_MEMORY,       \
      uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],       \
      uint simd_group [[simdgroup_index_in_threadgroup]]) {                                        \
    const mps::ThreadPlace place = mps::place_of(lane, simd_group);                                \
    const int32_t head = static_cast<int32_t>(group.x);                                            \
    const int64_t node = group.y;                                                                  \
    const int32_t dim = sizes.cache.head_dim;                                                      \
    threadgroup float* scratch = numbers + dim;                                                    \
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
      rotate_head(input, sizes.query_norm != 0, numbers, place, scratch);                          \
      finish_head(sizes.cache, numbers, place);                                                    \
      mps::Float32Kv::write(numbers, dim, queries + (node * sizes.heads + head) * dim, 1, place);  \
      return;                                                                                      \
    }                                                                                              \
    const int32_t page = mps::page_of(page_table, sizes.cache, rows[node], slots[node]);           \
    const int32_t in_page = slots[node] % sizes.cache.page_size;                                   \
    const portable::PageShape shape = mps::page_shape(sizes.cache);                                \
    const int32_t kv_head = (head - sizes.heads) % kv_heads;                                       \
    if (head < sizes.heads + kv_heads) {                                                           \
      input.scale = k_scale;                                                                       \
      rotate_head(input, sizes.key_norm != 0, numbers, place, scratch);                            \
      finish_head(sizes.cache, numbers, place);                                                    \
      mps::Kv::write(numbers, dim, keys + portable::key_offset(shape, page, kv_head, in_page),     \
                     sizes.cache.page_size, place);                                                \
      return;                                                                                      \
    }                                                                                              \
    if (sizes.kv_projections == 1) {                                                               \
      input.numbers -= static_cast<int64_t>(kv_heads) * dim;                                       \
    }                                                                                              \
    copy_value(input, sizes.value_norm != 0, numbers, place, scratch);                             \
    finish_head(sizes.cache, numbers, place);                                                      \
    mps::Kv::write(numbers, dim, values + portable::value_offset(shape, page, kv_head, in_page),   \
                   1, place);                                                                      \
  }

QKV_KERNEL(qkv_to_cache_float32, Float32Kv)
QKV_KERNEL(qkv_to_cache_bfloat16, BFloat16Kv)
QKV_KERNEL(qkv_to_cache_float16, Float16Kv)
QKV_KERNEL(qkv_to_cache_fp8_e4m3, Float8Kv)
QKV_KERNEL(qkv_to_cache_q8, Q8Kv)
QKV_KERNEL(qkv_to_cache_q4, Q4Kv)
QKV_KERNEL(qkv_to_cache_hierarchical, HalvesKv)
