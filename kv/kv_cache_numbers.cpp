// Numbers of a KvCache's rows, out of pages and into them.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/kernels/ops.h"
#include "kv/kv_cache.h"
#include "kv/page_numbers.h"

namespace specdec {

std::pair<Tensor, Tensor> KvCache::key_values(int64_t layer, RowId row, TokenRange tokens) const {
  const int64_t end = tokens.end < 0 ? length(row) : tokens.end;
  SPECDEC_CHECK(tokens.begin >= 0 && tokens.begin <= end && end <= length(row),
                "key_values: tokens {} to {} of row {}, which holds {}", tokens.begin, end, row,
                length(row));
  const PageGroup* exact = groups_->exact();
  if (exact == nullptr) {
    return read_out(groups_->of(layer), layer, row, {tokens.begin, end});
  }
  const int64_t first =
      std::clamp(describe(layer).exact.first_at(length(row) - 1), tokens.begin, end);
  const auto recent = read_out(*exact, layer, row, {first, end});
  if (first == tokens.begin) {
    return recent;
  }
  const auto old = read_out(groups_->of(layer), layer, row, {tokens.begin, first});
  const auto joined = [](const Tensor& before, const Tensor& after) {
    return at::cat({before, after.to(before.device())}, 1);
  };
  return {joined(old.first, recent.first), joined(old.second, recent.second)};
}

std::pair<Tensor, Tensor> KvCache::read_out(const PageGroup& group, int64_t layer, RowId row,
                                            TokenRange tokens) const {
  const LayerKv& geometry = group.pool.geometry(layer);
  const KvFormat format = group.options.format;
  const int64_t together = kv_key_group(format);
  const TokenRange asked = tokens;
  tokens = {asked.begin / together * together, (asked.end + together - 1) / together * together};
  const Tensor keys =
      at::zeros({geometry.kv_heads, tokens.end - tokens.begin, group.pool.width_of(geometry)},
                at::TensorOptions().dtype(group.pool.page_dtype()).device(options_.device));
  std::pair<Tensor, Tensor> copies{keys, at::zeros_like(keys)};
  int64_t missing = 0;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const PagePool::Place from = page_place(group, row, token);
    if (from.page == PageTable::kNone) {
      missing = token + 1 - tokens.begin;
    } else {
      group.pool.read_token(layer, from, token - tokens.begin, copies);
    }
  }
  const PageForm form{format, options_.rotation, options_.dtype};
  const LayerKv& source = group.pool.geometry(group.pool.source_of(layer));
  copies = {together > 1 ? widened_key_groups(format, copies.first)
                         : widened_numbers(form, copies.first, key_levels(source)),
            widened_numbers(form, copies.second, value_levels(source))};
  for (Tensor* all : {&copies.first, &copies.second}) {
    all->narrow(1, 0, missing).fill_(std::numeric_limits<double>::quiet_NaN());
    *all = all->narrow(1, asked.begin - tokens.begin, asked.end - asked.begin);
  }
  return copies;
}

std::shared_ptr<Ops> KvCache::observed(std::shared_ptr<Ops> ops) {
  ops_ = ops;
  return ops;
}

/// Makes the tables of the groups of keys whose last token is one of these, for round_groups(); how
/// many there are.
int64_t KvCache::find_ends(RowId row, TokenRange last) {
  const int64_t together = kv_key_group(options_.format);
  const int64_t first = (last.begin / together + 1) * together - 1;
  if (together == 1 || first >= last.end) {
    return 0;
  }
  const int64_t ends = (last.end - 1 - first) / together + 1;
  ends_.reserve({.nodes = ends, .paths = 1, .rows = 1, .pages = most_pages(row)});
  const BatchTables& tables = ends_.host();
  for (int64_t i = 0; i < ends; ++i) {
    const auto token = static_cast<int32_t>(first + i * together);
    tables.rows.mutable_data_ptr<int32_t>()[i] = 0;
    tables.path_starts.mutable_data_ptr<int32_t>()[i] = -1;
    for (const Tensor* table : {&tables.slots, &tables.positions}) {
      table->mutable_data_ptr<int32_t>()[i] = token;
    }
  }
  fill_row_tables(tables, 0, row);
  if (ops_ == nullptr) {
    ops_ = device_ops(options_.device);
  }
  return ends;
}

/// Rounds the groups of the newest find_ends(), whose tokens lie below `longest`.
void KvCache::round_groups(int64_t ends, int64_t longest) {
  if (ends == 0) {
    return;
  }
  ends_.upload(ends, longest);
  for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
    if (groups_->of(layer).pool.geometry(layer).source_layer < 0) {
      KvView view = describe(layer);
      view.tables = &ends_.device();
      ops_->round_keys(view);
    }
  }
}

void KvCache::append(RowId row, int64_t count, const NumbersOfLayer& numbers) {
  SPECDEC_CHECK(pending(row) == 0, "append: {} pending nodes are left on row {}", pending(row),
                row);
  const std::vector<RowId> rows(static_cast<size_t>(count), row);
  extend({.count = count, .rows = rows});
  try {
    const TokenRange tokens{length(row), length(row) + count};
    for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
      const LayerKv& geometry = groups_->of(layer).pool.geometry(layer);
      if (geometry.source_layer >= 0) {
        continue;
      }
      const auto given = numbers(layer);
      const Tensor keys =
          kv_key_group(options_.format) > 1 ? present_keys(given.first) : given.first;
      for (PageGroup* group : {&groups_->of(layer), groups_->exact()}) {
        if (group != nullptr) {
          const PageForm form{group->options.format, options_.rotation, options_.dtype};
          const Tensor values = rounded_numbers(form, given.second, value_levels(geometry));
          group->pool.copy_in(layer, group->table.pages(place(row)), tokens,
                              {kv_key_group(form.format) > 1  // whose groups are rounded at last
                                   ? at::zeros_like(values)
                                   : rounded_numbers(form, keys, key_levels(geometry)),
                               values});
        }
      }
    }
    round_groups(find_ends(row, tokens), tokens.end);
  } catch (...) {
    undo_extend();
    throw;
  }
  std::vector<int64_t> path(static_cast<size_t>(count));
  std::iota(path.begin(), path.end(), int64_t{0});
  commit(row, path);
}

}  // namespace specdec
