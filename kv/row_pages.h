#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kv/cache_capacity.h"
#include "kv/cache_rows.h"
#include "kv/page_groups.h"

namespace specdec {

/// The pages of a cache's rows, in each group of layers: shared by forks and copied on write, kept
/// by rows that are truncated until others need them, given back behind windows. Borrows the
/// cache's rows and groups.
class RowPages {
 public:
  RowPages(CacheRows& rows, PageGroups& groups);

  /// Tables have the places of all rows.
  void add_rows();
  /// The rows of the newest extend own the pages of their new nodes alone. Throws CacheRoomError
  /// where there are too few; then all share theirs on.
  void reserve_spans();
  /// A row owns pages for so many tokens, as far as its windows see them, in place of what it had.
  void renew(RowId row, int64_t tokens);
  /// A new row refers to the pages of another's first tokens.
  void share(RowId from, RowId branch, int64_t tokens);
  /// The place of a row that was closed has no pages.
  void release(int64_t place);
  /// Gives back the pages that a row's windows have left behind.
  void give_back(RowId row);
  /// Copies the pending nodes of a path to the slots behind the row's kept tokens, but for the
  /// first `in_place`, which lie there.
  void move_path(RowId row, std::span<const int64_t> path, int64_t in_place);

 private:
  void reserve(PageGroup& group, std::span<const PageRange> ranges);
  void hold_shared(PageGroup& group, std::span<const PageRange> ranges);
  void free_unused(PageGroup& group);

  CacheRows& rows_;
  PageGroups& groups_;
  CacheCapacity capacity_;
  std::vector<PageRange> ranges_;        // of the newest extend; kept to allocate nothing
  std::vector<PageTable::Copy> copies_;  // likewise
  std::vector<PagePool::Move> moves_;    // of the newest commit
};

}  // namespace specdec
