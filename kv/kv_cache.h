#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "core/forward.h"
#include "core/kernels/kv_view.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"

namespace specdec {

/// Paged keys and values of all layers, for several rows of unequal lengths and trees of pending
/// nodes. The model owns it; strategies never see it. Slots are absolute (kept token t lies at slot
/// t, pending node k at length + k), also for sliding-window layers, so truncating moves no data
/// and is exact to any length. All layers share one page table; pages are shared between rows after
/// reorder and copied on write.
class KvCache {
 public:
  KvCache(std::vector<LayerKv> layers, const KvCacheOptions& options);

  /// Once per forward: checks the batch (see TokenBatch; throws InternalError for a parent that
  /// does not exist or rows out of order, Error when a row would exceed max_length, and then
  /// changes nothing), reserves slots for its nodes and builds the tables. The nodes are pending
  /// afterwards.
  void extend(const TokenBatch& batch);
  /// Of the newest extend.
  const BatchTables& tables() const { return tables_; }
  /// What attention and the writer of keys and values need of a layer.
  KvView view(int64_t layer) const;

  /// Keeps the pending nodes on `path` (a path from the root: each node's parent is the one before
  /// it), moving those that do not lie in place already; forgets the row's other nodes.
  void commit(int64_t row, std::span<const int64_t> path);
  /// Forgets pending nodes and kept tokens from `length` on; pages stay with the row.
  void truncate(int64_t row, int64_t length);
  /// Row i continues old row parents[i].
  void reorder(std::span<const int64_t> parents);

  int64_t rows() const;
  int64_t length(int64_t row) const;  ///< 0 for a row that does not exist yet
  int64_t pending(int64_t row) const;
  int64_t max_length() const { return options_.max_length; }
  /// Copies of a layer's kept keys and values: each [kv_heads, length(row), head_dim].
  std::pair<Tensor, Tensor> key_values(int64_t layer, int64_t row) const;
  /// Bytes of all pages, used or not.
  int64_t allocated_bytes() const { return pool_.bytes(); }

 private:
  struct Node {
    int64_t parent;  // -1 = the last kept token
    int64_t position;
  };
  struct Row {
    int64_t length = 0;
    std::vector<Node> pending;
  };
  /// The new nodes of one row: begin to end of the batch.
  struct RowSpan {
    int64_t row;
    int64_t begin;
    int64_t end;
  };

  void find_spans(const TokenBatch& batch);
  void check_parents(const TokenBatch& batch) const;
  void check_lengths() const;
  void reserve_pages();
  void reserve_tables(int64_t nodes);
  void add_node(int64_t row, int64_t parent, int64_t index, int64_t first_of_row);
  void fill_row_tables(int64_t row);
  PagePool::Place place(int64_t row, int64_t slot) const;

  KvCacheOptions options_;
  PagePool pool_;
  PageTable page_table_;
  BatchTables tables_;
  std::vector<Row> rows_;
  std::vector<RowSpan> spans_;           // of the newest extend; kept to allocate nothing
  std::vector<PageTable::Copy> copies_;  // likewise
};

}  // namespace specdec
