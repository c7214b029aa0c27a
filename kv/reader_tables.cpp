#include "kv/reader_tables.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

TableBlock::Options with_angles(TableBlock::Options options) {
  options.own_angles = true;
  return options;
}

}  // namespace

ReaderTables::ReaderTables(const CacheRows& rows, const PageGroups& groups)
    : rows_(rows),
      groups_(groups),
      row_tables_(rows, groups),
      block_(with_angles(row_tables_.options())) {}

const BatchTables& ReaderTables::write(RowId row, int64_t nodes, int64_t angle) {
  const int64_t length = rows_.length(row);
  SPECDEC_CHECK(length > 0 && nodes > 0, "readers: {} nodes of row {}, which holds {} tokens",
                nodes, row, length);
  block_.reserve({.nodes = nodes, .paths = 1, .rows = 1, .pages = row_tables_.most_pages(row)});
  const BatchTables& tables = block_.host();
  const auto all = [nodes](const Tensor& table, int64_t value) {
    std::fill_n(table_entries(table), nodes, static_cast<int32_t>(value));
  };
  all(tables.rows, 0);
  all(tables.slots, length);
  all(tables.positions, length - 1);
  all(tables.angles, angle);
  all(tables.path_starts, -1);
  row_tables_.write(tables, 0, row);
  block_.upload(nodes, length);
  row_ = row;
  return block_.device();
}

void ReaderTables::number(int64_t layer) {
  if (rows_.is_open(row_)) {
    row_tables_.write_numbers(block_.host(), 0, row_, layer);
    block_.upload_pages(0, groups_.of(layer).pool.source_of(layer));
  }
}

}  // namespace specdec
