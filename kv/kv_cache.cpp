#include "kv/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kWordBits = 32;

int64_t divide_up(int64_t number, int64_t divisor) { return (number + divisor - 1) / divisor; }

/// A capacity that holds `needed`, so that growing step by step copies each number a few times
/// only.
int64_t grown(int64_t capacity, int64_t needed, int64_t smallest) {
  return needed <= capacity ? capacity : std::max({needed, 2 * capacity, smallest});
}

int64_t size_or_zero(const Tensor& tensor, int64_t dim) {
  return tensor.defined() ? tensor.size(dim) : 0;
}

void reserve(Tensor& table, int64_t size, int64_t smallest) {
  const int64_t capacity = size_or_zero(table, 0);
  if (size > capacity) {
    table = at::zeros({grown(capacity, size, smallest)}, at::kInt);
  }
}

void reserve(Tensor& table, int64_t rows, int64_t columns, int64_t smallest) {
  const int64_t row_capacity = size_or_zero(table, 0);
  const int64_t column_capacity = size_or_zero(table, 1);
  if (rows > row_capacity || columns > column_capacity) {
    table = at::zeros({grown(row_capacity, rows, 1), grown(column_capacity, columns, smallest)},
                      at::kInt);
  }
}

int32_t* entries(const Tensor& table) { return table.mutable_data_ptr<int32_t>(); }

/// Copies by bytes: at::Tensor::copy_ refuses tensors made in inference mode outside of it.
void copy_bytes(const Tensor& to, int64_t to_offset, const Tensor& from, int64_t from_offset,
                int64_t count) {
  const auto size = static_cast<int64_t>(to.element_size());
  std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + to_offset * size,
              static_cast<const char*>(from.const_data_ptr()) + from_offset * size,
              static_cast<size_t>(count * size));
}

int64_t parent_of(const TokenBatch& batch, int64_t node, int64_t index) {
  return batch.parents.empty() ? index - 1 : batch.parents[static_cast<size_t>(node)];
}

void check_layers(const std::vector<LayerKv>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerKv& layer = layers[i];
    SPECDEC_CHECK(layer.kv_heads > 0 && layer.head_dim > 0 && layer.window >= 0,
                  "cache: layer {} has {} kv heads of {} and window {}", i, layer.kv_heads,
                  layer.head_dim, layer.window);
    if (layer.source_layer < 0) {
      continue;
    }
    SPECDEC_CHECK(layer.source_layer < static_cast<int64_t>(i),
                  "cache: layer {} reads layer {}, which is not an earlier one", i,
                  layer.source_layer);
    const LayerKv& source = layers[static_cast<size_t>(layer.source_layer)];
    SPECDEC_CHECK(source.source_layer < 0 && source.kv_heads == layer.kv_heads &&
                      source.head_dim == layer.head_dim,
                  "cache: layer {} cannot read layer {}: other geometry, or it has no own keys", i,
                  layer.source_layer);
  }
}

}  // namespace

KvCache::KvCache(std::vector<LayerKv> layers, const KvCacheOptions& options)
    : layers_(std::move(layers)), options_(options), pools_(layers_.size()) {
  SPECDEC_CHECK(options_.page_size > 0, "cache: page_size {}", options_.page_size);
  SPECDEC_CHECK(options_.max_length > 0 &&
                    options_.max_length <= std::numeric_limits<int32_t>::max() - options_.page_size,
                "cache: max_length {}", options_.max_length);
  SPECDEC_CHECK(options_.dtype == at::kFloat || options_.dtype == at::kDouble,
                "cache: keys and values of dtype {}", c10::toString(options_.dtype));
  if (!options_.device.is_cpu()) {
    throw Error(fmt::format("the key/value cache for device {} is not built yet; use --device cpu",
                            options_.device.str()));
  }
  check_layers(layers_);
}

void KvCache::extend(const TokenBatch& batch) {
  find_spans(batch);
  check_parents(batch);
  check_lengths();
  reserve_pages();
  const int64_t nodes = spans_.empty() ? 0 : spans_.back().end;
  reserve_tables(nodes);
  tables_.nodes = nodes;
  for (const RowSpan& span : spans_) {
    const int64_t first = pending(span.row);
    for (int64_t i = span.begin; i < span.end; ++i) {
      add_node(span.row, parent_of(batch, i, first + i - span.begin), i, span.begin);
    }
    fill_row_tables(span.row);
  }
}

KvView KvCache::view(int64_t layer) const {
  SPECDEC_CHECK(layer >= 0 && layer < static_cast<int64_t>(layers_.size()),
                "view of layer {} of {}", layer, layers_.size());
  const LayerKv& own = layers_[static_cast<size_t>(layer)];
  const Pool& pool = pools_[static_cast<size_t>(own.source_layer < 0 ? layer : own.source_layer)];
  KvView view;
  view.keys = pool.keys;
  view.values = pool.values;
  view.window = own.window;
  view.tables = &tables_;
  return view;
}

void KvCache::keep(int64_t row, std::span<const int64_t> path) {
  SPECDEC_CHECK(row >= 0 && (row < rows() || path.empty()), "keep: row {} of {}", row, rows());
  if (row >= rows()) {
    return;
  }
  Row& kept = rows_[static_cast<size_t>(row)];
  int64_t last = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(node >= 0 && node < pending(row),
                  "keep: row {} has {} pending nodes, not node {}", row, pending(row), node);
    const int64_t parent = kept.pending[static_cast<size_t>(node)].parent;
    SPECDEC_CHECK(parent == last,
                  "keep: not a path from the root: node {} of row {} follows {}, not {}", node, row,
                  parent, last);
    last = node;
  }
  for (size_t i = 0; i < path.size(); ++i) {
    const auto target = static_cast<int64_t>(i);
    if (path[i] != target) {  // nodes of a path ascend, so no move overwrites one yet to be moved
      move_slot(row, kept.length + path[i], kept.length + target);
    }
  }
  kept.length += static_cast<int64_t>(path.size());
  kept.pending.clear();
}

void KvCache::truncate(int64_t row, int64_t length) {
  SPECDEC_CHECK(row >= 0 && length >= 0 && length <= this->length(row),
                "truncate: row {} holds {} tokens, cannot be cut to {}", row, this->length(row),
                length);
  if (row < rows()) {
    rows_[static_cast<size_t>(row)].length = length;
    rows_[static_cast<size_t>(row)].pending.clear();
  }
}

void KvCache::reorder(std::span<const int64_t> parents) {
  std::vector<Row> reordered(parents.size());
  for (size_t i = 0; i < parents.size(); ++i) {
    SPECDEC_CHECK(parents[i] >= 0 && parents[i] < rows(), "reorder: row {} of {}", parents[i],
                  rows());
    reordered[i].length = length(parents[i]);
  }
  for (int64_t row = 0; row < rows(); ++row) {  // pages of forgotten nodes need not be shared
    page_table_.trim(row, divide_up(length(row), options_.page_size));
  }
  page_table_.reorder(parents);
  rows_ = std::move(reordered);
}

int64_t KvCache::rows() const { return static_cast<int64_t>(rows_.size()); }

int64_t KvCache::length(int64_t row) const {
  return row >= 0 && row < rows() ? rows_[static_cast<size_t>(row)].length : 0;
}

int64_t KvCache::pending(int64_t row) const {
  return row >= 0 && row < rows()
             ? static_cast<int64_t>(rows_[static_cast<size_t>(row)].pending.size())
             : 0;
}

std::pair<Tensor, Tensor> KvCache::key_values(int64_t layer, int64_t row) const {
  const KvView pages = view(layer);
  const LayerKv& geometry = layers_[static_cast<size_t>(layer)];
  const int64_t tokens = length(row);
  const Tensor keys = at::empty({geometry.kv_heads, tokens, geometry.head_dim}, options_.dtype);
  const Tensor values = at::empty_like(keys);
  for (int64_t slot = 0; slot < tokens; ++slot) {
    int64_t from = slot_offset(row, slot, geometry);
    int64_t to = slot * geometry.head_dim;
    for (int64_t head = 0; head < geometry.kv_heads; ++head) {
      copy_bytes(keys, to, pages.keys, from, geometry.head_dim);
      copy_bytes(values, to, pages.values, from, geometry.head_dim);
      from += options_.page_size * geometry.head_dim;
      to += tokens * geometry.head_dim;
    }
  }
  return {keys, values};
}

int64_t KvCache::allocated_bytes() const {
  int64_t bytes = 0;
  for (const Pool& pool : pools_) {
    if (pool.keys.defined()) {
      bytes += static_cast<int64_t>(pool.keys.nbytes() + pool.values.nbytes());
    }
  }
  return bytes;
}

void KvCache::find_spans(const TokenBatch& batch) {
  SPECDEC_CHECK(batch.tokens.defined() && batch.tokens.dim() == 1, "extend: tokens should be [n]");
  const int64_t nodes = batch.tokens.size(0);
  const auto count = static_cast<size_t>(nodes);
  SPECDEC_CHECK(batch.rows.empty() || batch.rows.size() == count, "extend: {} rows for {} tokens",
                batch.rows.size(), nodes);
  SPECDEC_CHECK(batch.parents.empty() || batch.parents.size() == count,
                "extend: {} parents for {} tokens", batch.parents.size(), nodes);
  spans_.clear();
  int64_t next_row = rows();
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t row = batch.rows.empty() ? 0 : batch.rows[static_cast<size_t>(node)];
    if (!spans_.empty() && spans_.back().row == row) {
      ++spans_.back().end;
      continue;
    }
    SPECDEC_CHECK(row >= 0 && (spans_.empty() || row > spans_.back().row),
                  "extend: rows should not be negative nor descend, node {} has row {}", node, row);
    SPECDEC_CHECK(row <= next_row, "extend: row {} would leave a gap after {} rows", row, next_row);
    next_row = std::max(next_row, row + 1);
    spans_.push_back({row, node, node + 1});
  }
}

void KvCache::check_parents(const TokenBatch& batch) const {
  for (const RowSpan& span : spans_) {
    for (int64_t node = span.begin; node < span.end; ++node) {
      const int64_t index = pending(span.row) + node - span.begin;
      const int64_t parent = parent_of(batch, node, index);
      SPECDEC_CHECK(parent >= -1 && parent < index,
                    "extend: pending node {} of row {} cannot follow node {}", index, span.row,
                    parent);
    }
  }
}

void KvCache::check_lengths() const {
  for (const RowSpan& span : spans_) {
    const int64_t tokens = length(span.row) + pending(span.row) + span.end - span.begin;
    if (tokens > options_.max_length) {
      throw Error(
          fmt::format("a sequence of {} tokens exceeds the model's max_length {}; shorten "
                      "the prompt or ask for fewer new tokens",
                      tokens, options_.max_length));
    }
  }
}

void KvCache::reserve_pages() {
  // Pools grow first: should memory run out, no row refers to a page that does not exist.
  int64_t needed = 0;
  const auto range = [&](const RowSpan& span) {
    const int64_t first = length(span.row) + pending(span.row);
    return std::pair{first / options_.page_size,
                     divide_up(first + span.end - span.begin, options_.page_size)};
  };
  for (const RowSpan& span : spans_) {
    const auto [first, end] = range(span);
    needed += page_table_.pages_needed(span.row, first, end);
  }
  const int64_t fresh = std::max<int64_t>(0, needed - page_table_.free_pages());
  grow_pools(page_table_.pages_made() + fresh);
  copies_.clear();
  for (const RowSpan& span : spans_) {
    const auto [first, end] = range(span);
    page_table_.add_rows(span.row + 1);
    page_table_.make_writable(span.row, first, end, copies_);
  }
  for (const PageTable::Copy& copy : copies_) {
    copy_page(copy);
  }
  rows_.resize(static_cast<size_t>(page_table_.rows()));
}

void KvCache::grow_pools(int64_t pages) {
  if (pages <= pool_pages_) {
    return;
  }
  const int64_t capacity = grown(pool_pages_, pages, 4);
  std::vector<Pool> larger(pools_.size());
  for (size_t i = 0; i < pools_.size(); ++i) {
    const LayerKv& layer = layers_[i];
    if (layer.source_layer >= 0) {
      continue;
    }
    const int64_t page_numbers = layer.kv_heads * options_.page_size * layer.head_dim;
    for (Tensor Pool::*part : {&Pool::keys, &Pool::values}) {
      larger[i].*part =
          at::zeros({capacity, layer.kv_heads, options_.page_size, layer.head_dim}, options_.dtype);
      if (pool_pages_ > 0) {
        copy_bytes(larger[i].*part, 0, pools_[i].*part, 0, pool_pages_ * page_numbers);
      }
    }
  }
  pools_ = std::move(larger);
  pool_pages_ = capacity;
}

void KvCache::copy_page(const PageTable::Copy& copy) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    if (layers_[i].source_layer < 0) {
      const int64_t numbers = layers_[i].kv_heads * options_.page_size * layers_[i].head_dim;
      copy_bytes(pools_[i].keys, copy.to * numbers, pools_[i].keys, copy.from * numbers, numbers);
      copy_bytes(pools_[i].values, copy.to * numbers, pools_[i].values, copy.from * numbers,
                 numbers);
    }
  }
}

void KvCache::move_slot(int64_t row, int64_t from, int64_t to) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    const LayerKv& layer = layers_[i];
    if (layer.source_layer >= 0) {
      continue;
    }
    int64_t source = slot_offset(row, from, layer);
    int64_t target = slot_offset(row, to, layer);
    for (int64_t head = 0; head < layer.kv_heads; ++head) {
      copy_bytes(pools_[i].keys, target, pools_[i].keys, source, layer.head_dim);
      copy_bytes(pools_[i].values, target, pools_[i].values, source, layer.head_dim);
      source += options_.page_size * layer.head_dim;
      target += options_.page_size * layer.head_dim;
    }
  }
}

void KvCache::reserve_tables(int64_t nodes) {
  int64_t most_pending = 0;
  int64_t most_pages = 0;
  for (const RowSpan& span : spans_) {
    most_pending = std::max(most_pending, pending(span.row) + span.end - span.begin);
    most_pages = std::max(most_pages, static_cast<int64_t>(page_table_.pages(span.row).size()));
  }
  tables_.words = divide_up(most_pending, kWordBits);
  reserve(tables_.rows, nodes, 32);
  reserve(tables_.slots, nodes, 32);
  reserve(tables_.positions, nodes, 32);
  reserve(tables_.ancestors, nodes, tables_.words, 1);
  reserve(tables_.lengths, rows(), 1);
  reserve(tables_.pending_positions, rows(), most_pending, kWordBits);
  reserve(tables_.page_table, rows(), most_pages, 16);
}

void KvCache::add_node(int64_t row, int64_t parent, int64_t index, int64_t first_of_row) {
  Row& owner = rows_[static_cast<size_t>(row)];
  const auto node = static_cast<int64_t>(owner.pending.size());
  const int64_t position =
      parent < 0 ? owner.length : owner.pending[static_cast<size_t>(parent)].position + 1;
  owner.pending.push_back({parent, position});
  entries(tables_.rows)[index] = static_cast<int32_t>(row);
  entries(tables_.slots)[index] = static_cast<int32_t>(owner.length + node);
  entries(tables_.positions)[index] = static_cast<int32_t>(position);

  const int64_t stride = tables_.ancestors.size(1);
  int32_t* bits = entries(tables_.ancestors) + index * stride;
  std::fill_n(bits, tables_.words, 0);
  const auto mark = [bits](int64_t seen) {
    bits[seen / kWordBits] |= static_cast<int32_t>(uint32_t{1} << (seen % kWordBits));
  };
  mark(node);
  const int64_t new_nodes_begin = node - (index - first_of_row);
  for (int64_t above = parent; above >= 0;
       above = owner.pending[static_cast<size_t>(above)].parent) {
    if (above >= new_nodes_begin) {  // of this batch: its bits are known
      const int32_t* known = bits - (node - above) * stride;
      for (int64_t word = 0; word < tables_.words; ++word) {
        bits[word] |= known[word];
      }
      return;
    }
    mark(above);
  }
}

void KvCache::fill_row_tables(int64_t row) {
  const Row& filled = rows_[static_cast<size_t>(row)];
  entries(tables_.lengths)[row] = static_cast<int32_t>(filled.length);
  int32_t* positions = entries(tables_.pending_positions) + row * tables_.pending_positions.size(1);
  for (const Node& node : filled.pending) {
    *positions++ = static_cast<int32_t>(node.position);
  }
  const auto pages = page_table_.pages(row);
  std::copy(pages.begin(), pages.end(),
            entries(tables_.page_table) + row * tables_.page_table.size(1));
}

int64_t KvCache::slot_offset(int64_t row, int64_t slot, const LayerKv& layer) const {
  const int64_t page = page_table_.pages(row)[static_cast<size_t>(slot / options_.page_size)];
  return (page * layer.kv_heads * options_.page_size + slot % options_.page_size) * layer.head_dim;
}

}  // namespace specdec
