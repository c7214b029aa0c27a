// Snapshots of a KvCache's rows: pages that are held, or copies of what lies in them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kv/kv_cache.h"

namespace specdec {

/// Kept tokens of a row by reference to their pages.
class KvCache::PageSnapshot final : public KvSnapshot {
 public:
  PageSnapshot(std::shared_ptr<PagedMemory> memory, std::vector<PageTable::Page> pages,
               int64_t length)
      : memory_(std::move(memory)), pages_(std::move(pages)), length_(length) {}
  ~PageSnapshot() override { memory_->table.release(pages_); }

  int64_t length() const override { return length_; }
  int64_t bytes() const override { return memory_->pool.page_bytes() * std::ssize(pages_); }
  std::vector<LayerKeyValues> copy() const override {
    std::vector<LayerKeyValues> copies;
    for (int64_t layer = 0; layer < memory_->pool.layers(); ++layer) {
      if (memory_->pool.geometry(layer).source_layer < 0) {
        copies.push_back(memory_->pool.copy_out(layer, pages_, length_));
      }
    }
    return copies;
  }
  const PagedMemory* memory() const { return memory_.get(); }
  std::span<const PageTable::Page> pages() const { return pages_; }

 private:
  std::shared_ptr<PagedMemory> memory_;
  std::vector<PageTable::Page> pages_;
  int64_t length_;
};

std::shared_ptr<const KvSnapshot> KvCache::snapshot(RowId row) {
  SPECDEC_CHECK(pending(row) == 0,
                "snapshot: {} pending nodes are left on row {}; commit or truncate them first",
                pending(row), row);
  auto shared = std::make_shared<PageSnapshot>(
      memory_, page_table_.hold(place(row), page_count(length(row))), length(row));
  if (page_table_.held_pages() + page_count(options_.max_length) <= pool_.capacity()) {
    return shared;
  }
  return std::make_shared<KvCopies>(shared->copy(), length(row));
}

void KvCache::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= snapshot.length(), "restore: {} tokens of {}", length,
                snapshot.length());
  rows_[row] = {};
  spans_.assign(1, {row, place(row), 0, length});
  check_capacity();
  const auto* own = dynamic_cast<const PageSnapshot*>(&snapshot);
  if (own != nullptr && own->memory() == memory_.get()) {
    page_table_.attach(place(row), own->pages().first(static_cast<size_t>(page_count(length))));
  } else {
    copy_in(row, snapshot, length);
  }
  spans_.clear();
  rows_[row].length = length;
}

void KvCache::copy_in(RowId row, const KvSnapshot& snapshot, int64_t length) {
  page_table_.trim(place(row), 0);
  reserve_pages();
  const std::vector<LayerKeyValues> copies = snapshot.copy();
  size_t next = 0;
  for (int64_t layer = 0; layer < pool_.layers(); ++layer) {
    if (pool_.geometry(layer).source_layer < 0) {
      SPECDEC_CHECK(next < copies.size(), "restore: the snapshot has {} layers", copies.size());
      pool_.copy_in(layer, page_table_.pages(place(row)), length, copies[next++]);
    }
  }
  SPECDEC_CHECK(next == copies.size(), "restore: the snapshot has {} layers, not {}", copies.size(),
                next);
}

}  // namespace specdec
