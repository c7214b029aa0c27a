#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/kernels/attention.h"
#include "core/kernels/pooled_keys.h"

namespace specdec {

/// Pages of keys and values in one form.
template <class Kv>
struct PagesOf {
  PagesOf() = default;
  PagesOf(const Tensor& keys, const Tensor& values, const int32_t* page_table)
      : keys(static_cast<const Kv*>(keys.const_data_ptr())),
        values(static_cast<const Kv*>(values.const_data_ptr())),
        page_table(page_table),
        width(values.size(3)) {}

  const Kv* keys = nullptr;
  const Kv* values = nullptr;
  const int32_t* page_table = nullptr;  ///< of row 0
  int64_t width = 0;                    ///< elements of a key or value
};

/// Plain pointers to all that a call reads and writes.
template <class T, class Kv>
struct Operands {
  Operands(const Tensor& queries, const KvView& view, const AttentionOptions& options, Tensor& out)
      : view(&view),
        queries(queries.const_data_ptr<T>()),
        out(out.mutable_data_ptr<T>()),
        pages(view.keys, view.values, view.page_table()),
        bias(options.bias.defined() ? options.bias.const_data_ptr<float>() : nullptr),
        bias_columns(options.bias.defined() ? options.bias.size(1) : 0),
        rows(view.tables->rows.const_data_ptr<int32_t>()),
        positions(view.tables->positions.const_data_ptr<int32_t>()),
        path_starts(view.tables->path_starts.const_data_ptr<int32_t>()),
        paths(view.tables->paths.const_data_ptr<int32_t>()),
        lengths(view.tables->lengths.const_data_ptr<int32_t>()),
        table_stride(view.page_stride()),
        nodes(view.tables->nodes),
        heads(queries.size(1)),
        kv_heads(view.kv_heads()),
        group(heads / kv_heads),
        page_size(view.page_size()),
        head_dim(view.head_dim()),
        window(view.window),
        sink(view.sink),
        pooled(view.pooled),
        rotated(view.rotation == KvRotation::kHadamard),
        scale(static_cast<T>(options.scale)),
        soft_cap(static_cast<T>(options.soft_cap)) {
    if (view.exact.recent > 0) {
      exact = {view.exact.keys, view.exact.values, view.exact_page_table()};
    }
  }

  /// First of the positions that a node sees behind its sink and means.
  int64_t first_seen(int64_t node) const {
    if (pooled != nullptr) {
      return pooled->pooling().first_at(positions[node]);
    }
    return window > 0 ? std::max<int64_t>(0, positions[node] - window + 1) : 0;
  }
  /// First of the positions that it reads in exact pages, where those in `pages` end.
  int64_t first_exact(int64_t node) const {
    return std::max(first_seen(node), view->exact.first_at(positions[node]));
  }
  /// Means that a node sees.
  int64_t means(int64_t node) const {
    return pooled == nullptr ? 0 : pooled->pooling().means_at(positions[node]);
  }
  /// Where the first positions end that a node sees before its window.
  int64_t sink_end(int64_t node) const { return std::min(sink, first_seen(node)); }
  /// Offset in `queries` of a row: query head `head` of the group of `kv_head`.
  int64_t row_offset(int64_t node, int64_t kv_head, int64_t head) const {
    return ((node * kv_heads + kv_head) * group + head) * head_dim;
  }

  const KvView* view;
  const T* queries;
  T* out;
  PagesOf<Kv> pages;
  PagesOf<T> exact;  ///< of recent keys and values, where the view has them
  const float* bias;
  int64_t bias_columns;
  const int32_t *rows, *positions, *path_starts, *paths, *lengths;
  int64_t table_stride;  ///< from a row's page table to the next
  int64_t nodes, heads, kv_heads, group, page_size, head_dim, window, sink;
  const PooledKeys* pooled;
  bool rotated;  ///< the values, with KvRotation::kHadamard
  T scale, soft_cap;
};

/// What a task reads: a chunk of positions, in the pages or the exact ones, what nodes see before
/// their windows, or means of old keys.
struct KeyChunk {
  enum Kind { kSink, kMeans, kPages, kExact } kind;
  int64_t number = 0;  ///< of a chunk of positions
};

/// Chunks of positions.
struct ChunkRange {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t end = 0;

  int64_t count() const { return std::max(first, end) - first; }
  /// Extends the range to the chunks of these positions.
  void include(int64_t begin_position, int64_t end_position) {
    if (begin_position < end_position) {
      first = std::min(first, begin_position / kAttentionChunk);
      end = std::max(end, (end_position - 1) / kAttentionChunk + 1);
    }
  }
};

/// Neighbouring nodes of one row of the batch, and the chunks that any of them sees.
struct NodeTile {
  int64_t begin, end;
  ChunkRange pages = {}, exact = {};
  bool sees_sink = false;
  bool sees_means = false;

  int64_t chunks() const {
    return pages.count() + exact.count() + (sees_sink ? 1 : 0) + (sees_means ? 1 : 0);
  }
  /// Calls use(chunk), in order.
  template <class Use>
  void for_each_chunk(const Use& use) const {
    if (sees_sink) {
      use(KeyChunk{KeyChunk::kSink});
    }
    if (sees_means) {
      use(KeyChunk{KeyChunk::kMeans});
    }
    for (int64_t chunk = pages.first; chunk < pages.end; ++chunk) {
      use(KeyChunk{KeyChunk::kPages, chunk});
    }
    for (int64_t chunk = exact.first; chunk < exact.end; ++chunk) {
      use(KeyChunk{KeyChunk::kExact, chunk});
    }
  }
};

}  // namespace specdec
