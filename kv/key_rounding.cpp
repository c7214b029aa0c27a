#include "kv/key_rounding.h"

#include "core/kernels/ops.h"

namespace specdec {

KeyRounding::KeyRounding(const CacheRows& rows, const PageGroups& groups)
    : groups_(groups), row_tables_(rows, groups), block_(row_tables_.options()) {}

int64_t KeyRounding::find(RowId row, TokenRange last) {
  const int64_t together = kv_key_group(groups_.options().format);
  const int64_t first = (last.begin / together + 1) * together - 1;
  if (together == 1 || first >= last.end) {
    return 0;
  }
  const int64_t ends = (last.end - 1 - first) / together + 1;
  block_.reserve({.nodes = ends, .paths = 1, .rows = 1, .pages = row_tables_.most_pages(row)});
  const BatchTables& tables = block_.host();
  for (int64_t i = 0; i < ends; ++i) {
    const auto token = static_cast<int32_t>(first + i * together);
    table_entries(tables.rows)[i] = 0;
    table_entries(tables.path_starts)[i] = -1;
    table_entries(tables.slots)[i] = token;
    table_entries(tables.positions)[i] = token;
  }
  row_tables_.write(tables, 0, row);
  if (ops_ == nullptr) {
    ops_ = device_ops(groups_.options().device);
  }
  return ends;
}

void KeyRounding::round(int64_t groups, int64_t longest) {
  if (groups == 0) {
    return;
  }
  block_.upload(groups, longest);
  for (int64_t layer = 0; layer < groups_.layers(); ++layer) {
    if (groups_.of(layer).pool.geometry(layer).source_layer < 0) {
      KvView view = groups_.describe(layer);
      view.tables = &block_.device();
      ops_->round_keys(view);
    }
  }
}

}  // namespace specdec
