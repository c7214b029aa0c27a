#include "kv/page_snapshot.h"

#include <utility>

namespace specdec {

PageSnapshot::PageSnapshot(std::shared_ptr<PageGroups> groups, PageGroups::HeldPages pages,
                           int64_t length, int64_t shortest_length)
    : groups_(std::move(groups)),
      pages_(std::move(pages)),
      length_(length),
      shortest_length_(shortest_length) {}

PageSnapshot::~PageSnapshot() { groups_->give_back(std::move(pages_)); }

MemoryParts PageSnapshot::parts() const {
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

std::vector<LayerKeyValues> PageSnapshot::copy() const {
  return groups_->copy_out(pages_, length_);
}

}  // namespace specdec
