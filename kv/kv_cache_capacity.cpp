// What a KvCache holds, and at most: its statistics, its checks before an extend, and its answers
// to what would fit.
#include <fmt/format.h>

#include <algorithm>

#include "core/cache_room_error.h"
#include "core/error.h"
#include "kv/kv_cache.h"
#include "kv/page_tiers.h"

namespace specdec {

KvStatistics KvCache::statistics() const {
  groups_->take_back();
  std::vector<int64_t> lengths(rows_.places());
  for (const RowId row : rows()) {
    lengths[rows_.place(row)] = length(row) + pending(row);
  }
  KvStatistics statistics{.page_size = options_.page_size};
  statistics.layers.resize(static_cast<size_t>(groups_->layers()));
  for (const PageGroup& group : groups_->all()) {
    const PageTable::Use use = group.table.use(lengths, options_.page_size);
    const int64_t allocated = group.pool.allocated(group.table.pages_made());
    statistics.used_pages += use.used;
    statistics.shared_pages += use.shared;
    statistics.spare_pages += use.spare;
    statistics.free_pages += group.table.free_pages();
    statistics.allocated_pages += allocated;
    statistics.tokens += use.tokens;
    statistics.slots += use.filled * options_.page_size;
    for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
      const KvStatistics::Layer own{page_bytes(group.pool.geometry(layer), group.options), use.used,
                                    allocated};
      if (&group == groups_->exact()) {
        statistics.exact_layers.push_back(own);
      } else if (&groups_->of(layer) == &group) {
        statistics.layers[static_cast<size_t>(layer)] = own;
      }
    }
  }
  if (PageTiers* tiers = groups_->all().front().pool.tiers()) {
    statistics.tiers = tiers->statistics();
  }
  return statistics;
}

void KvCache::touch(int64_t tokens) {
  const int64_t pages = page_count(std::min(tokens, options_.max_length));
  for (PageGroup& group : groups_->all()) {
    const int64_t most = std::min(group.windowed(pages), group.pool.capacity());
    groups_->reserve(group, most);
    group.pool.touch(most);
  }
}

void KvCache::check_capacity() const {
  for (const RowSpan& span : spans_) {
    const int64_t nodes = pending(span.row) + span.end - span.begin;
    check_length(length(span.row) + nodes);
    if (options_.max_pending > 0 && nodes > options_.max_pending) {
      throw Error(
          fmt::format("{} pending tokens of row {} exceed the cache's max_pending {}; "
                      "draft fewer, or feed the prompt in smaller pieces",
                      nodes, span.row, options_.max_pending));
    }
  }
}

void KvCache::check_length(int64_t tokens) const {
  if (tokens > options_.max_length) {
    throw Error(
        fmt::format("a sequence of {} tokens exceeds the model's max_length {}; shorten "
                    "the prompt or ask for fewer new tokens",
                    tokens, options_.max_length));
  }
}

/// Throws Error where a node, at a slot that is not its position's, would read a group of keys that
/// branches have in common no more: it is the last of `depth` tokens behind `shared` ones of its
/// row, kept or pending, that lie at the slots of their positions. Groups that end there are
/// rounded by the forward of their last token, or are kept.
void KvCache::check_branch(int64_t shared, int64_t depth) const {
  ExactPages form;
  form.recent = options_.exact_recent;
  form.multiple = kv_key_group(options_.format);
  if (form.multiple > 1 && form.first_at(shared + depth - 1) > shared) {
    throw Error(fmt::format(
        "a branch of a draft tree is {} tokens deep, behind those that branches have in common, "
        "and a key/value cache in {} with exact_recent {} rounds the keys of {} tokens together "
        "that follow each other in all branches: draft a tree of at most {} levels (beams: a "
        "draft_length of as many) or a chain without beams, or raise exact_recent",
        depth, kv_format_name(options_.format), options_.exact_recent, form.multiple,
        options_.exact_recent - 1));
  }
}

/// Takes from rows what they keep of truncated and forgotten nodes.
void KvCache::free_unused_pages(PageGroup& group) {
  for (const RowId row : rows()) {
    group.table.trim(place(row), page_count(length(row) + pending(row)));
  }
}

void KvCache::check_pages(const PageGroup& group, std::span<const PageRange> ranges) const {
  std::vector<PageTable::Branch> branches;
  for (const RowId row : rows()) {
    const int64_t held = length(row) + pending(row);
    branches.push_back(
        {.source = held > 0 ? place(row) : -1, .kept = page_count(held), .first = 0, .end = 0});
    for (const PageRange& range : ranges) {
      if (range.place == place(row)) {
        branches.back().first = range.first;
        branches.back().end = range.end;
      }
    }
  }
  const int64_t pages = group.table.pages_of(branches);
  if (pages <= group.pool.capacity()) {
    return;
  }
  CacheRoom room{
      .holds = fmt::format("{} pages of {} tokens", group.pool.capacity(), options_.page_size),
      .advice =
          "raise the cache's limit (max_pages or megabytes), or use fewer beams, a shorter "
          "prompt or fewer new tokens",
      .needed = pages,
      .page_size = group.windowed(page_count(options_.max_length)) < page_count(options_.max_length)
                       ? 0
                       : options_.page_size};
  if (options_.memory_bytes > 0) {
    room.holds += " in memory and on disk";
    room.advice =
        "raise the cache's limit (megabytes), or use fewer beams, a shorter prompt or fewer new "
        "tokens";
  } else if (options_.page_size >= options_.max_length) {  // as in a contiguous cache
    room.holds = fmt::format("{} rows of {} tokens", group.pool.capacity(), options_.max_length);
    room.advice =
        "raise the cache's limit (max_rows; of pages max_pages or megabytes), or use fewer beams "
        "or snapshots";
  } else if (options_.max_bytes > 0 && groups_->count() == 1) {
    for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
      room.page_bytes += page_bytes(group.pool.geometry(layer), group.options);
    }
  }
  throw CacheRoomError(room);
}

/// Pages that are in use when these are all the rows.
int64_t KvCache::pages_of(const PageGroup& group, std::span<const GrownRow> rows) const {
  std::vector<PageTable::Branch> branches;
  branches.reserve(rows.size());
  for (const GrownRow& row : rows) {
    const int64_t held = row.length + row.pending;
    const bool grows = row.nodes > 0;
    branches.push_back({.source = held > 0 ? place(row.source) : -1,
                        .kept = page_count(held),
                        .first = grows ? held / options_.page_size : 0,
                        .end = grows ? page_count(held + row.nodes) : 0});
  }
  return group.table.pages_of(branches);
}

bool KvCache::fits(std::span<const Growth> rows, std::span<const RowId> closed) const {
  groups_->take_back();
  const std::vector<RowId> open = this->rows();
  std::vector<GrownRow> grown;
  int64_t forks = 0;
  for (const RowId row : open) {
    const bool ends = std::find(closed.begin(), closed.end(), row) != closed.end();
    bool is_fork = ends;
    for (const Growth& growth : rows) {
      if (growth.row == row) {
        grown.push_back({row, length(row), is_fork ? 0 : pending(row), growth.nodes});
        forks += is_fork ? 1 : 0;
        is_fork = true;
      }
    }
    if (!is_fork) {
      grown.push_back({row, length(row), pending(row), 0});
    }
  }
  const auto has_room = [this](const GrownRow& row) {
    const int64_t nodes = row.pending + row.nodes;
    return row.length + nodes <= options_.max_length &&
           (row.nodes == 0 || options_.max_pending == 0 || nodes <= options_.max_pending);
  };
  return (options_.max_rows == 0 || std::ssize(open) + forks <= options_.max_rows) &&
         std::all_of(grown.begin(), grown.end(), has_room) &&
         std::all_of(groups_->all().begin(), groups_->all().end(), [&](const PageGroup& group) {
           return pages_of(group, grown) <= group.pool.capacity();
         });
}

}  // namespace specdec
