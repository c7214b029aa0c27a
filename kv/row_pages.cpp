#include "kv/row_pages.h"

#include <algorithm>

#include "kv/page_tiers.h"

namespace specdec {

RowPages::RowPages(CacheRows& rows, PageGroups& groups)
    : rows_(rows), groups_(groups), capacity_(rows, groups) {
  add_rows();
}

void RowPages::add_rows() {
  for (PageGroup& group : groups_.all()) {
    group.table.add_rows(rows_.places());
  }
}

void RowPages::reserve_spans() {
  ranges_.clear();
  for (const CacheRows::Span& span : rows_.spans()) {
    ranges_.push_back(rows_.page_range(span));
  }
  for (PageGroup& group : groups_.all()) {
    reserve(group, ranges_);
  }
}

void RowPages::renew(RowId row, int64_t tokens) {
  const int64_t place = rows_.place(row);
  for (PageGroup& group : groups_.all()) {
    group.table.trim(place, 0);
    const PageRange seen{place, group.pages_behind(tokens), rows_.page_count(tokens)};
    reserve(group, {&seen, 1});
  }
}

void RowPages::reserve(PageGroup& group, std::span<const PageRange> ranges) {
  PageTable& table = group.table;
  int64_t needed =
      0;  // at most: of the rows that write a page which they share, one copies nothing
  for (const PageRange& range : ranges) {
    needed += table.pages_needed(range.place, range.first, range.end);
  }
  int64_t pages = table.pages_made() + std::max<int64_t>(0, needed - table.free_pages());
  if (pages > group.pool.capacity()) {
    free_unused(group);
    capacity_.check_pages(group, ranges);
    pages = group.pool.capacity();
  }
  // The pool grows first: should memory run out, no row refers to a page that does not exist.
  groups_.reserve(group, pages);
  copies_.clear();
  try {
    hold_shared(group, ranges);
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

/// Brings what is copied when rows stop sharing it: a disk that fails changes no row then.
void RowPages::hold_shared(PageGroup& group, std::span<const PageRange> ranges) {
  PageTiers* tiers = group.pool.tiers();
  for (const PageRange& range : ranges) {
    const auto pages = group.table.pages(range.place);
    const int64_t end = std::min(range.end, static_cast<int64_t>(std::ssize(pages)));
    for (int64_t i = range.first; tiers != nullptr && i < end; ++i) {
      if (group.table.pages_needed(range.place, i, i + 1) > 0) {
        tiers->hold(pages[static_cast<size_t>(i)]);
      }
    }
  }
}

/// Takes from rows what they keep of truncated and forgotten nodes.
void RowPages::free_unused(PageGroup& group) {
  for (const RowId row : rows_.names()) {
    group.table.trim(rows_.place(row), rows_.page_count(rows_.held(row)));
  }
}

void RowPages::share(RowId from, RowId branch, int64_t tokens) {
  for (PageGroup& group : groups_.all()) {
    const auto pages = group.table.pages(rows_.place(from));
    group.table.attach(rows_.place(branch),
                       pages.first(static_cast<size_t>(rows_.page_count(tokens))));
  }
}

void RowPages::release(int64_t place) {
  for (PageGroup& group : groups_.all()) {
    group.table.trim(place, 0);
  }
}

void RowPages::give_back(RowId row) {
  CacheRows::Row& kept = rows_[row];
  for (PageGroup& group : groups_.all()) {
    if (const int64_t behind = group.pages_behind(kept.length); behind > 0) {
      group.table.give_back_first(rows_.place(row), behind);
      kept.shortest = std::max(kept.shortest, behind * rows_.page_size() + group.window);
    }
  }
}

void RowPages::move_path(RowId row, std::span<const int64_t> path, int64_t in_place) {
  const int64_t length = rows_.length(row);
  const int64_t place = rows_.place(row);
  for (PageGroup& group : groups_.all()) {
    moves_.clear();
    for (int64_t i = in_place; i < std::ssize(path); ++i) {
      moves_.push_back(
          {group.at(place, length + path[static_cast<size_t>(i)]), group.at(place, length + i)});
    }
    group.pool.move_slots(moves_);
  }
}

}  // namespace specdec
