#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kv/row_tables.h"

namespace specdec {

/// The tables of a cache's newest extend (CacheRows::spans), as kernels read them.
class ForwardTables {
 public:
  ForwardTables(const CacheRows& rows, const PageGroups& groups);

  /// Makes room for new nodes, which are not pending yet. Throws Error for a branch that would read
  /// a group of keys which branches have in common no more.
  void reserve(const NewNodes& nodes);
  /// Writes and uploads the tables of these nodes, which are pending now.
  void write(const NewNodes& nodes);
  const BatchTables& device() const { return block_.device(); }

  /// Writes and uploads where the pages of a layer lie that were just brought.
  void number(int64_t layer);
  /// Writes where the pages of layers lie that are resident together: those of the rows go up in
  /// one piece.
  void number_resident(std::span<const int64_t> layers);

 private:
  int64_t path_slots(const NewNodes& nodes);
  void write_node(const CacheRows::Span& span, int64_t index, int64_t node);
  void check_branch(int64_t shared, int64_t depth) const;

  const CacheRows& rows_;
  const PageGroups& groups_;
  RowTables row_tables_;
  TableBlock block_;
  std::vector<int64_t> depths_;  // of a row's nodes; kept to allocate nothing
  int64_t path_end_ = 0;         // in the tables' paths
};

}  // namespace specdec
