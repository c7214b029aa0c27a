#pragma once
#include <cstdint>

#include "kv/cache_rows.h"
#include "kv/page_groups.h"
#include "kv/table_block.h"

namespace specdec {

/// What tables say of a row: its length, and which pages it lies in, in each group of layers. Where
/// pages are renumbered (PagePool::renumbers), each layer has a page table of its own, which is
/// written once its pages are in memory. Borrows the cache's rows and groups.
class RowTables {
 public:
  RowTables(const CacheRows& rows, const PageGroups& groups) : rows_(rows), groups_(groups) {}

  TableBlock::Options options() const;
  /// Entries that a row's page tables take.
  int64_t most_pages(RowId row) const;
  /// Writes a row's tables at an entry.
  void write(const BatchTables& tables, int64_t entry, RowId row) const;
  /// Writes where the pages of a layer lie that is renumbered.
  void write_numbers(const BatchTables& tables, int64_t entry, RowId row, int64_t layer) const;

 private:
  const CacheRows& rows_;
  const PageGroups& groups_;
};

/// Where a table begins.
int32_t* table_entries(const Tensor& table);

}  // namespace specdec
