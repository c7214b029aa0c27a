// What a PageTiers moves between forwards, where somebody asks for it.
#include <algorithm>
#include <utility>

#include "kv/page_tiers.h"

namespace specdec {

/// Blocks of a layer that hold these pages, ascending, each once.
std::vector<int64_t> PageTiers::blocks_of(int64_t layer, std::span<const int64_t> pages) const {
  std::vector<int64_t> blocks;
  for (const int64_t page : pages) {
    blocks.push_back(pages_.block_of(layer, page));
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

int64_t PageTiers::demote(std::span<const int64_t> pages, std::span<const int64_t> kept) {
  finish_reads();
  forget_needs();
  std::vector<Place> leaving;
  for (int64_t layer = 0; layer < pages_.layers(); ++layer) {
    const auto& blocks = blocks_[static_cast<size_t>(layer)];
    if (blocks.empty()) {
      continue;
    }
    const std::vector<int64_t> staying = blocks_of(layer, kept);
    for (const int64_t block : blocks_of(layer, pages)) {
      if (block < std::ssize(blocks) && blocks[static_cast<size_t>(block)].in_memory &&
          !std::binary_search(staying.begin(), staying.end(), block)) {
        leaving.push_back({layer, block});
      }
    }
  }
  memory_->begin_moves();
  const int64_t bytes = leave_all(leaving);
  memory_->end_moves();
  return bytes;
}

int64_t PageTiers::promote(int64_t layer, std::span<const PageUse> uses) {
  finish_reads();
  forget_needs();
  std::vector<Place> places = missing(layer, uses);
  std::erase_if(places, [this](Place place) { return !at(place).is_kept; });
  const int64_t room = (pages_.memory_bytes - counts_.memory_bytes) / block_bytes(layer);
  places.resize(static_cast<size_t>(std::clamp<int64_t>(room, 0, std::ssize(places))));
  if (!places.empty()) {
    memory_->begin_moves();
    fetch(places);
  }
  note_use(layer, uses);
  forget_needs();
  return bytes_of(places);
}

void PageTiers::prefetch(int64_t layer, std::span<const PageUse> uses) {
  finish_reads();
  forget_needs();
  read_ahead(layer, uses);
  note_use(layer, uses);
}

/// Notes that blocks are used, so not idle: until two more forwards have begun no others leave
/// after them.
void PageTiers::note_use(int64_t layer, std::span<const PageUse> uses) {
  for (const PageUse& use : uses) {
    at({layer, pages_.block_of(layer, use.page)}).last_use = forward_;
  }
}

int64_t PageTiers::keep_free(int64_t bytes) {
  // What is being read counts as if it had come; nothing waits for it where nothing is idle.
  const int64_t lacking = counts_.memory_bytes + bytes_of(job_) + bytes - pages_.memory_bytes;
  if (lacking <= 0) {
    return 0;
  }
  std::vector<Candidate> idle = candidates(0);
  std::erase_if(idle, [](const Candidate& each) { return !each.use.is_idle(); });
  const std::vector<Place> leaving = first_to_leave(std::move(idle), lacking);
  if (leaving.empty()) {
    return 0;
  }
  finish_reads();
  memory_->begin_moves();
  const int64_t left = leave_all(leaving);
  memory_->end_moves();
  return left;
}

std::optional<PageTiers::PageState> PageTiers::state(int64_t layer, int64_t page) {
  finish_reads();
  const auto& blocks = blocks_[static_cast<size_t>(layer)];
  const Place place{layer, pages_.block_of(layer, page)};
  if (place.block >= std::ssize(blocks)) {
    return std::nullopt;
  }
  const Block& block = at(place);
  if (!block.in_memory && !block.is_kept) {
    return std::nullopt;
  }
  const KvTier elsewhere = memory_->is_on_host(place) ? KvTier::kHost : KvTier::kDisk;
  return PageState{block.in_memory ? KvTier::kMemory : elsewhere, block.access_count};
}

}  // namespace specdec
