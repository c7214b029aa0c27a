#include "kv/cache_capacity.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/cache_room_error.h"
#include "core/error.h"

namespace specdec {

void CacheCapacity::check_open() const {
  const int64_t most = groups_.options().max_rows;
  if (const auto open = std::ssize(rows_.names()); most > 0 && open >= most) {
    throw Error(
        fmt::format("{} rows exceed the cache's max_rows {}; use fewer beams", open + 1, most));
  }
}

void CacheCapacity::check_length(int64_t tokens) const {
  if (tokens > groups_.options().max_length) {
    throw Error(
        fmt::format("a sequence of {} tokens exceeds the model's max_length {}; shorten "
                    "the prompt or ask for fewer new tokens",
                    tokens, groups_.options().max_length));
  }
}

void CacheCapacity::check_spans() const {
  const int64_t most = groups_.options().max_pending;
  for (const CacheRows::Span& span : rows_.spans()) {
    const int64_t nodes = rows_.pending(span.row) + span.end - span.begin;
    check_length(rows_.length(span.row) + nodes);
    if (most > 0 && nodes > most) {
      throw Error(
          fmt::format("{} pending tokens of row {} exceed the cache's max_pending {}; "
                      "draft fewer, or feed the prompt in smaller pieces",
                      nodes, span.row, most));
    }
  }
}

/// Pages in use once the rows own these pages.
int64_t CacheCapacity::pages_with(const PageGroup& group, std::span<const PageRange> ranges) const {
  std::vector<PageTable::Branch> branches;
  for (const RowId row : rows_.names()) {
    const int64_t held = rows_.held(row);
    const int64_t place = rows_.place(row);
    branches.push_back(
        {.source = held > 0 ? place : -1, .kept = rows_.page_count(held), .first = 0, .end = 0});
    for (const PageRange& range : ranges) {
      if (range.place == place) {
        branches.back().first = range.first;
        branches.back().end = range.end;
      }
    }
  }
  return group.table.pages_of(branches);
}

void CacheCapacity::check_pages(const PageGroup& group, std::span<const PageRange> ranges) const {
  const int64_t pages = pages_with(group, ranges);
  if (pages <= group.pool.capacity()) {
    return;
  }
  const KvCacheOptions& options = groups_.options();
  const int64_t of_longest = rows_.page_count(options.max_length);
  CacheRoom room{
      .holds = fmt::format("{} pages of {} tokens", group.pool.capacity(), options.page_size),
      .advice =
          "raise the cache's limit (max_pages or megabytes), or use fewer beams, a shorter "
          "prompt or fewer new tokens",
      .needed = pages,
      .page_size = group.windowed(of_longest) < of_longest ? 0 : options.page_size};
  if (options.memory_bytes > 0) {
    room.holds += " in memory and on disk";
    room.advice =
        "raise the cache's limit (megabytes), or use fewer beams, a shorter prompt or fewer new "
        "tokens";
  } else if (options.page_size >= options.max_length) {  // as in a contiguous cache
    room.holds = fmt::format("{} rows of {} tokens", group.pool.capacity(), options.max_length);
    room.advice =
        "raise the cache's limit (max_rows; of pages max_pages or megabytes), or use fewer beams "
        "or snapshots";
  } else if (options.max_bytes > 0 && groups_.count() == 1) {
    for (int64_t layer = 0; layer < groups_.layers(); ++layer) {
      room.page_bytes += page_bytes(group.pool.geometry(layer), group.options);
    }
  }
  throw CacheRoomError(room);
}

/// The rows as they are once these have grown, and those of `closed` are closed.
std::vector<CacheCapacity::GrownRow> CacheCapacity::grown_rows(
    std::span<const RowGrowth> rows, std::span<const RowId> closed) const {
  std::vector<GrownRow> grown;
  for (const RowId row : rows_.names()) {
    bool is_fork = std::find(closed.begin(), closed.end(), row) != closed.end();
    for (const RowGrowth& growth : rows) {
      if (growth.row == row) {
        grown.push_back(
            {row, rows_.length(row), is_fork ? 0 : rows_.pending(row), growth.nodes, is_fork});
        is_fork = true;
      }
    }
    if (!is_fork) {
      grown.push_back({row, rows_.length(row), rows_.pending(row), 0, false});
    }
  }
  return grown;
}

bool CacheCapacity::has_room(const GrownRow& row) const {
  const KvCacheOptions& options = groups_.options();
  const int64_t nodes = row.pending + row.nodes;
  return row.length + nodes <= options.max_length &&
         (row.nodes == 0 || options.max_pending == 0 || nodes <= options.max_pending);
}

/// Pages that are in use when these are all the rows.
int64_t CacheCapacity::pages_of(const PageGroup& group, std::span<const GrownRow> rows) const {
  std::vector<PageTable::Branch> branches;
  branches.reserve(rows.size());
  for (const GrownRow& row : rows) {
    const int64_t held = row.length + row.pending;
    const bool grows = row.nodes > 0;
    branches.push_back({.source = held > 0 ? rows_.place(row.source) : -1,
                        .kept = rows_.page_count(held),
                        .first = grows ? held / rows_.page_size() : 0,
                        .end = grows ? rows_.page_count(held + row.nodes) : 0});
  }
  return group.table.pages_of(branches);
}

bool CacheCapacity::fits(std::span<const RowGrowth> rows, std::span<const RowId> closed) const {
  const std::vector<GrownRow> grown = grown_rows(rows, closed);
  const int64_t forks =
      std::count_if(grown.begin(), grown.end(), [](const GrownRow& row) { return row.is_fork; });
  const int64_t most = groups_.options().max_rows;
  return (most == 0 || std::ssize(rows_.names()) + forks <= most) &&
         std::all_of(grown.begin(), grown.end(),
                     [this](const GrownRow& row) { return has_room(row); }) &&
         std::all_of(groups_.all().begin(), groups_.all().end(), [&](const PageGroup& group) {
           return pages_of(group, grown) <= group.pool.capacity();
         });
}

}  // namespace specdec
