#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "core/kernels/kv_format.h"
#include "core/kernels/recurrence.h"

namespace specdec {

using at::Tensor;

class PooledKeys;

/// Which of a forward's new nodes sees what: the same for all layers of a forward. int32 tensors on
/// the model's device, kept between forwards: they are as large as the largest forward so far
/// needed (*_capacity), and only what belongs to the first `nodes` nodes means anything.
/// Contiguous.
///
/// A node at position q sees one key at each position up to q. Those below the kept length of its
/// row lie at the slot of that number. Its pending ancestors and itself do too where the pending
/// nodes so far are one chain (a prefill, a drafted chain); else the node has a path.
struct BatchTables {
  int64_t nodes = 0;    ///< new nodes, n
  int64_t longest = 0;  ///< length that no node's position reaches, as the host knows it
  Tensor rows;          ///< [node_capacity] row of each node
  Tensor slots;         ///< [node_capacity] where its key and value go: kept length + node index
  Tensor positions;     ///< [node_capacity] kept length + depth among pending nodes
  /// [node_capacity] position that its queries and keys are rotated by: its own, but for readers
  /// (KvStore::readers).
  Tensor angles;
  Tensor path_starts;  ///< [node_capacity] where the node's path begins; -1 = slot p at position p
  Tensor paths;        ///< [path_capacity] slots of a node's pending ancestors, itself last
  Tensor lengths;      ///< [row_capacity] kept tokens
  /// [row_capacity, groups, page_capacity] page of slot s at s / page_size, for each group of
  /// layers that share pages; -1 where the cache has given it back, since no node sees its slots
  /// any more.
  Tensor page_tables;
  /// [node_capacity] the nodes' tokens, which go up with the tables where the forward gives them to
  /// the cache (NewNodes::tokens).
  Tensor tokens;
};

/// Recent keys and values of a layer in the activations' dtype: what a format rounds to the numbers
/// of its other pages, with the same rotation, at the same slots. In pages of the same size.
struct ExactPages {
  Tensor keys;         ///< [pages, kv_heads, head_dim, page_size]
  Tensor values;       ///< [pages, kv_heads, page_size, head_dim]
  int64_t group = 0;   ///< whose page table is theirs
  int64_t recent = 0;  ///< a key at position p is read here from q when q - p < recent; 0 = none is
  /// kv_key_group of the format: what is read here begins at a multiple of it, `recent` keys or a
  /// few more, since a group is rounded when all of it is there.
  int64_t multiple = 1;

  /// First of the positions that are read here from `position`.
  int64_t first_at(int64_t position) const {
    const int64_t first = std::max<int64_t>(0, position - recent + 1);
    return first - first % multiple;
  }
};

/// What a kernel reads of one layer's cache: pages, and the forward's tables; of a recurrent layer
/// the states of the forward's nodes in the place of pages. Slot s of
/// a row lies in page page_tables[row][group][s / page_size] at s % page_size. Keys lie transposed,
/// so that a vector holds one number of neighbouring keys.
struct KvView {
  /// [pages, kv_heads, width, page_size], width = kv_width(format, head_dim); of a format with
  /// groups of keys as core/kernels/key_groups.h says
  Tensor keys;
  Tensor values;  ///< [pages, kv_heads, page_size, width]
  KvFormat format = KvFormat::kNative;
  KvRead read = KvRead::kAll;
  KvRotation rotation = KvRotation::kNone;  ///< that the pages' keys and values have
  Tensor levels = {};                       ///< LayerKv::levels, where the pages lie
  int64_t group = 0;                        ///< whose pages the layer's are
  int64_t window = 0;  ///< a key at position p is seen from q when q - p < window; 0 = always
  int64_t sink = 0;    ///< first positions that are seen beside those of the window
  /// Exact pages, which are read in place of keys and values that are recent: at most those of the
  /// window.
  ExactPages exact = {};
  /// Means that are seen in place of old keys, beside sink, without a window; an attention brings
  /// them up to date. Owned by the cache; nullptr = there are none.
  PooledKeys* pooled = nullptr;
  const BatchTables* tables = nullptr;  ///< owned by the cache; valid until its next change
  const NodeStates* states = nullptr;   ///< of a recurrent layer
  int64_t state_offset = 0;             ///< where the layer's numbers begin in a state

  int64_t kv_heads() const { return values.size(1); }
  int64_t page_size() const { return values.size(2); }
  int64_t head_dim() const { return kv_head_dim(format, values.size(3)); }
  /// Levels [kQ3Levels] of a head's keys, or values.
  const float* key_levels(int64_t head) const { return levels_at(head); }
  const float* value_levels(int64_t head) const { return levels_at(kv_heads() + head); }
  /// Where the layer's table of row 0 begins in tables->page_tables; that of the next row begins
  /// page_stride() further.
  int64_t page_offset() const { return group * tables->page_tables.size(2); }
  int64_t page_stride() const { return tables->page_tables.size(1) * tables->page_tables.size(2); }
  const int32_t* page_table() const {
    return tables->page_tables.const_data_ptr<int32_t>() + page_offset();
  }
  /// Row 0's table of the exact pages.
  const int32_t* exact_page_table() const {
    return page_table() + (exact.group - group) * tables->page_tables.size(2);
  }

 private:
  const float* levels_at(int64_t row) const {
    return levels.defined() ? levels.const_data_ptr<float>() + row * kQ3Levels : kNormalLevels;
  }
};

}  // namespace specdec
