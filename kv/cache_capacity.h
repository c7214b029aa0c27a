#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kv/cache_rows.h"
#include "kv/page_groups.h"

namespace specdec {

/// A row that is to get new nodes.
struct RowGrowth {
  RowId row;
  int64_t nodes;
};

/// What fits in a cache: checks that say what does not, and answers to what would. Borrows the
/// cache's rows and groups.
class CacheCapacity {
 public:
  CacheCapacity(const CacheRows& rows, const PageGroups& groups) : rows_(rows), groups_(groups) {}

  /// Throws Error where no other row may be open.
  void check_open() const;
  /// Throws Error for a row of so many tokens.
  void check_length(int64_t tokens) const;
  /// Throws Error where a row of the newest extend would be too long, or have too many nodes.
  void check_spans() const;
  /// Throws CacheRoomError where a group has too few pages for what rows hold and these pages of
  /// theirs.
  void check_pages(const PageGroup& group, std::span<const PageRange> ranges) const;
  /// See KvCache::fits.
  bool fits(std::span<const RowGrowth> rows, std::span<const RowId> closed) const;

 private:
  /// A row as it may become.
  struct GrownRow {
    RowId source;     // the row whose pages it refers to now
    int64_t length;   // kept tokens
    int64_t pending;  // nodes that it has
    int64_t nodes;    // nodes that it gets
    bool is_fork;     // a row that is to be opened
  };

  std::vector<GrownRow> grown_rows(std::span<const RowGrowth> rows,
                                   std::span<const RowId> closed) const;
  bool has_room(const GrownRow& row) const;
  int64_t pages_of(const PageGroup& group, std::span<const GrownRow> rows) const;
  int64_t pages_with(const PageGroup& group, std::span<const PageRange> ranges) const;

  const CacheRows& rows_;
  const PageGroups& groups_;
};

}  // namespace specdec
