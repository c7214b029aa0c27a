// Which pages a KvCache needs in memory, where some lie on disk (KvCacheOptions::memory_bytes).
#include <algorithm>
#include <utility>

#include "core/kernels/forwarding_ops.h"
#include "kv/kv_cache.h"
#include "kv/page_tiers.h"

namespace specdec {

/// Pins the pages whose slots a commit may move: those of pending nodes that are no chain.
void KvCache::begin_tiers() {
  for (PageGroup& group : groups_->all()) {
    PageTiers* tiers = group.pool.tiers();
    if (tiers == nullptr) {
      return;
    }
    std::vector<int64_t> pinned;
    for (const RowId row : rows()) {
      const auto& nodes = rows_[row].pending;
      const int64_t begin = length(row);
      const bool is_chain = nodes.empty() || nodes.back().position == begin + pending(row) - 1;
      const auto pages = group.table.pages(place(row));
      for (int64_t i = begin / options_.page_size;
           !is_chain && i < page_count(begin + pending(row)); ++i) {
        pinned.push_back(pages[static_cast<size_t>(i)]);
      }
    }
    tiers->begin_forward(std::move(pinned));
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

/// Writes where the pages of a layer lie that were just brought, in the tables of the newest
/// forward and of readers().
void KvCache::number_pages(int64_t layer) const {
  for (const RowSpan& span : spans_) {
    if (rows_.is_open(span.row)) {
      number_pages(tables_, span.place, span.row, layer);
    }
  }
  if (rows_.is_open(read_row_)) {
    number_pages(readers_, 0, read_row_, layer);
  }
}

void KvCache::number_pages(const TableBlock& tables, int64_t entry, RowId row,
                           int64_t layer) const {
  const PageGroup& group = groups_->of(layer);
  const int64_t source = group.pool.source_of(layer);
  const Tensor& host = tables.host().page_tables;
  auto* to = host.mutable_data_ptr<int32_t>() + entry * host.stride(0) + source * host.stride(1);
  for (const PageTable::Page page : group.table.pages(place(row))) {
    *to++ = static_cast<int32_t>(group.pool.number(layer, page));
  }
  tables.upload_pages(entry, source);
}

std::shared_ptr<Ops> KvCache::observed(std::shared_ptr<Ops> ops) {
  return renumbers() ? std::make_shared<ForwardingOps>(std::move(ops)) : ops;
}

}  // namespace specdec
