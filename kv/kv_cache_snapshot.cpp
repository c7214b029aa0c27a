// Snapshots of a KvCache's rows: pages that are held, or copies of what lies in them.
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "kv/kv_cache.h"

namespace specdec {

/// Kept tokens of a row by reference to their pages.
class KvCache::PageSnapshot final : public KvSnapshot {
 public:
  PageSnapshot(std::shared_ptr<PageGroups> groups, PageGroups::HeldPages pages, const Row& row)
      : groups_(std::move(groups)),
        pages_(std::move(pages)),
        length_(row.length),
        shortest_length_(row.shortest) {}
  ~PageSnapshot() override { groups_->give_back(std::move(pages_)); }

  int64_t length() const override { return length_; }
  int64_t shortest_length() const override { return shortest_length_; }
  MemoryParts parts() const override {
    MemoryParts parts;
    for (size_t group = 0; group < pages_.size(); ++group) {
      const PageGroup& own = groups_->all()[group];
      for (const PageTable::Page page : pages_[group]) {
        if (page != PageTable::kNone) {
          parts.push_back({&own, page, own.pool.page_bytes()});
        }
      }
    }
    return parts;
  }
  std::vector<LayerKeyValues> copy() const override { return groups_->copy_out(pages_, length_); }
  const PageGroups* groups() const { return groups_.get(); }
  std::span<const PageTable::Page> pages(size_t group) const { return pages_[group]; }

 private:
  std::shared_ptr<PageGroups> groups_;
  PageGroups::HeldPages pages_;
  int64_t length_;
  int64_t shortest_length_;
};

std::shared_ptr<const KvSnapshot> KvCache::snapshot(RowId row) {
  SPECDEC_CHECK(pending(row) == 0,
                "snapshot: {} pending nodes are left on row {}; commit or truncate them first",
                pending(row), row);
  groups_->take_back();
  PageGroups::HeldPages held;
  bool has_room = true;
  bool is_tiered = false;  // pages on disk are brought by the model's thread alone
  for (PageGroup& group : groups_->all()) {
    is_tiered = is_tiered || group.pool.tiers() != nullptr;
    held.push_back(group.table.hold(place(row), page_count(length(row))));
    const int64_t of_row = group.windowed(page_count(options_.max_length));
    has_room = has_room && group.table.held_pages() + of_row <= group.pool.capacity();
  }
  auto shared = std::make_shared<PageSnapshot>(groups_, std::move(held), rows_[row]);
  if (has_room && !is_tiered) {
    return shared;
  }
  return std::make_shared<KvCopies>(shared->copy(), length(row), shared->shortest_length());
}

void KvCache::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= snapshot.length(), "restore: {} tokens of {}", length,
                snapshot.length());
  check_rewindable("restore", length, snapshot.shortest_length());
  groups_->take_back();
  rows_[row] = {};
  spans_.clear();
  check_length(length);
  const auto* own = dynamic_cast<const PageSnapshot*>(&snapshot);
  if (own != nullptr && own->groups() == groups_.get()) {
    for (size_t group = 0; group < groups_->all().size(); ++group) {
      groups_->all()[group].table.attach(
          place(row), own->pages(group).first(static_cast<size_t>(page_count(length))));
    }
  } else {
    copy_in(row, snapshot, length);
  }
  rows_[row].length = length;
  rows_[row].shortest = length == 0 ? 0 : snapshot.shortest_length();
  give_back_pages(row);
}

void KvCache::copy_in(RowId row, const KvSnapshot& snapshot, int64_t length) {
  for (PageGroup& group : groups_->all()) {
    group.table.trim(place(row), 0);
    const PageRange seen{place(row), pages_behind(group, length), page_count(length)};
    reserve_pages(group, {&seen, 1});
  }
  const std::vector<LayerKeyValues> copies = snapshot.copy();
  size_t next = 0;
  const auto copy = [&](PageGroup& group, int64_t layer) {
    if (group.pool.geometry(layer).source_layer < 0) {
      SPECDEC_CHECK(next < copies.size(), "restore: the snapshot has {} layers", copies.size());
      group.pool.copy_in(layer, group.table.pages(place(row)), {0, length}, copies[next++]);
    }
  };
  for (int64_t layer = 0; layer < groups_->layers(); ++layer) {
    copy(groups_->of(layer), layer);
  }
  for (int64_t layer = 0; groups_->exact() != nullptr && layer < groups_->layers(); ++layer) {
    copy(*groups_->exact(), layer);
  }
  SPECDEC_CHECK(next == copies.size(), "restore: the snapshot has {} layers, not {}", copies.size(),
                next);
}

}  // namespace specdec
