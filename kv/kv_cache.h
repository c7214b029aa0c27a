#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kv_store.h"
#include "core/named_rows.h"
#include "core/row_tiers.h"
#include "kv/page_groups.h"
#include "kv/table_block.h"

namespace specdec {

/// Paged keys and values. Slots are absolute (kept token t lies at slot t, pending node k at length
/// + k), also for sliding-window layers, so truncating moves no data and is exact to any length;
/// commit moves what does not lie in place already. All layers share one page table, or with
/// window_slack (KvCacheOptions) those of each window, which then give back the pages that a commit
/// leaves behind the window: truncating is exact as far as rewindable_to() says. With exact_recent
/// the same holds for pages of recent tokens as they are beside those of a format. Pages are
/// shared between rows after a fork and copied on write. Truncated pages stay with their row,
/// until others need them. The capacity is fixed (KvCacheOptions): but for tiers on a device,
/// nothing that lies in it ever moves.
class KvCache final : public KvStore {
 public:
  KvCache(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  /// Throws Error too where there are more rows, pending nodes or pages than the cache may hold.
  void extend(const NewNodes& nodes) override;
  void undo_extend() override;
  KvView view(int64_t layer) const override;
  KvView describe(int64_t layer) const override;
  bool make_resident(std::span<const int64_t> layers) override;

  void commit(RowId row, std::span<const int64_t> path) override;
  void truncate(RowId row, int64_t length) override;
  int64_t rewindable_to(RowId row, int64_t length) const override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  /// Refers to the row's pages where the pool has room for them beside a row of max_length, which
  /// on the CPU it nearly always has; else copies. It keeps the pages' memory beyond the cache.
  std::shared_ptr<const KvSnapshot> snapshot(RowId row) override;
  /// Shares the pages of this cache's own snapshots, copies others.
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override;
  void append(RowId row, int64_t count, const NumbersOfLayer& numbers) override;

  /// A row that is to get new nodes.
  struct Growth {
    RowId row;
    int64_t nodes;
  };
  /// Whether these rows may grow, in one extend or several: then none of them, nor any commit or
  /// truncate among them, fails for want of pages, rows or room. Where a row is named again, or is
  /// one of `closed`, a fork of its kept tokens grows, made before all extends; those of `closed`
  /// are closed after the forks. Forks share pages until they write them, so the extend is the
  /// peak. Pages that are copied because rows share them are counted; those that windows leave
  /// behind meanwhile (window_slack) count as if they stayed, since one extend needs them all.
  /// After a truncate below what a row shares with others, ask again.
  bool fits(std::span<const Growth> rows, std::span<const RowId> closed = {}) const;

  std::vector<RowId> rows() const override { return rows_.names(); }
  int64_t length(RowId row) const override { return rows_[row].length; }
  int64_t pending(RowId row) const override { return std::ssize(rows_[row].pending); }
  int64_t max_length() const override { return options_.max_length; }
  KvStatistics statistics() const override;
  RowTiers* row_tiers() const override { return row_tiers_.get(); }
  void touch(int64_t tokens) override;
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override;
  /// Keeps them to round keys with.
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override;
  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                       TokenRange tokens = {}) const override;

 private:
  class PageSnapshot;
  class Tiers;

  struct Node {
    int64_t parent;  // -1 = the last kept token
    int64_t position;
  };
  struct Row {
    int64_t length = 0;
    int64_t shortest = 0;  // fewest tokens, beside none, that it can be truncated to
    std::vector<Node> pending = {};
  };
  /// The new nodes of one row: begin to end of all.
  struct RowSpan {
    RowId row;
    int64_t place;  // of the row, in tables
    int64_t begin;
    int64_t end;
  };

  /// Pages that a row is to own alone, by their index.
  struct PageRange {
    int64_t place;  // of the row, in tables
    int64_t first;
    int64_t end;
  };

  /// A row as it may become.
  struct GrownRow {
    RowId source;     // the row whose pages it refers to now
    int64_t length;   // kept tokens
    int64_t pending;  // nodes that it has
    int64_t nodes;    // nodes that it gets
  };

  int64_t page_count(int64_t tokens) const {
    return (tokens + options_.page_size - 1) / options_.page_size;
  }
  /// First pages of a row of so many kept tokens that its windows have left behind.
  int64_t pages_behind(const PageGroup& group, int64_t length) const;
  void give_back_pages(RowId row);
  int64_t exact_recent(int64_t layer) const;
  void check_rewindable(const char* call, int64_t length, int64_t shortest) const;
  int64_t place(RowId row) const { return static_cast<int64_t>(rows_.place(row)); }
  /// All of an extend that may throw: then nothing has changed, but that no row was extended last.
  void make_room(const NewNodes& nodes);
  void find_spans(const NewNodes& nodes);
  static int64_t parent_of(const NewNodes& nodes, int64_t node, int64_t index);
  void check_parents(const NewNodes& nodes) const;
  void check_capacity() const;
  void check_length(int64_t tokens) const;
  int64_t most_pages(RowId row) const;
  PageRange page_range(const RowSpan& span) const;
  int64_t path_slots(const NewNodes& nodes);
  void check_branch(int64_t shared, int64_t depth) const;
  int64_t find_ends(RowId row, TokenRange last);
  void round_groups(int64_t ends, int64_t longest);
  void reserve_tables(const NewNodes& nodes);
  void reserve_pages(PageGroup& group, std::span<const PageRange> ranges);
  void free_unused_pages(PageGroup& group);
  void check_pages(const PageGroup& group, std::span<const PageRange> ranges) const;
  int64_t pages_of(const PageGroup& group, std::span<const GrownRow> rows) const;
  void add_nodes(const NewNodes& nodes);
  void add_node(const RowSpan& span, int64_t parent, int64_t index);
  std::unique_ptr<RowTiers> make_row_tiers();
  PageTiers* page_tiers() const { return groups_->all().front().pool.tiers(); }
  std::vector<int64_t> pages_of_trees() const;
  void begin_tiers();
  void undo_tiers();
  void keep_tiers_free();
  void hold_shared_pages(PageGroup& group, std::span<const PageRange> ranges);
  void add_uses(const PageGroup& group, RowId row, int64_t window,
                std::vector<PageUse>& uses) const;
  std::vector<PageUse> page_uses(int64_t layer) const;
  void bring_pages(int64_t layer) const;
  bool renumbers() const { return groups_->all().front().pool.renumbers(); }
  void number_resident(std::span<const int64_t> layers) const;
  void number_pages(int64_t layer) const;
  void write_numbers(const TableBlock& tables, int64_t entry, RowId row, int64_t layer) const;
  TableBlock::Options table_options(bool of_readers) const;
  void fill_row_tables(const BatchTables& tables, int64_t entry, RowId row) const;
  void copy_in(RowId row, const KvSnapshot& snapshot, int64_t length);
  PagePool::Place page_place(const PageGroup& group, RowId row, int64_t slot) const;
  std::pair<Tensor, Tensor> read_out(const PageGroup& group, int64_t layer, RowId row,
                                     TokenRange tokens) const;

  KvCacheOptions options_;
  std::shared_ptr<PageGroups> groups_;  // shared with snapshots
  std::shared_ptr<Ops> ops_;            // of the model; nullptr = those of the device
  TableBlock tables_;
  TableBlock ends_;              // of the tokens that end groups of keys, for find_ends()
  mutable TableBlock readers_;   // of the newest readers(); kept to allocate nothing
  mutable RowId read_row_ = -1;  // of a readers() since the newest extend
  NamedRows<Row> rows_;
  std::vector<RowSpan> spans_;           // of the newest extend; kept to allocate nothing
  std::vector<PageRange> ranges_;        // likewise
  std::vector<PageTable::Copy> copies_;  // likewise
  std::vector<int64_t> depths_;          // likewise
  std::vector<PagePool::Move> moves_;    // of the newest commit
  int64_t path_end_ = 0;                 // in the tables' paths
  std::unique_ptr<RowTiers> row_tiers_;
};

}  // namespace specdec
