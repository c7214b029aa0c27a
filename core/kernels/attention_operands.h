#pragma once
#include <algorithm>
#include <cstdint>

#include "core/kernels/attention.h"
#include "core/kernels/pooled_keys.h"

namespace specdec {

/// Plain pointers to all that a call reads and writes.
template <class T, class Kv>
struct Operands {
  Operands(const Tensor& queries, const KvView& view, const AttentionOptions& options, Tensor& out)
      : queries(queries.const_data_ptr<T>()),
        out(out.mutable_data_ptr<T>()),
        keys(static_cast<const Kv*>(view.keys.const_data_ptr())),
        values(static_cast<const Kv*>(view.values.const_data_ptr())),
        bias(options.bias.defined() ? options.bias.const_data_ptr<float>() : nullptr),
        bias_columns(options.bias.defined() ? options.bias.size(1) : 0),
        rows(view.tables->rows.const_data_ptr<int32_t>()),
        positions(view.tables->positions.const_data_ptr<int32_t>()),
        path_starts(view.tables->path_starts.const_data_ptr<int32_t>()),
        paths(view.tables->paths.const_data_ptr<int32_t>()),
        lengths(view.tables->lengths.const_data_ptr<int32_t>()),
        page_table(view.page_table()),
        table_stride(view.page_stride()),
        nodes(view.tables->nodes),
        heads(queries.size(1)),
        kv_heads(view.kv_heads()),
        group(heads / kv_heads),
        page_size(view.page_size()),
        head_dim(view.head_dim()),
        width(view.values.size(3)),
        window(view.window),
        sink(view.sink),
        pooled(view.pooled),
        rotated(view.rotation == KvRotation::kHadamard),
        scale(static_cast<T>(options.scale)),
        soft_cap(static_cast<T>(options.soft_cap)) {}

  /// Of the positions that a node sees behind its sink and means.
  int64_t first_seen(int64_t node) const {
    if (pooled != nullptr) {
      return pooled->pooling().first_at(positions[node]);
    }
    return window > 0 ? std::max<int64_t>(0, positions[node] - window + 1) : 0;
  }
  /// Means that a node sees.
  int64_t means(int64_t node) const {
    return pooled == nullptr ? 0 : pooled->pooling().means_at(positions[node]);
  }
  /// Where the first positions end that a node sees before its window.
  int64_t sink_end(int64_t node) const { return std::min(sink, first_seen(node)); }
  /// Of a row: query head `head` of the group of `kv_head`.
  int64_t row_offset(int64_t node, int64_t kv_head, int64_t head) const {
    return ((node * kv_heads + kv_head) * group + head) * head_dim;
  }

  const T* queries;
  T* out;
  const Kv *keys, *values;
  const float* bias;
  int64_t bias_columns;
  const int32_t *rows, *positions, *path_starts, *paths, *lengths, *page_table;
  int64_t table_stride;  ///< from a row's page table to the next
  int64_t nodes, heads, kv_heads, group, page_size, head_dim, width, window, sink;
  const PooledKeys* pooled;
  bool rotated;  ///< the values, with KvRotation::kHadamard
  T scale, soft_cap;
};

// In place of a chunk: what nodes see before their windows, and means of old keys.
constexpr int64_t kSink = -2;
constexpr int64_t kMeans = -1;

/// Neighbouring nodes of one row of the batch, and the chunks that any of them sees.
struct NodeTile {
  int64_t begin, end;
  int64_t first_chunk, end_chunk;
  bool sees_sink = false;
  bool sees_means = false;

  int64_t chunks() const {
    return end_chunk - first_chunk + (sees_sink ? 1 : 0) + (sees_means ? 1 : 0);
  }
  /// Calls use(chunk), in order.
  template <class Use>
  void for_each_chunk(const Use& use) const {
    if (sees_sink) {
      use(kSink);
    }
    if (sees_means) {
      use(kMeans);
    }
    for (int64_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
      use(chunk);
    }
  }
};

}  // namespace specdec
