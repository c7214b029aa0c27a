#pragma once
// What nodes see: keys of tokens in pages, and means in the columns of their rows.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/cache_address.h"

namespace specdec::cuda {

constexpr int32_t kHidden = -1;

/// Means that a node at a position sees; 0 where old keys are not pooled.
__device__ inline int32_t means_at(const PagedCache& cache, const PooledCache& pooled,
                                   int32_t position) {
  return pooled.keys == nullptr
             ? 0
             : device::means_at(position, pooled.chunk, pooled.recent, cache.sink);
}

/// Window of the tokens that a node at a position sees: where it sees means, what lies behind them.
__device__ inline int32_t window_at(const PagedCache& cache, const PooledCache& pooled,
                                    int32_t position) {
  const int32_t means = means_at(cache, pooled, position);
  return means == 0 ? cache.window : position + 1 - cache.sink - means * pooled.chunk;
}

/// Means among the kept tokens of a node's row, which all its nodes share.
__device__ inline int32_t kept_means(const PagedCache& cache, const PooledCache& pooled,
                                     int32_t node) {
  return device::chunks_in(cache.lengths[cache.rows[node]], pooled.chunk, cache.sink);
}

/// Positions of tokens that a node sees: those before sink_end, and those from `first` to `end`, of
/// which it reads those from `exact` on in exact pages.
struct SeenTokens {
  int32_t sink_end, first, exact, end;
};

__device__ inline SeenTokens tokens_seen(const PagedCache& cache, const PooledCache& pooled,
                                         int32_t position) {
  const int32_t first = device::first_seen(position, window_at(cache, pooled, position));
  const int32_t end = position + 1;
  int32_t recent = end > cache.exact.recent ? end - cache.exact.recent : 0;
  if (cache.exact.multiple > 1) {
    recent -= recent % cache.exact.multiple;
  }
  return {cache.sink < first ? cache.sink : first, first, recent > first ? recent : first, end};
}

/// Row of the values, page after page, that a node sees at a position; kHidden = none. `exact`: in
/// exact pages, which are those of the cache then.
__device__ inline int32_t visible_token(const PagedCache& cache, const PooledCache& pooled,
                                        int32_t node, int32_t kv_head, int32_t position,
                                        bool exact) {
  const SeenTokens seen = tokens_seen(cache, pooled, cache.positions[node]);
  const int32_t first = exact ? seen.exact : seen.first;
  const int32_t end = exact ? seen.end : seen.exact;
  if ((exact || position >= seen.sink_end) && (position < first || position >= end)) {
    return kHidden;
  }
  const int32_t batch_row = cache.rows[node];
  const int32_t slot =
      device::slot_at(position, cache.lengths[batch_row], cache.path_starts[node], cache.paths);
  const int32_t page =
      cache
          .page_table[static_cast<int64_t>(batch_row) * cache.page_stride + slot / cache.page_size];
  return (page * cache.kv_heads + kv_head) * cache.page_size + slot % cache.page_size;
}

/// Row of the values of means, column after column, that a node sees as its mean of number `mean`.
__device__ inline int32_t visible_mean(const PagedCache& cache, const PooledCache& pooled,
                                       int32_t node, int32_t kv_head, int32_t mean) {
  if (mean >= means_at(cache, pooled, cache.positions[node])) {
    return kHidden;
  }
  const int32_t own = mean - kept_means(cache, pooled, node);
  const bool is_own = cache.path_starts[node] >= 0 && own >= 0;
  const int32_t column = is_own ? pooled.own_first + node * pooled.own_each + own : mean;
  return (cache.rows[node] * cache.kv_heads + kv_head) * pooled.columns + column;
}

}  // namespace specdec::cuda
