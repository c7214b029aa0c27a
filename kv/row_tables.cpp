#include "kv/row_tables.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace specdec {

int32_t* table_entries(const Tensor& table) { return table.mutable_data_ptr<int32_t>(); }

TableBlock::Options RowTables::options() const {
  const bool by_layer = groups_.renumbers();
  return {.device = groups_.options().device,
          .mirror = groups_.options().as_device,
          .groups = by_layer ? groups_.layers() : groups_.count(),
          .pages_apart = by_layer};
}

int64_t RowTables::most_pages(RowId row) const {
  int64_t most = 0;
  for (const PageGroup& group : groups_.all()) {
    most = std::max(most, std::ssize(group.table.pages(rows_.place(row))));
  }
  return most;
}

void RowTables::write(const BatchTables& tables, int64_t entry, RowId row) const {
  table_entries(tables.lengths)[entry] = static_cast<int32_t>(rows_.length(row));
  if (groups_.renumbers()) {
    return;  // each layer's are written once its pages are in memory
  }
  int32_t* to = table_entries(tables.page_tables) + entry * tables.page_tables.stride(0);
  for (const PageGroup& group : groups_.all()) {
    const auto pages = group.table.pages(rows_.place(row));
    std::copy(pages.begin(), pages.end(), to);
    to += tables.page_tables.stride(1);
  }
}

void RowTables::write_numbers(const BatchTables& tables, int64_t entry, RowId row,
                              int64_t layer) const {
  const PageGroup& group = groups_.of(layer);
  const Tensor& table = tables.page_tables;
  int32_t* to = table_entries(table) + entry * table.stride(0) +
                group.pool.source_of(layer) * table.stride(1);
  for (const PageTable::Page page : group.table.pages(rows_.place(row))) {
    *to++ = static_cast<int32_t>(group.pool.number(layer, page));
  }
}

}  // namespace specdec
