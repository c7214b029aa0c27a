#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv_snapshot.h"
#include "kv/page_groups.h"

namespace specdec {

/// Kept tokens of a row by reference to their pages, which it holds: it keeps their memory beyond
/// the cache.
class PageSnapshot final : public KvSnapshot {
 public:
  /// `length` tokens lie in the pages of each group; fewer than `shortest_length` of them, beside
  /// none, no row can be cut to.
  PageSnapshot(std::shared_ptr<PageGroups> groups, PageGroups::HeldPages pages, int64_t length,
               int64_t shortest_length);
  ~PageSnapshot() override;

  int64_t length() const override { return length_; }
  int64_t shortest_length() const override { return shortest_length_; }
  MemoryParts parts() const override;
  std::vector<LayerKeyValues> copy() const override;
  const PageGroups* groups() const { return groups_.get(); }
  std::span<const PageTable::Page> pages(size_t group) const { return pages_[group]; }

 private:
  std::shared_ptr<PageGroups> groups_;
  PageGroups::HeldPages pages_;
  int64_t length_;
  int64_t shortest_length_;
};

}  // namespace specdec
