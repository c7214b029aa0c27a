#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kv_store.h"
#include "kv/cache_capacity.h"
#include "kv/cache_rows.h"
#include "kv/cache_tiers.h"
#include "kv/forward_tables.h"
#include "kv/key_rounding.h"
#include "kv/page_groups.h"
#include "kv/reader_tables.h"
#include "kv/row_numbers.h"
#include "kv/row_pages.h"

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

  /// Whether these rows may grow, in one extend or several: then none of them, nor any commit or
  /// truncate among them, fails for want of pages, rows or room. Where a row is named again, or is
  /// one of `closed`, a fork of its kept tokens grows, made before all extends; those of `closed`
  /// are closed after the forks. Forks share pages until they write them, so the extend is the
  /// peak. Pages that are copied because rows share them are counted; those that windows leave
  /// behind meanwhile (window_slack) count as if they stayed, since one extend needs them all.
  /// After a truncate below what a row shares with others, ask again.
  bool fits(std::span<const RowGrowth> rows, std::span<const RowId> closed = {}) const;

  std::vector<RowId> rows() const override { return rows_.names(); }
  int64_t length(RowId row) const override { return rows_.length(row); }
  int64_t pending(RowId row) const override { return rows_.pending(row); }
  int64_t max_length() const override { return groups_->options().max_length; }
  KvStatistics statistics() const override;
  RowTiers* row_tiers() const override { return tiers_.get(); }
  void touch(int64_t tokens) override;
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override {
    return readers_.write(row, nodes, angle);
  }
  /// Keeps them to round keys with.
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override;
  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                       TokenRange tokens = {}) const override {
    return numbers_.read(layer, row, tokens);
  }

 private:
  void make_room(const NewNodes& nodes);

  std::shared_ptr<PageGroups> groups_;  // shared with snapshots
  CacheRows rows_;
  CacheCapacity capacity_;
  RowPages pages_;
  RowNumbers numbers_;
  KeyRounding rounding_;
  ForwardTables tables_;
  mutable ReaderTables readers_;
  std::unique_ptr<CacheTiers> tiers_;  // nullptr where all pages lie in memory
};

}  // namespace specdec
