#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "kv/cache_rows.h"
#include "kv/page_groups.h"

namespace specdec {

/// Numbers of rows' tokens, out of pages and into them. Borrows the cache's rows and groups.
class RowNumbers {
 public:
  RowNumbers(const CacheRows& rows, PageGroups& groups) : rows_(rows), groups_(groups) {}

  /// See KvStore::key_values.
  std::pair<Tensor, Tensor> read(int64_t layer, RowId row, TokenRange tokens) const;
  /// Rounds numbers of tokens into pages that the row owns, layer after layer. Groups of keys
  /// (kv_key_group) are left as zeros: KeyRounding rounds them out of the exact pages.
  void write(RowId row, TokenRange tokens, const KvStore::NumbersOfLayer& numbers);

 private:
  std::pair<Tensor, Tensor> read_group(const PageGroup& group, int64_t layer, RowId row,
                                       TokenRange tokens) const;
  void write_group(PageGroup& group, int64_t layer, RowId row, TokenRange tokens,
                   const std::pair<Tensor, Tensor>& numbers);

  const CacheRows& rows_;
  PageGroups& groups_;
};

}  // namespace specdec
