// What a KvCache holds, and at most: its statistics, its checks before an extend, and its answers
// to what would fit.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kv/kv_cache.h"

namespace specdec {

KvStatistics KvCache::statistics() const {
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < page_table_.rows(); ++row) {
    lengths.push_back(length(row) + pending(row));
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
    if (options_.max_rows > 0 && span.row >= options_.max_rows) {
      throw Error(fmt::format("row {} exceeds the cache's max_rows {}; use fewer beams",
                              span.row + 1, options_.max_rows));
    }
  }
}

/// Takes from rows what they keep of truncated and forgotten nodes.
void KvCache::free_unused_pages() {
  for (int64_t row = 0; row < page_table_.rows(); ++row) {
    page_table_.trim(row, page_count(length(row) + pending(row)));
  }
}

void KvCache::check_pages() const {
  std::vector<GrownRow> grown;
  for (int64_t row = 0; row < rows(); ++row) {
    grown.push_back({row, length(row), pending(row), 0});
  }
  for (const RowSpan& span : spans_) {
    const auto row = static_cast<size_t>(span.row);
    grown.resize(std::max(grown.size(), row + 1), {-1, 0, 0, 0});
    grown[row].nodes = span.end - span.begin;
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
    branches.push_back({.source = held > 0 ? row.source : -1,
                        .kept = page_count(held),
                        .first = grows ? held / options_.page_size : 0,
                        .end = grows ? page_count(held + row.nodes) : 0});
  }
  return page_table_.pages_of(branches);
}

bool KvCache::fits(std::span<const GrownRow> rows) const {
  const auto has_room = [this](const GrownRow& row) {
    const int64_t nodes = row.pending + row.nodes;
    return row.length + nodes <= options_.max_length &&
           (row.nodes == 0 || options_.max_pending == 0 || nodes <= options_.max_pending);
  };
  return (options_.max_rows == 0 || std::ssize(rows) <= options_.max_rows) &&
         std::all_of(rows.begin(), rows.end(), has_room) && pages_of(rows) <= pool_.capacity();
}

bool KvCache::fits(std::span<const int64_t> nodes) const {
  std::vector<GrownRow> grown;
  for (int64_t row = 0; row < std::max(rows(), std::ssize(nodes)); ++row) {
    grown.push_back({row, length(row), pending(row),
                     row < std::ssize(nodes) ? nodes[static_cast<size_t>(row)] : 0});
  }
  return fits(grown);
}

bool KvCache::fits(std::span<const int64_t> parents, std::span<const int64_t> nodes) const {
  std::vector<GrownRow> grown;
  for (size_t row = 0; row < std::max(parents.size(), nodes.size()); ++row) {
    const int64_t parent = row < parents.size() ? parents[row] : -1;
    SPECDEC_CHECK(row >= parents.size() || (parent >= 0 && parent < rows()), "fits: row {} of {}",
                  parent, rows());
    grown.push_back({parent, length(parent), 0, row < nodes.size() ? nodes[row] : 0});
  }
  return fits(grown);
}

}  // namespace specdec
