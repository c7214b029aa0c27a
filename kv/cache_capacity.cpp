// What a KvCache holds, and at most: its statistics, its checks before an extend, and its answers
// to what would fit.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kv/kv_cache.h"

namespace specdec {

KvStatistics KvCache::statistics() const {
  std::vector<int64_t> lengths(rows_.places());
  for (const RowId row : rows()) {
    lengths[rows_.place(row)] = length(row) + pending(row);
  }
  const PageTable::Use use = page_table_.use(lengths, options_.page_size);
  KvStatistics statistics{.page_size = options_.page_size,
                          .used_pages = use.used,
                          .shared_pages = use.shared,
                          .spare_pages = use.spare,
                          .free_pages = page_table_.free_pages(),
                          .allocated_pages = pool_.allocated(page_table_.pages_made()),
                          .tokens = use.tokens,
                          .slots = use.filled * options_.page_size};
  for (int64_t layer = 0; layer < pool_.layers(); ++layer) {
    statistics.page_bytes.push_back(page_bytes(pool_.geometry(layer), options_));
  }
  return statistics;
}

void KvCache::touch(int64_t tokens) {
  const int64_t pages = page_count(std::min(tokens, options_.max_length));
  pool_.touch(std::min(pages, pool_.capacity()));
}

void KvCache::check_capacity() const {
  for (const RowSpan& span : spans_) {
    const int64_t nodes = pending(span.row) + span.end - span.begin;
    const int64_t tokens = length(span.row) + nodes;
    if (tokens > options_.max_length) {
      throw Error(
          fmt::format("a sequence of {} tokens exceeds the model's max_length {}; shorten "
                      "the prompt or ask for fewer new tokens",
                      tokens, options_.max_length));
    }
    if (options_.max_pending > 0 && nodes > options_.max_pending) {
      throw Error(
          fmt::format("{} pending tokens of row {} exceed the cache's max_pending {}; "
                      "draft fewer, or feed the prompt in smaller pieces",
                      nodes, span.row, options_.max_pending));
    }
  }
}

/// Takes from rows what they keep of truncated and forgotten nodes.
void KvCache::free_unused_pages() {
  for (const RowId row : rows()) {
    page_table_.trim(place(row), page_count(length(row) + pending(row)));
  }
}

void KvCache::check_pages() const {
  std::vector<GrownRow> grown;
  for (const RowId row : rows()) {
    const auto span = std::find_if(spans_.begin(), spans_.end(),
                                   [row](const RowSpan& each) { return each.row == row; });
    grown.push_back(
        {row, length(row), pending(row), span == spans_.end() ? 0 : span->end - span->begin});
  }
  if (const int64_t pages = pages_of(grown); pages > pool_.capacity()) {
    throw Error(fmt::format(
        "the key/value cache holds {} pages of {} tokens, not {}: raise the limit of model.cache "
        "(max_pages, megabytes, or max_rows), or use fewer beams, a shorter prompt or fewer new "
        "tokens",
        pool_.capacity(), options_.page_size, pages));
  }
}

/// Pages that are in use when these are all the rows.
int64_t KvCache::pages_of(std::span<const GrownRow> rows) const {
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
  return page_table_.pages_of(branches);
}

bool KvCache::fits(std::span<const Growth> rows, std::span<const RowId> closed) const {
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
         std::all_of(grown.begin(), grown.end(), has_room) && pages_of(grown) <= pool_.capacity();
}

}  // namespace specdec
