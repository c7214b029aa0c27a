// Numbers of a KvCache's rows, out of pages and into them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/kernels/hadamard.h"
#include "kv/kv_cache.h"

namespace specdec {

std::pair<Tensor, Tensor> KvCache::key_values(int64_t layer, RowId row, TokenRange tokens) const {
  const int64_t end = tokens.end < 0 ? length(row) : tokens.end;
  SPECDEC_CHECK(tokens.begin >= 0 && tokens.begin <= end && end <= length(row),
                "key_values: tokens {} to {} of row {}, which holds {}", tokens.begin, end, row,
                length(row));
  const PageGroup& group = groups_->of(layer);
  const LayerKv& geometry = group.pool.geometry(layer);
  const Tensor keys =
      at::zeros({geometry.kv_heads, end - tokens.begin, group.pool.width_of(geometry)},
                at::TensorOptions().dtype(group.pool.page_dtype()).device(options_.device));
  std::pair<Tensor, Tensor> copies{keys, at::zeros_like(keys)};
  int64_t missing = 0;
  for (int64_t token = tokens.begin; token < end; ++token) {
    const PagePool::Place from = page_place(group, row, token);
    if (from.page == PageTable::kNone) {
      missing = token + 1 - tokens.begin;
    } else {
      group.pool.read_token(layer, from, token - tokens.begin, copies);
    }
  }
  copies = {widened(copies.first), widened(copies.second)};
  for (const Tensor& all : {copies.first, copies.second}) {
    all.narrow(1, 0, missing).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return copies;
}

/// [kv_heads, tokens, head_dim] of the activations' dtype, of what a cache stores.
Tensor KvCache::widened(const Tensor& stored) const {
  if (stored.scalar_type() != at::kByte) {
    return stored.to(options_.dtype);
  }
  const Tensor bytes = stored.cpu();
  const int64_t head_dim = kv_head_dim(options_.format, stored.size(2));
  Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  auto* from = bytes.mutable_data_ptr<uint8_t>();
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i) {
    decode_kv(options_.format, {from + i * stored.size(2), 1}, head_dim, to + i * head_dim);
    if (options_.rotation == KvRotation::kHadamard) {
      hadamard(to + i * head_dim, head_dim);
    }
  }
  return numbers.to(options_.device);
}

/// What a cache stores of numbers [kv_heads, tokens, head_dim] of the activations' dtype, in the
/// host's memory.
Tensor KvCache::rounded(const Tensor& numbers) const {
  const at::ScalarType elements = kv_element_type(options_.format, options_.dtype);
  if (options_.format == KvFormat::kNative) {
    return numbers.to(elements);
  }
  Tensor from = numbers.to(at::kCPU, at::kFloat).contiguous().clone();
  const int64_t head_dim = from.size(2);
  const int64_t width = kv_width(options_.format, head_dim);
  const Tensor stored = at::empty({from.size(0), from.size(1), width}, elements);
  const auto bytes = static_cast<int64_t>(stored.element_size()) * width;
  auto* head = from.mutable_data_ptr<float>();
  auto* to = static_cast<char*>(stored.mutable_data_ptr());
  for (int64_t i = 0; i < from.size(0) * from.size(1); ++i, head += head_dim, to += bytes) {
    if (options_.rotation == KvRotation::kHadamard) {
      hadamard(head, head_dim);
    }
    encode_kv(options_.format, head, head_dim, {to, 1});
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
      PageGroup& group = groups_->of(layer);
      if (group.pool.geometry(layer).source_layer < 0) {
        const auto [keys, values] = numbers(layer);
        group.pool.copy_in(layer, group.table.pages(place(row)), tokens,
                           {rounded(keys), rounded(values)});
      }
    }
  } catch (...) {
    undo_extend();
    throw;
  }
  std::vector<int64_t> path(static_cast<size_t>(count));
  std::iota(path.begin(), path.end(), int64_t{0});
  commit(row, path);
}

}  // namespace specdec
