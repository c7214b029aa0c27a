#include "kv/row_numbers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "kv/page_numbers.h"

namespace specdec {

std::pair<Tensor, Tensor> RowNumbers::read(int64_t layer, RowId row, TokenRange tokens) const {
  const int64_t length = rows_.length(row);
  const int64_t end = tokens.end < 0 ? length : tokens.end;
  SPECDEC_CHECK(tokens.begin >= 0 && tokens.begin <= end && end <= length,
                "key_values: tokens {} to {} of row {}, which holds {}", tokens.begin, end, row,
                length);
  const PageGroup* exact = std::as_const(groups_).exact();
  if (exact == nullptr) {
    return read_group(groups_.of(layer), layer, row, {tokens.begin, end});
  }
  const int64_t first =
      std::clamp(groups_.describe(layer).exact.first_at(length - 1), tokens.begin, end);
  const auto recent = read_group(*exact, layer, row, {first, end});
  if (first == tokens.begin) {
    return recent;
  }
  const auto old = read_group(groups_.of(layer), layer, row, {tokens.begin, first});
  const auto joined = [](const Tensor& before, const Tensor& after) {
    return at::cat({before, after.to(before.device())}, 1);
  };
  return {joined(old.first, recent.first), joined(old.second, recent.second)};
}

std::pair<Tensor, Tensor> RowNumbers::read_group(const PageGroup& group, int64_t layer, RowId row,
                                                 TokenRange tokens) const {
  const LayerKv& geometry = group.pool.geometry(layer);
  const int64_t together = kv_key_group(group.options.format);
  const TokenRange asked = tokens;
  tokens = {asked.begin / together * together, (asked.end + together - 1) / together * together};
  const Tensor keys =
      at::zeros({geometry.kv_heads, tokens.end - tokens.begin, group.pool.width_of(geometry)},
                at::TensorOptions().dtype(group.pool.page_dtype()).device(group.options.device));
  std::pair<Tensor, Tensor> copies{keys, at::zeros_like(keys)};
  int64_t missing = 0;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const PagePool::Place from = group.at(rows_.place(row), token);
    if (from.page == PageTable::kNone) {
      missing = token + 1 - tokens.begin;
    } else {
      group.pool.read_token(layer, from, token - tokens.begin, copies);
    }
  }
  const PageForm form = groups_.form_of(group);
  const LayerKv& source = group.pool.geometry(group.pool.source_of(layer));
  copies = {together > 1 ? widened_key_groups(form.format, copies.first)
                         : widened_numbers(form, copies.first, key_levels(source)),
            widened_numbers(form, copies.second, value_levels(source))};
  for (Tensor* all : {&copies.first, &copies.second}) {
    all->narrow(1, 0, missing).fill_(std::numeric_limits<double>::quiet_NaN());
    *all = all->narrow(1, asked.begin - tokens.begin, asked.end - asked.begin);
  }
  return copies;
}

void RowNumbers::write(RowId row, TokenRange tokens, const KvStore::NumbersOfLayer& numbers) {
  for (int64_t layer = 0; layer < groups_.layers(); ++layer) {
    PageGroup& group = groups_.of(layer);
    if (group.pool.geometry(layer).source_layer >= 0) {
      continue;
    }
    auto given = numbers(layer);
    if (kv_key_group(group.options.format) > 1) {
      given.first = present_keys(given.first);
    }
    write_group(group, layer, row, tokens, given);
    if (PageGroup* exact = groups_.exact()) {
      write_group(*exact, layer, row, tokens, given);
    }
  }
}

void RowNumbers::write_group(PageGroup& group, int64_t layer, RowId row, TokenRange tokens,
                             const std::pair<Tensor, Tensor>& numbers) {
  const PageForm form = groups_.form_of(group);
  const LayerKv& geometry = group.pool.geometry(layer);
  const Tensor values = rounded_numbers(form, numbers.second, value_levels(geometry));
  const Tensor keys = kv_key_group(form.format) > 1
                          ? at::zeros_like(values)
                          : rounded_numbers(form, numbers.first, key_levels(geometry));
  group.pool.copy_in(layer, group.table.pages(rows_.place(row)), tokens, {keys, values});
}

}  // namespace specdec
