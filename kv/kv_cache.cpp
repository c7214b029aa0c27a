#include "kv/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

int32_t* entries(const Tensor& table) { return table.mutable_data_ptr<int32_t>(); }

int64_t parent_of(const NewNodes& nodes, int64_t node, int64_t index) {
  return nodes.parents.empty() ? index - 1 : nodes.parents[static_cast<size_t>(node)];
}

}  // namespace

KvCache::KvCache(std::vector<LayerKv> layers, const KvCacheOptions& options)
    : options_(options),
      memory_(std::make_shared<PagedMemory>(
          PagedMemory{.pool = PagePool(std::move(layers), options), .table = {}})),
      pool_(memory_->pool),
      page_table_(memory_->table),
      tables_({.device = options.device, .mirror = options.as_device}),
      readers_({.device = options.device, .mirror = options.as_device, .own_angles = true}) {
  page_table_.add_rows(1);
}

void KvCache::extend(const NewNodes& nodes) {
  find_spans(nodes);
  check_parents(nodes);
  check_capacity();
  // All that may run out of memory comes first, so that then nothing has changed.
  reserve_tables(nodes);
  reserve_pages();
  path_end_ = 0;
  int64_t longest = 0;
  for (const RowSpan& span : spans_) {
    const int64_t first = pending(span.row);
    for (int64_t i = span.begin; i < span.end; ++i) {
      add_node(span, parent_of(nodes, i, first + i - span.begin), i);
    }
    fill_row_tables(span);
    longest = std::max(longest, length(span.row) + pending(span.row));
  }
  tables_.upload(nodes.count, longest);
}

void KvCache::undo_extend() {
  for (const RowSpan& span : spans_) {
    auto& pending = rows_[span.row].pending;
    pending.resize(pending.size() - static_cast<size_t>(span.end - span.begin));
  }
  spans_.clear();
}

KvView KvCache::view(int64_t layer) const {
  KvView view;
  view.window = pool_.geometry(layer).window;
  view.keys = pool_.keys(layer);
  view.values = pool_.values(layer);
  view.format = options_.format;
  view.tables = &tables_.device();
  return view;
}

void KvCache::commit(RowId row, std::span<const int64_t> path) {
  Row& kept = rows_[row];
  int64_t last = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(node >= 0 && node < pending(row),
                  "commit: row {} has {} pending nodes, not node {}", row, pending(row), node);
    const int64_t parent = kept.pending[static_cast<size_t>(node)].parent;
    SPECDEC_CHECK(parent == last,
                  "commit: not a path from the root: node {} of row {} follows {}, not {}", node,
                  row, parent, last);
    last = node;
  }
  moves_.clear();
  for (size_t i = 0; i < path.size(); ++i) {
    const auto target = static_cast<int64_t>(i);
    if (path[i] != target) {  // nodes of a path ascend, so no move overwrites one yet to be moved
      moves_.push_back(
          {page_place(row, kept.length + path[i]), page_place(row, kept.length + target)});
    }
  }
  pool_.move_slots(moves_);
  kept.length += static_cast<int64_t>(path.size());
  kept.pending.clear();
}

void KvCache::truncate(RowId row, int64_t length) {
  Row& cut = rows_[row];
  SPECDEC_CHECK(length >= 0 && length <= cut.length,
                "truncate: row {} holds {} tokens, cannot be cut to {}", row, cut.length, length);
  cut.length = length;
  cut.pending.clear();
}

RowId KvCache::open() {
  if (const auto open = std::ssize(rows_.names());
      options_.max_rows > 0 && open >= options_.max_rows) {
    throw Error(fmt::format("{} rows exceed the cache's max_rows {}; use fewer beams", open + 1,
                            options_.max_rows));
  }
  const RowId row = rows_.open();
  page_table_.add_rows(static_cast<int64_t>(rows_.places()));
  return row;
}

RowId KvCache::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "fork: row {} holds {} tokens, not {}",
                row, this->length(row), length);
  const RowId branch = open();
  rows_[branch].length = length;
  const auto pages = page_table_.pages(place(row));
  page_table_.attach(place(branch), pages.first(static_cast<size_t>(page_count(length))));
  return branch;
}

void KvCache::close(RowId row) {
  const int64_t freed = place(row);
  rows_.close(row);
  page_table_.trim(freed, 0);
}

BatchTables KvCache::readers(RowId row, int64_t nodes, int64_t angle) const {
  SPECDEC_CHECK(length(row) > 0 && nodes > 0, "readers: {} nodes of row {}, which holds {} tokens",
                nodes, row, length(row));
  const auto pages = page_table_.pages(place(row));
  readers_.reserve({.nodes = nodes, .paths = 1, .rows = 1, .pages = std::ssize(pages)});
  const BatchTables& tables = readers_.host();
  const auto all = [nodes](const Tensor& table, int64_t value) {
    std::fill_n(entries(table), nodes, static_cast<int32_t>(value));
  };
  all(tables.rows, 0);
  all(tables.slots, length(row));
  all(tables.positions, length(row) - 1);
  all(tables.angles, angle);
  all(tables.path_starts, -1);
  entries(tables.lengths)[0] = static_cast<int32_t>(length(row));
  std::copy(pages.begin(), pages.end(), entries(tables.page_table));
  readers_.upload(nodes, length(row));
  return readers_.device();
}

std::pair<Tensor, Tensor> KvCache::key_values(int64_t layer, RowId row) const {
  const LayerKv& geometry = pool_.geometry(layer);
  const Tensor keys =
      at::empty({geometry.kv_heads, length(row), pool_.width_of(geometry)},
                at::TensorOptions().dtype(pool_.page_dtype()).device(options_.device));
  std::pair<Tensor, Tensor> copies{keys, at::empty_like(keys)};
  for (int64_t token = 0; token < length(row); ++token) {
    pool_.read_token(layer, page_place(row, token), token, copies);
  }
  return {widened(copies.first), widened(copies.second)};
}

/// [kv_heads, tokens, head_dim] of the activations' dtype, of what a cache stores.
Tensor KvCache::widened(const Tensor& stored) const {
  if (pool_.page_dtype() != at::kByte) {
    return stored.to(options_.dtype);
  }
  const int64_t head_dim = kv_head_dim(options_.format, stored.size(2));
  Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  auto* from = stored.mutable_data_ptr<uint8_t>();
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i) {
    decode_kv(options_.format, {from + i * stored.size(2), 1}, head_dim, to + i * head_dim);
  }
  return numbers;
}

void KvCache::find_spans(const NewNodes& nodes) {
  const auto fits_count = [&](std::span<const int64_t> numbers) {
    return numbers.empty() || std::ssize(numbers) == nodes.count;
  };
  SPECDEC_CHECK(nodes.count >= 0 && fits_count(nodes.rows) && fits_count(nodes.parents),
                "extend: {} rows and {} parents for {} nodes", nodes.rows.size(),
                nodes.parents.size(), nodes.count);
  spans_.clear();
  for (int64_t node = 0; node < nodes.count; ++node) {
    const RowId row = nodes.rows.empty() ? 0 : nodes.rows[static_cast<size_t>(node)];
    if (!spans_.empty() && spans_.back().row == row) {
      ++spans_.back().end;
      continue;
    }
    const bool seen = std::any_of(spans_.begin(), spans_.end(),
                                  [row](const RowSpan& span) { return span.row == row; });
    SPECDEC_CHECK(!seen, "extend: node {} is apart from the others of row {}", node, row);
    spans_.push_back({row, place(row), node, node + 1});
  }
}

void KvCache::check_parents(const NewNodes& nodes) const {
  for (const RowSpan& span : spans_) {
    for (int64_t node = span.begin; node < span.end; ++node) {
      const int64_t index = pending(span.row) + node - span.begin;
      const int64_t parent = parent_of(nodes, node, index);
      SPECDEC_CHECK(parent >= -1 && parent < index,
                    "extend: pending node {} of row {} cannot follow node {}", index, span.row,
                    parent);
    }
  }
}

/// First and end of the pages that a row's new nodes lie in.
std::pair<int64_t, int64_t> KvCache::page_range(const RowSpan& span) const {
  const int64_t first = length(span.row) + pending(span.row);
  return {first / options_.page_size, page_count(first + span.end - span.begin)};
}

/// Slots in the paths of new nodes: a node has one unless all the row's pending nodes up to
/// it are a chain.
int64_t KvCache::path_slots(const NewNodes& nodes) {
  int64_t slots = 0;
  for (const RowSpan& span : spans_) {
    depths_.clear();
    for (int64_t index = 0; index < pending(span.row); ++index) {
      const Node& node = rows_[span.row].pending[static_cast<size_t>(index)];
      depths_.push_back(node.position - length(span.row));
    }
    for (int64_t node = span.begin; node < span.end; ++node) {
      const auto index = static_cast<int64_t>(depths_.size());
      const int64_t parent = parent_of(nodes, node, index);
      const int64_t depth = parent < 0 ? 0 : depths_[static_cast<size_t>(parent)] + 1;
      depths_.push_back(depth);
      slots += depth == index ? 0 : depth + 1;
    }
  }
  return slots;
}

void KvCache::reserve_tables(const NewNodes& nodes) {
  int64_t most_pages = 0;
  for (const RowSpan& span : spans_) {
    const int64_t held = std::ssize(page_table_.pages(span.place));
    most_pages = std::max({most_pages, held, page_range(span).second});
  }
  tables_.reserve({.nodes = nodes.count,
                   .paths = std::max<int64_t>(1, path_slots(nodes)),
                   .rows = static_cast<int64_t>(rows_.places()),
                   .pages = most_pages});
}

void KvCache::reserve_pages() {
  int64_t needed =
      0;  // at most: of the rows that write a page which they share, one copies nothing
  for (const RowSpan& span : spans_) {
    const auto [first, end] = page_range(span);
    needed += page_table_.pages_needed(span.place, first, end);
  }
  int64_t pages =
      page_table_.pages_made() + std::max<int64_t>(0, needed - page_table_.free_pages());
  if (pages > pool_.capacity()) {
    free_unused_pages();
    check_pages();
    pages = pool_.capacity();
  }
  // The pool grows first: should memory run out, no row refers to a page that does not exist.
  pool_.reserve(pages);
  copies_.clear();
  for (const RowSpan& span : spans_) {
    const auto [first, end] = page_range(span);
    page_table_.make_writable(span.place, first, end, copies_);
  }
  for (const PageTable::Copy& copy : copies_) {
    pool_.copy_page(copy.from, copy.to);
  }
}

void KvCache::add_node(const RowSpan& span, int64_t parent, int64_t index) {
  Row& owner = rows_[span.row];
  const auto node = static_cast<int64_t>(owner.pending.size());
  const int64_t position =
      parent < 0 ? owner.length : owner.pending[static_cast<size_t>(parent)].position + 1;
  owner.pending.push_back({parent, position});
  const BatchTables& tables = tables_.host();
  entries(tables.rows)[index] = static_cast<int32_t>(span.place);
  entries(tables.slots)[index] = static_cast<int32_t>(owner.length + node);
  entries(tables.positions)[index] = static_cast<int32_t>(position);
  if (position == owner.length + node) {
    entries(tables.path_starts)[index] = -1;
    return;
  }
  entries(tables.path_starts)[index] = static_cast<int32_t>(path_end_);
  path_end_ += position - owner.length + 1;
  int32_t* slot = entries(tables.paths) + path_end_;
  for (int64_t above = node; above >= 0; above = owner.pending[static_cast<size_t>(above)].parent) {
    *--slot = static_cast<int32_t>(owner.length + above);
  }
}

void KvCache::fill_row_tables(const RowSpan& span) {
  const BatchTables& tables = tables_.host();
  entries(tables.lengths)[span.place] = static_cast<int32_t>(length(span.row));
  const auto pages = page_table_.pages(span.place);
  std::copy(pages.begin(), pages.end(),
            entries(tables.page_table) + span.place * tables.page_table.size(1));
}

PagePool::Place KvCache::page_place(RowId row, int64_t slot) const {
  const auto index = static_cast<size_t>(slot / options_.page_size);
  return {page_table_.pages(place(row))[index], slot % options_.page_size};
}

KvStoreFactory paged_kv(int64_t page_size, KvFormat format, int64_t max_pages) {
  return
      [page_size, format, max_pages](std::vector<LayerKv> layers, const KvStoreOptions& options) {
        const KvCacheOptions paged{.dtype = options.dtype,
                                   .format = format,
                                   .device = options.device,
                                   .page_size = page_size,
                                   .max_length = options.max_length,
                                   .max_pages = max_pages};
        return std::make_unique<KvCache>(std::move(layers), paged);
      };
}

}  // namespace specdec
