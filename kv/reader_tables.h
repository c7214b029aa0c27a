#pragma once
#include <cstdint>

#include "kv/row_tables.h"

namespace specdec {

/// The tables of nodes that only read a row's kept tokens (KvStore::readers), of the newest call.
class ReaderTables {
 public:
  ReaderTables(const CacheRows& rows, const PageGroups& groups);

  /// Writes and uploads them. Throws InternalError for an empty row.
  const BatchTables& write(RowId row, int64_t nodes, int64_t angle);
  /// The row that was read since the newest extend; -1 = none was.
  RowId row() const { return row_; }
  void forget_row() { row_ = -1; }
  /// Writes and uploads where the row's pages of a layer lie that were just brought.
  void number(int64_t layer);

 private:
  const CacheRows& rows_;
  const PageGroups& groups_;
  RowTables row_tables_;
  TableBlock block_;  // kept to allocate nothing
  RowId row_ = -1;
};

}  // namespace specdec
