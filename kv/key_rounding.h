#pragma once
#include <cstdint>
#include <memory>

#include "core/types.h"
#include "kv/row_tables.h"

namespace specdec {

class Ops;

/// Rounds groups of keys (kv_key_group) that end among tokens which no forward rounds: those that a
/// commit moves, or that are appended. Other formats have none.
class KeyRounding {
 public:
  KeyRounding(const CacheRows& rows, const PageGroups& groups);

  /// Rounds with these from now on; by default with those of the device.
  void run_with(std::shared_ptr<Ops> ops) { ops_ = std::move(ops); }
  /// Makes the tables of a row's groups whose last token is one of these, for round(); how many
  /// there are.
  int64_t find(RowId row, TokenRange last);
  /// Rounds the groups of the newest find(), whose tokens lie below `longest`.
  void round(int64_t groups, int64_t longest);

 private:
  const PageGroups& groups_;
  RowTables row_tables_;
  TableBlock block_;  // of the tokens that end groups
  std::shared_ptr<Ops> ops_;
};

}  // namespace specdec
