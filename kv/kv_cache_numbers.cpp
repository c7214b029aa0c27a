// Numbers of a KvCache's rows, out of pages and into them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/kernels/hadamard.h"
#include "core/kernels/key_groups.h"
#include "core/kernels/ops.h"
#include "kv/kv_cache.h"

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

/// Keys [kv_heads, tokens, head_dim] with zeros in place of tokens that another cache holds no more
/// (NaN throughout), which no query sees: a group that they belong to is rounded with others.
static Tensor present(const Tensor& keys) {
  const Tensor missing = keys.isnan().all(2, /*keepdim=*/true).all(0, /*keepdim=*/true);
  return keys.masked_fill(missing, 0.0);
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
  const KvView view = describe_on_host(layer);
  copies = {together > 1 ? widened_groups(format, copies.first)
                         : widened(format, copies.first, view, &KvView::key_levels),
            widened(format, copies.second, view, &KvView::value_levels)};
  for (Tensor* all : {&copies.first, &copies.second}) {
    all->narrow(1, 0, missing).fill_(std::numeric_limits<double>::quiet_NaN());
    *all = all->narrow(1, asked.begin - tokens.begin, asked.end - asked.begin);
  }
  return copies;
}

/// The same as widened() of keys [kv_heads, tokens, width] in whole groups.
Tensor KvCache::widened_groups(KvFormat format, const Tensor& stored) const {
  const int64_t width = stored.size(2);
  const int64_t head_dim = kv_head_dim(format, width);
  const Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  const Tensor bytes = stored.cpu();
  auto* group = bytes.mutable_data_ptr<uint8_t>();
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i, to += head_dim) {
    const int64_t token = i % kKeyGroup;
    decode_key_of_group(format, {group + (i - token) * width, 1, width}, token, head_dim, to);
  }
  return numbers;
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

KvView KvCache::describe_on_host(int64_t layer) const {
  const PagePool& pool = groups_->of(layer).pool;
  KvView view = describe(layer);
  view.levels = pool.geometry(pool.source_of(layer)).levels;
  return view;
}

/// [kv_heads, tokens, head_dim] of the activations' dtype, of what pages hold: in the host's memory
/// unless these are the numbers themselves.
Tensor KvCache::widened(KvFormat format, const Tensor& stored, const KvView& view,
                        HeadLevels levels) const {
  const bool rotated = options_.rotation == KvRotation::kHadamard;
  if (stored.scalar_type() != at::kByte && !rotated) {
    return stored.to(options_.dtype);
  }
  const Tensor elements = stored.cpu();
  const int64_t head_dim = kv_head_dim(format, stored.size(2));
  Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  const auto bytes = static_cast<int64_t>(stored.element_size()) * stored.size(2);
  auto* from = static_cast<char*>(elements.mutable_data_ptr());
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i, from += bytes, to += head_dim) {
    decode_kv(format, {from, 1, (view.*levels)(i / stored.size(1))}, head_dim, to);
    if (rotated) {
      hadamard(to, head_dim);
    }
  }
  return numbers;
}

/// What pages hold of numbers [kv_heads, tokens, head_dim] of the activations' dtype, in the host's
/// memory.
Tensor KvCache::rounded(KvFormat format, const Tensor& numbers, const KvView& view,
                        HeadLevels levels) const {
  const at::ScalarType elements = kv_element_type(format, options_.dtype);
  const bool rotated = options_.rotation == KvRotation::kHadamard;
  if (format == KvFormat::kNative && !rotated) {
    return numbers.to(elements);
  }
  Tensor from = numbers.to(at::kCPU, at::kFloat).contiguous().clone();
  const int64_t head_dim = from.size(2);
  const int64_t width = kv_width(format, head_dim);
  const Tensor stored = at::empty({from.size(0), from.size(1), width}, elements);
  const auto bytes = static_cast<int64_t>(stored.element_size()) * width;
  auto* head = from.mutable_data_ptr<float>();
  auto* to = static_cast<char*>(stored.mutable_data_ptr());
  for (int64_t i = 0; i < from.size(0) * from.size(1); ++i, head += head_dim, to += bytes) {
    if (rotated) {
      hadamard(head, head_dim);
    }
    encode_kv(format, head, head_dim, {to, 1, (view.*levels)(i / from.size(1))});
  }
  return stored;
}

void KvCache::append(RowId row, int64_t count, const NumbersOfLayer& numbers) {
  SPECDEC_CHECK(pending(row) == 0, "append: {} pending nodes are left on row {}", pending(row),
                row);
  const std::vector<RowId> rows(static_cast<size_t>(count), row);
  extend({.count = count, .rows = rows});
  try {
    const TokenRange tokens{length(row), length(row) + count};
    for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
      if (groups_->of(layer).pool.geometry(layer).source_layer >= 0) {
        continue;
      }
      const auto given = numbers(layer);
      const Tensor keys = kv_key_group(options_.format) > 1 ? present(given.first) : given.first;
      const KvView view = describe_on_host(layer);
      for (PageGroup* group : {&groups_->of(layer), groups_->exact()}) {
        if (group != nullptr) {
          const KvFormat format = group->options.format;
          const Tensor values = rounded(format, given.second, view, &KvView::value_levels);
          group->pool.copy_in(layer, group->table.pages(place(row)), tokens,
                              {kv_key_group(format) > 1  // whose groups are rounded at last
                                   ? at::zeros_like(values)
                                   : rounded(format, keys, view, &KvView::key_levels),
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
