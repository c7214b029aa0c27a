#include "kv/kv_cache.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kv/page_tiers.h"

namespace specdec {

KvCache::KvCache(const std::vector<LayerKv>& layers, const KvCacheOptions& options)
    : options_(options),
      groups_(std::make_shared<PageGroups>(layers, options)),
      tables_(table_options(false)),
      ends_(table_options(false)),
      readers_(table_options(true)) {
  for (PageGroup& group : groups_->all()) {
    group.table.add_rows(1);
  }
  row_tiers_ = make_row_tiers();
}

/// Where pages are renumbered, each layer has a page table of its own.
TableBlock::Options KvCache::table_options(bool of_readers) const {
  const bool by_layer = renumbers();
  return {.device = options_.device,
          .mirror = options_.as_device,
          .own_angles = of_readers,
          .groups = by_layer ? groups_->layers() : groups_->count(),
          .pages_apart = by_layer};
}

void KvCache::make_room(const NewNodes& nodes) {
  find_spans(nodes);
  check_parents(nodes);
  check_capacity();
  groups_->take_back();
  reserve_tables(nodes);
  ranges_.clear();
  for (const RowSpan& span : spans_) {
    ranges_.push_back(page_range(span));
  }
  for (PageGroup& group : groups_->all()) {
    reserve_pages(group, ranges_);
  }
}

void KvCache::extend(const NewNodes& nodes) {
  read_row_ = -1;
  try {
    make_room(nodes);
  } catch (...) {
    spans_.clear();  // these nodes are in no tables
    throw;
  }
  add_nodes(nodes);
  begin_tiers();
}

void KvCache::undo_extend() {
  for (const RowSpan& span : spans_) {
    auto& pending = rows_[span.row].pending;
    pending.resize(pending.size() - static_cast<size_t>(span.end - span.begin));
  }
  spans_.clear();
  undo_tiers();
}

KvView KvCache::view(int64_t layer) const {
  bring_pages(layer);
  return describe(layer);
}

KvView KvCache::describe(int64_t layer) const {
  const PagePool& pool = groups_->of(layer).pool;
  KvView view;
  view.group = renumbers() ? pool.source_of(layer) : groups_->number_of(layer);
  view.window = pool.geometry(layer).window;
  view.sink = pool.geometry(layer).sink;
  view.keys = pool.keys(layer);
  view.values = pool.values(layer);
  view.format = options_.format;
  view.rotation = options_.rotation;
  view.levels = pool.levels(layer);
  if (const PageGroup* exact = groups_->exact()) {
    view.exact = {exact->pool.keys(layer), exact->pool.values(layer), groups_->count() - 1,
                  exact_recent(layer), kv_key_group(options_.format)};
  }
  view.tables = &tables_.device();
  return view;
}

int64_t KvCache::exact_recent(int64_t layer) const {
  const int64_t window = groups_->of(layer).pool.geometry(layer).window;
  return window > 0 ? std::min(window, options_.exact_recent) : options_.exact_recent;
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
  // Nodes of a path ascend: those that move are its last ones, and no move overwrites one yet to be
  // moved. Groups of keys that end before them were rounded by a forward.
  const int64_t end = kept.length + std::ssize(path);
  int64_t in_place = 0;
  while (in_place < std::ssize(path) && path[static_cast<size_t>(in_place)] == in_place) {
    ++in_place;
  }
  const int64_t ends = find_ends(row, {kept.length + in_place, end});  // throws before any move
  for (PageGroup& group : groups_->all()) {
    moves_.clear();
    for (int64_t i = in_place; i < std::ssize(path); ++i) {
      moves_.push_back({page_place(group, row, kept.length + path[static_cast<size_t>(i)]),
                        page_place(group, row, kept.length + i)});
    }
    group.pool.move_slots(moves_);
  }
  round_groups(ends, end);
  kept.length = end;
  kept.pending.clear();
  give_back_pages(row);
  keep_tiers_free();
}

int64_t KvCache::pages_behind(const PageGroup& group, int64_t length) const {
  const int64_t behind = length - group.window - group.options.window_slack;
  return group.window == 0 ? 0 : std::max<int64_t>(0, behind) / options_.page_size;
}

void KvCache::give_back_pages(RowId row) {
  Row& kept = rows_[row];
  for (PageGroup& group : groups_->all()) {
    if (const int64_t behind = pages_behind(group, kept.length); behind > 0) {
      group.table.give_back_first(place(row), behind);
      kept.shortest = std::max(kept.shortest, behind * options_.page_size + group.window);
    }
  }
}

int64_t KvCache::rewindable_to(RowId row, int64_t length) const {
  return length < rows_[row].shortest ? 0 : length;
}

void KvCache::check_rewindable(const char* call, int64_t length, int64_t shortest) const {
  if (length > 0 && length < shortest) {
    const PageGroup* exact = groups_->exact();
    throw Error(fmt::format(
        "{} to {} tokens: the cache has given back keys and values that the layers' windows{} left "
        "behind, and holds what {} tokens or more need, or none: raise window_slack of the cache "
        "({}), or read the text anew",
        call, length, exact != nullptr ? " or exact_recent" : "", shortest,
        exact != nullptr ? exact->options.window_slack : options_.window_slack));
  }
}

void KvCache::truncate(RowId row, int64_t length) {
  Row& cut = rows_[row];
  SPECDEC_CHECK(length >= 0 && length <= cut.length,
                "truncate: row {} holds {} tokens, cannot be cut to {}", row, cut.length, length);
  check_rewindable("truncate", length, cut.shortest);
  cut.length = length;
  cut.shortest = length == 0 ? 0 : cut.shortest;
  cut.pending.clear();
}

RowId KvCache::open() {
  if (const auto open = std::ssize(rows_.names());
      options_.max_rows > 0 && open >= options_.max_rows) {
    throw Error(fmt::format("{} rows exceed the cache's max_rows {}; use fewer beams", open + 1,
                            options_.max_rows));
  }
  const RowId row = rows_.open();
  for (PageGroup& group : groups_->all()) {
    group.table.add_rows(static_cast<int64_t>(rows_.places()));
  }
  return row;
}

RowId KvCache::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "fork: row {} holds {} tokens, not {}",
                row, this->length(row), length);
  check_rewindable("fork", length, rows_[row].shortest);
  const RowId branch = open();
  rows_[branch] = {.length = length, .shortest = length == 0 ? 0 : rows_[row].shortest};
  for (PageGroup& group : groups_->all()) {
    const auto pages = group.table.pages(place(row));
    group.table.attach(place(branch), pages.first(static_cast<size_t>(page_count(length))));
  }
  return branch;
}

void KvCache::close(RowId row) {
  const int64_t freed = place(row);
  rows_.close(row);
  for (PageGroup& group : groups_->all()) {
    group.table.trim(freed, 0);
  }
}

void KvCache::find_spans(const NewNodes& nodes) {
  const auto fits_count = [&](std::span<const int64_t> numbers) {
    return numbers.empty() || std::ssize(numbers) == nodes.count;
  };
  SPECDEC_CHECK(nodes.count >= 0 && fits_count(nodes.rows) && fits_count(nodes.parents) &&
                    (nodes.tokens.empty() || std::ssize(nodes.tokens) == nodes.count),
                "extend: {} rows, {} parents and {} tokens for {} nodes", nodes.rows.size(),
                nodes.parents.size(), nodes.tokens.size(), nodes.count);
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

/// The pages that a row's new nodes lie in.
KvCache::PageRange KvCache::page_range(const RowSpan& span) const {
  const int64_t first = length(span.row) + pending(span.row);
  return {span.place, first / options_.page_size, page_count(first + span.end - span.begin)};
}

void KvCache::reserve_pages(PageGroup& group, std::span<const PageRange> ranges) {
  PageTable& table = group.table;
  int64_t needed =
      0;  // at most: of the rows that write a page which they share, one copies nothing
  for (const PageRange& range : ranges) {
    needed += table.pages_needed(range.place, range.first, range.end);
  }
  int64_t pages = table.pages_made() + std::max<int64_t>(0, needed - table.free_pages());
  if (pages > group.pool.capacity()) {
    free_unused_pages(group);
    check_pages(group, ranges);
    pages = group.pool.capacity();
  }
  // The pool grows first: should memory run out, no row refers to a page that does not exist.
  groups_->reserve(group, pages);
  copies_.clear();
  try {
    hold_shared_pages(group, ranges);
    for (const PageRange& range : ranges) {
      table.make_writable(range.place, range.first, range.end, copies_);
    }
    for (const PageTable::Copy& copy : copies_) {
      group.pool.copy_page(copy.from, copy.to);
    }
  } catch (...) {  // tiers that are full, or a disk that fails: the rows share the pages on
    table.undo_copies(copies_);
    if (PageTiers* tiers = group.pool.tiers()) {
      tiers->end_holds();
    }
    throw;
  }
}

PagePool::Place KvCache::page_place(const PageGroup& group, RowId row, int64_t slot) const {
  const auto index = static_cast<size_t>(slot / options_.page_size);
  return {group.table.pages(place(row))[index], slot % options_.page_size};
}

}  // namespace specdec
