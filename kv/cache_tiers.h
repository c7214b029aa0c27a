#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/row_tiers.h"
#include "kv/cache_rows.h"
#include "kv/forward_tables.h"
#include "kv/page_groups.h"
#include "kv/page_tiers.h"
#include "kv/reader_tables.h"

namespace specdec {

/// The tables that say where brought pages lie.
struct TieredTables {
  ForwardTables& forward;
  ReaderTables& readers;
};

/// Which pages a cache needs in memory, where some lie elsewhere (KvCacheOptions::memory_bytes):
/// those that its forwards read, and RowTiers for who moves whole rows. Caches with tiers have one
/// group of pages. Borrows all of them.
class CacheTiers final : public RowTiers {
 public:
  CacheTiers(PageTiers& tiers, const CacheRows& rows, const PageGroups& groups,
             const TieredTables& tables);

  /// The newest extend begins a forward, or was undone.
  void begin_forward() { tiers_.begin_forward(pages_of_trees()); }
  void undo_forward() { tiers_.undo_forward(); }
  /// Brings what a layer reads and writes of the newest extend's rows, and of the one that readers
  /// were asked for, then begins to read what the next layer needs.
  void bring(int64_t layer);
  /// See KvStore::make_resident.
  bool make_resident(std::span<const int64_t> layers);
  /// The share of the memory that the cache's options leave free. A disk that fails changes
  /// nothing, and is an error of the forward that needs the room.
  void keep_free();

  std::vector<PlacedPage> pages(RowId row) override;
  int64_t demote(RowId row) override;
  int64_t promote(RowId row) override;
  void prefetch_async(RowId row) override { tiers_.prefetch(0, row_uses(row, 0)); }
  int64_t manage_tiers() override;

 private:
  const PageGroup& group() const { return groups_.all().front(); }
  std::vector<int64_t> pages_of(RowId row) const;
  std::vector<int64_t> pages_of_trees() const;
  void add_uses(RowId row, int64_t window, std::vector<PageUse>& uses) const;
  std::vector<PageUse> row_uses(RowId row, int64_t layer) const;
  std::vector<PageUse> layer_uses(int64_t layer) const;

  PageTiers& tiers_;
  const CacheRows& rows_;
  const PageGroups& groups_;
  TieredTables tables_;
};

}  // namespace specdec
