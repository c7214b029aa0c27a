// Attention over the paged cache, in two kernels: what each chunk of positions contributes to a
// query head of a node, then the chunks added up in their order. A thread scores one position,
// dimension after dimension, and mixes one dimension, position after position.
#include "core/kernels/device/activations.h"
#include "core/kernels/device/online_softmax.h"
#include "core/kernels/metal/cache.metalh"
#include "core/kernels/metal/hadamard.metalh"
#include "core/kernels/metal/kv_formats.metalh"

using namespace specdec;

namespace {

/// Memory of a group: a query, then numbers of each position.
struct Shared {
  threadgroup float* query;    ///< [head_dim]
  threadgroup float* weights;  ///< [kChunkPositions]; -1 = hidden
  threadgroup int32_t* rows;   ///< [kChunkPositions] of the values, page after page
  threadgroup float* scratch;  ///< of group_sum
};

inline Shared shared_of(threadgroup float* numbers, int32_t dim) {
  return {numbers, numbers + dim,
          reinterpret_cast<threadgroup int32_t*>(numbers + dim + mps::kChunkPositions),
          numbers + dim + 2 * mps::kChunkPositions};
}

/// q.k with the key at a slot.
template <class Kv>
inline float score_of(threadgroup float* query, const device typename Kv::Element* key, int32_t dim,
                      int32_t stride) {
  float score = 0.0F;
  for (int32_t first = 0; first < dim; first += mps::kSimdThreads) {
    const float scale = Kv::scale(key, stride, dim, first / mps::kSimdThreads);
    const int32_t end = dim - first < mps::kSimdThreads ? dim : first + mps::kSimdThreads;
    for (int32_t d = first; d < end; ++d) {
      score = portable::fused(query[d], scale * Kv::code(key, stride, dim, d), score);
    }
  }
  return score;
}

/// The values of a dimension, mixed by the weights. A hidden value is not multiplied: it may be
/// anything.
template <class Kv>
inline float mixed_dimension(Shared shared, const device typename Kv::Element* values,
                             constant mps::CacheSizes& sizes, int32_t d) {
  const int32_t dim = sizes.head_dim;
  float mixed = 0.0F;
  for (int32_t j = 0; j < mps::kChunkPositions; ++j) {
    const float weight = shared.weights[j];
    if (!(weight < 0.0F)) {
      const device typename Kv::Element* value =
          values + static_cast<int64_t>(shared.rows[j]) * sizes.width;
      const float scale = Kv::scale(value, 1, dim, d / mps::kSimdThreads);
      mixed = portable::fused(weight, scale * Kv::code(value, 1, dim, d), mixed);
    }
  }
  return mixed;
}

/// First and last chunk of which a node sees something.
inline int32_t first_chunk(int32_t position, int32_t window) {
  return portable::first_seen(position, window) / mps::kChunkPositions;
}

}  // namespace

/// Grid (heads, nodes, chunks). `mixed`: [nodes, heads, chunks, head_dim]; `parts`: the largest
/// score and the sum of weights, [nodes, heads, chunks, 2].
#define ATTENTION_KERNEL(name, Kv)                                                                 \
  kernel void name(                                                                                \
      const device float* queries [[buffer(0)]],                                                   \
      const device mps::Kv::Element* keys [[buffer(1)]],                                           \
      const device mps::Kv::Element* values [[buffer(2)]],                                         \
      const device int32_t* rows [[buffer(3)]], const device int32_t* positions [[buffer(4)]],     \
      const device int32_t* path_starts [[buffer(5)]], const device int32_t* paths [[buffer(6)]],  \
      const device int32_t* lengths [[buffer(7)]], const device int32_t* page_table [[buffer(8)]], \
      const device float* bias [[buffer(9)]], device float* mixed [[buffer(10)]],                  \
      device float* parts [[buffer(11)]], constant mps::AttentionSizes& sizes [[buffer(12)]],      \
      threadgroup float* numbers GROUP_MEMORY, uint3 group [[threadgroup_position_in_grid]],       \
      uint lane [[thread_index_in_simdgroup]],                                                     \
      uint simd_group [[simdgroup_index_in_threadgroup]]) {                                        \
    const mps::ThreadPlace place = mps::place_of(lane, simd_group);                                \
    const int32_t head = static_cast<int32_t>(group.x);                                            \
    const int32_t node = static_cast<int32_t>(group.y);                                            \
    const int32_t chunk = static_cast<int32_t>(group.z);                                           \
    const int32_t newest = positions[node];                                                        \
    if (newest < 0 || chunk > newest / mps::kChunkPositions ||                                     \
        chunk < first_chunk(newest, sizes.cache.window)) {                                         \
      return;                                                                                      \
    }                                                                                              \
    const int32_t dim = sizes.cache.head_dim;                                                      \
    const int32_t page_size = sizes.cache.page_size;                                               \
    const Shared shared = shared_of(numbers, dim);                                                 \
    const int64_t query = (static_cast<int64_t>(node) * sizes.heads + head) * dim;                 \
    for (int32_t d = place.index; d < dim; d += mps::kChunkPositions) {                            \
      shared.query[d] = queries[query + d];                                                        \
    }                                                                                              \
    mps::wait_for_group();                                                                         \
    const mps::Tables tables = {rows, positions, path_starts, paths, lengths, page_table};         \
    const int32_t kv_head = head / (sizes.heads / sizes.cache.kv_heads);                           \
    const int32_t slot =                                                                           \
        mps::visible_slot(tables, sizes.cache, node, chunk * mps::kChunkPositions + place.index);  \
    float score = portable::minus_infinity();                                                      \
    if (slot >= 0) {                                                                               \
      const int32_t page = mps::page_of(page_table, sizes.cache, rows[node], slot);                \
      const int32_t in_page = slot % page_size;                                                    \
      const portable::PageShape shape = mps::page_shape(sizes.cache);                              \
      score = score_of<mps::Kv>(shared.query,                                                      \
                                keys + portable::key_offset(shape, page, kv_head, in_page), dim,   \
                                page_size);                                                        \
      score = portable::soft_cap(score * sizes.scale, sizes.soft_cap);                             \
      score += slot < sizes.bias_columns                                                           \
                   ? bias[static_cast<int64_t>(node) * sizes.bias_columns + slot]                  \
                   : 0.0F;                                                                         \
      shared.rows[place.index] = (page * sizes.cache.kv_heads + kv_head) * page_size + in_page;    \
    }                                                                                              \
    const float largest = mps::group_largest<mps::kChunkPositions>(score, place, shared.scratch);  \
    const bool counts = slot >= 0 && largest != portable::minus_infinity();                        \
    const float weight = counts ? portable::exponential(score - largest) : -1.0F;                  \
    shared.weights[place.index] = weight;                                                          \
    const float total =                                                                            \
        mps::group_sum<mps::kChunkPositions>(counts ? weight : 0.0F, place, shared.scratch);       \
    const int64_t part = (static_cast<int64_t>(node) * sizes.heads + head) * sizes.chunks + chunk; \
    if (place.index == 0) {                                                                        \
      parts[2 * part] = largest;                                                                   \
      parts[2 * part + 1] = total;                                                                 \
    }                                                                                              \
    for (int32_t d = place.index; d < dim; d += mps::kChunkPositions) {                            \
      mixed[part * dim + d] = mixed_dimension<mps::Kv>(shared, values, sizes.cache, d);            \
    }                                                                                              \
  }

ATTENTION_KERNEL(attention_chunk_float32, Float32Kv)
ATTENTION_KERNEL(attention_chunk_bfloat16, BFloat16Kv)
ATTENTION_KERNEL(attention_chunk_float16, Float16Kv)
ATTENTION_KERNEL(attention_chunk_fp8_e4m3, Float8Kv)
ATTENTION_KERNEL(attention_chunk_q8, Q8Kv)
ATTENTION_KERNEL(attention_chunk_q4, Q4Kv)
ATTENTION_KERNEL(attention_chunk_hierarchical, HalvesKv)

namespace {

/// Dimension d of a head of the newest position, with its chunks added up.
inline float joined_dimension(const device float* mixed, const device float* parts,
                              constant mps::AttentionSizes& sizes, int64_t first_part,
                              int32_t newest, int32_t d) {
  portable::SoftmaxPart sum = portable::nothing_seen();
  float number = 0.0F;
  for (int32_t chunk = first_chunk(newest, sizes.cache.window);
       chunk <= newest / mps::kChunkPositions; ++chunk) {
    const int64_t part = first_part + chunk;
    const portable::SoftmaxMerge merged =
        portable::merge(sum, {parts[2 * part], parts[2 * part + 1]});
    number = portable::merge_mixed(merged, number, mixed[part * sizes.cache.head_dim + d]);
    sum = merged.part;
  }
  return number * (1.0F / sum.total);
}

}  // namespace

/// Grid (heads, nodes): adds up the chunks.
kernel void attention_join(const device int32_t* positions [[buffer(0)]],
                           const device float* mixed [[buffer(1)]],
                           const device float* parts [[buffer(2)]], device float* out [[buffer(3)]],
                           constant mps::AttentionSizes& sizes [[buffer(4)]],
                           threadgroup float* numbers GROUP_MEMORY,
                           uint3 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  const int64_t head = static_cast<int64_t>(group.y) * sizes.heads + group.x;
  const int32_t dim = sizes.cache.head_dim;
  const int32_t newest = positions[group.y];
  for (int32_t d = place.index; d < dim; d += mps::kChunkPositions) {
    numbers[d] =
        newest < 0 ? 0.0F : joined_dimension(mixed, parts, sizes, head * sizes.chunks, newest, d);
  }
  if (sizes.cache.hadamard != 0) {
    mps::hadamard_head<mps::kChunkPositions>(numbers, dim, place);
  }
  for (int32_t d = place.index; d < dim; d += mps::kChunkPositions) {
    out[head * dim + d] = numbers[d];
  }
}
