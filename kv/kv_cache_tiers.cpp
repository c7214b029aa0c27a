// Which pages a KvCache needs in memory, where some lie on disk (KvCacheOptions::memory_bytes).
#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"
#include "kv/kv_cache.h"
#include "kv/page_tiers.h"

namespace specdec {

/// The pages whose slots a commit may move: those of pending nodes that are no chain.
std::vector<int64_t> KvCache::pages_of_trees() const {
  std::vector<int64_t> trees;
  for (const RowId row : rows()) {
    const auto& nodes = rows_[row].pending;
    const int64_t begin = length(row);
    const bool is_chain = nodes.empty() || nodes.back().position == begin + pending(row) - 1;
    const auto pages = groups_->all().front().table.pages(place(row));
    for (int64_t i = begin / options_.page_size; !is_chain && i < page_count(begin + pending(row));
         ++i) {
      trees.push_back(pages[static_cast<size_t>(i)]);
    }
  }
  return trees;
}

void KvCache::begin_tiers() {
  if (PageTiers* tiers = page_tiers()) {
    tiers->begin_forward(pages_of_trees());
  }
}

void KvCache::undo_tiers() {
  if (PageTiers* tiers = page_tiers()) {
    tiers->undo_forward();
  }
}

/// The share of the memory that the cache's options leave free. A disk that fails changes nothing,
/// and is an error of the forward that needs the room.
void KvCache::keep_tiers_free() {
  if (options_.keep_free > 0.0 && row_tiers_ != nullptr) {
    try {
      row_tiers_->manage_tiers();
    } catch (const std::exception&) {  // what was committed stays so
    }
  }
}

/// Brings what is copied when rows stop sharing it: a disk that fails changes no row then.
void KvCache::hold_shared_pages(PageGroup& group, std::span<const PageRange> ranges) {
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

/// Adds what a layer with this window reads and writes of an open row.
void KvCache::add_uses(const PageGroup& group, RowId row, int64_t window,
                       std::vector<PageUse>& uses) const {
  const int64_t first = window > 0 ? std::max<int64_t>(0, length(row) - window) : 0;
  const auto pages = group.table.pages(place(row));
  const int64_t end =
      std::min(page_count(length(row) + pending(row)), static_cast<int64_t>(std::ssize(pages)));
  for (int64_t i = first / options_.page_size; i < end; ++i) {
    uses.push_back({pages[static_cast<size_t>(i)], i >= length(row) / options_.page_size});
  }
}

/// Of the rows that a forward evaluates, and the one that readers() was asked for.
std::vector<PageUse> KvCache::page_uses(int64_t layer) const {
  const PageGroup& group = groups_->of(layer);
  std::vector<PageUse> uses;
  for (const RowSpan& span : spans_) {
    if (rows_.is_open(span.row)) {
      add_uses(group, span.row, group.pool.geometry(layer).window, uses);
    }
  }
  if (rows_.is_open(read_row_)) {  // readers have windows of their own
    const size_t begin = uses.size();
    add_uses(group, read_row_, 0, uses);
    for (size_t i = begin; i < uses.size(); ++i) {
      uses[i].is_written = false;
    }
  }
  return uses;
}

void KvCache::bring_pages(int64_t layer) const {
  const PagePool& pool = groups_->of(layer).pool;
  if (pool.tiers() == nullptr) {
    return;
  }
  pool.bring(layer, page_uses(layer));
  if (renumbers()) {
    number_pages(layer);
  }
  const int64_t next = (layer + 1) % groups_->layers();
  pool.tiers()->read_ahead(pool.source_of(next), page_uses(next));
}

bool KvCache::make_resident(std::span<const int64_t> layers) {
  PageTiers* tiers = page_tiers();
  if (tiers == nullptr) {
    return true;
  }
  std::vector<LayerUses> uses;
  for (const int64_t layer : layers) {
    uses.push_back({groups_->of(layer).pool.source_of(layer), page_uses(layer)});
  }
  if (!tiers->make_resident(uses)) {
    return false;
  }
  if (renumbers()) {
    number_resident(layers);
  }
  return true;
}

/// Writes where the pages of layers lie that are resident together, in the tables of the newest
/// forward: those of its rows go up in one piece.
void KvCache::number_resident(std::span<const int64_t> layers) const {
  if (spans_.empty()) {
    return;
  }
  int64_t first = spans_.front().place;
  int64_t last = first;
  for (const RowSpan& span : spans_) {
    for (const int64_t layer : layers) {
      write_numbers(tables_, span.place, span.row, layer);
    }
    first = std::min(first, span.place);
    last = std::max(last, span.place);
  }
  tables_.upload_rows(first, last);
}

/// Writes where the pages of a layer lie that were just brought, in the tables of the newest
/// forward and of readers().
void KvCache::number_pages(int64_t layer) const {
  const int64_t source = groups_->of(layer).pool.source_of(layer);
  for (const RowSpan& span : spans_) {
    if (rows_.is_open(span.row)) {
      write_numbers(tables_, span.place, span.row, layer);
      tables_.upload_pages(span.place, source);
    }
  }
  if (rows_.is_open(read_row_)) {
    write_numbers(readers_, 0, read_row_, layer);
    readers_.upload_pages(0, source);
  }
}

void KvCache::write_numbers(const TableBlock& tables, int64_t entry, RowId row,
                            int64_t layer) const {
  const PageGroup& group = groups_->of(layer);
  const int64_t source = group.pool.source_of(layer);
  const Tensor& host = tables.host().page_tables;
  auto* to = host.mutable_data_ptr<int32_t>() + entry * host.stride(0) + source * host.stride(1);
  for (const PageTable::Page page : group.table.pages(place(row))) {
    *to++ = static_cast<int32_t>(group.pool.number(layer, page));
  }
}

/// The public face of the cache's PageTiers. Caches with tiers have one group of pages.
class KvCache::Tiers final : public RowTiers {
 public:
  Tiers(KvCache& cache, PageTiers& tiers) : cache_(cache), tiers_(tiers) {}

  std::vector<PlacedPage> pages(RowId row) override {
    const std::vector<int64_t> pages = pages_of(row);
    std::vector<PlacedPage> placed;
    for (int64_t layer = 0; layer < cache_.groups_->layers(); ++layer) {
      const int64_t bytes = 2 * tiers_.pages().page_bytes[static_cast<size_t>(layer)];
      for (size_t i = 0; bytes > 0 && i < pages.size(); ++i) {
        if (const auto state = tiers_.state(layer, pages[i])) {
          placed.push_back({.layer = layer,
                            .position = static_cast<int64_t>(i) * cache_.options_.page_size,
                            .bytes = bytes,
                            .tier = state->tier,
                            .access_count = state->access_count});
        }
      }
    }
    return placed;
  }

  int64_t demote(RowId row) override {
    std::vector<int64_t> kept = cache_.pages_of_trees();
    for (const RowSpan& span : cache_.spans_) {
      if (span.row != row && cache_.rows_.is_open(span.row)) {
        const std::vector<int64_t> pages = pages_of(span.row);
        kept.insert(kept.end(), pages.begin(), pages.end());
      }
    }
    return tiers_.demote(pages_of(row), kept);
  }

  int64_t promote(RowId row) override {
    int64_t bytes = 0;
    for (int64_t layer = 0; layer < cache_.groups_->layers(); ++layer) {
      if (tiers_.pages().page_bytes[static_cast<size_t>(layer)] > 0) {
        bytes += tiers_.promote(layer, uses(row, layer));
      }
    }
    return bytes;
  }

  void prefetch_async(RowId row) override { tiers_.prefetch(0, uses(row, 0)); }

  int64_t manage_tiers() override {
    const auto memory = static_cast<double>(cache_.options_.memory_bytes);
    return tiers_.keep_free(static_cast<int64_t>(cache_.options_.keep_free * memory));
  }

 private:
  std::vector<int64_t> pages_of(RowId row) const {
    const int64_t count = cache_.page_count(cache_.length(row) + cache_.pending(row));
    const auto pages = cache_.groups_->all().front().table.pages(cache_.place(row));
    return {pages.begin(), pages.begin() + count};
  }
  std::vector<PageUse> uses(RowId row, int64_t layer) const {
    const PageGroup& group = cache_.groups_->all().front();
    std::vector<PageUse> uses;
    cache_.add_uses(group, row, group.pool.geometry(layer).window, uses);
    return uses;
  }

  KvCache& cache_;
  PageTiers& tiers_;
};

std::unique_ptr<RowTiers> KvCache::make_row_tiers() {
  PageTiers* tiers = page_tiers();
  return tiers != nullptr ? std::make_unique<Tiers>(*this, *tiers) : nullptr;
}

}  // namespace specdec
