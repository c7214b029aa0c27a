#include "kv/page_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"

namespace specdec {

PageTiers::PageTiers(std::unique_ptr<BlockMemory> memory, std::shared_ptr<const TierPolicy> policy)
    : memory_(std::move(memory)),
      pages_(memory_->pages()),
      policy_(policy != nullptr ? std::move(policy) : least_recently_used()),
      blocks_(pages_.page_bytes.size()),
      reader_(*memory_) {}

bool PageTiers::is_pinned(Place place) const {
  const int64_t count = pages_.pages_per_block[static_cast<size_t>(place.layer)];
  const int64_t first = place.block * count;
  const auto pinned = std::lower_bound(pinned_.begin(), pinned_.end(), first);
  return (pinned != pinned_.end() && *pinned < first + count) ||
         std::any_of(held_.begin(), held_.end(),
                     [&](int64_t page) { return first <= page && page < first + count; });
}

void PageTiers::begin_forward(std::vector<int64_t> pinned) {
  ++forward_;
  end_holds();
  pinned_ = std::move(pinned);
  std::sort(pinned_.begin(), pinned_.end());
}

void PageTiers::hold(int64_t page) {
  held_.push_back(page);
  const PageUse use{page, true};
  for (size_t layer = 0; layer < pages_.page_bytes.size(); ++layer) {
    if (pages_.page_bytes[layer] > 0) {
      bring(static_cast<int64_t>(layer), {&use, 1});
    }
  }
}

void PageTiers::bring(int64_t layer, std::span<const PageUse> uses) {
  finish_reads();
  forget_needs();
  const std::vector<Place> places = missing(layer, uses);
  if (!admit(places, layer)) {
    throw Error(fmt::format(
        "{} bytes of keys and values in memory do not hold {} more, which a layer reads at once, "
        "beside those of drafted tokens: raise the cache's memory_megabytes",
        pages_.memory_bytes, pages_.bytes_of(places)));
  }
  note_access(layer, uses);
}

bool PageTiers::make_resident(std::span<const LayerUses> layers) {
  finish_reads();
  forget_needs();
  std::vector<Place> places;
  for (const LayerUses& each : layers) {
    const std::vector<Place> of_layer = missing(each.layer, each.uses);
    places.insert(places.end(), of_layer.begin(), of_layer.end());
  }
  const bool has_one_left =
      std::any_of(places.begin(), places.end(), [this](Place place) { return at(place).is_kept; });
  if (has_one_left || !admit(places, layers.empty() ? 0 : layers.front().layer)) {
    forget_needs();
    return false;
  }
  for (const LayerUses& each : layers) {
    note_access(each.layer, each.uses);
  }
  return true;
}

/// Brings blocks that are not in memory, before `layer` is used. False, and none has left or come,
/// where there is no room for them.
bool PageTiers::admit(std::span<const Place> places, int64_t layer) {
  if (!places.empty()) {
    memory_->begin_moves();
  }
  if (!make_room(pages_.bytes_of(places), layer)) {
    return false;
  }
  fetch(places);
  return true;
}

void PageTiers::note_access(int64_t layer, std::span<const PageUse> uses) {
  for (const PageUse& use : uses) {
    Block& block = at({layer, pages_.block_of(layer, use.page)});
    block.is_changed = block.is_changed || use.is_written;
    const int64_t accesses = std::exchange(block.last_use, forward_) == forward_ ? 0 : 1;
    block.access_count += accesses;
    counts_.accesses += accesses;
  }
}

/// Blocks that there is room for are in memory from now on; where it throws, some.
void PageTiers::fetch(std::span<const Place> places) {
  const ScopedSeconds timer(&counts_.wait_seconds);
  std::vector<Place> kept;
  std::copy_if(places.begin(), places.end(), std::back_inserter(kept),
               [this](Place place) { return at(place).is_kept; });
  size_t count = 0;
  try {
    read_blocks(*memory_, kept, count);
  } catch (...) {
    enter_all(std::span(kept).first(count));
    throw;
  }
  for (const Place place : places) {
    if (!at(place).is_kept) {
      memory_->make(place);
    }
  }
  enter_all(places);
}

void PageTiers::read_ahead(int64_t layer, std::span<const PageUse> uses) {
  finish_reads();
  std::vector<Place> places = missing(layer, uses);
  std::erase_if(places, [this](Place place) { return !at(place).is_kept; });
  if (places.empty()) {
    return;
  }
  memory_->begin_moves();
  try {
    if (!make_room(pages_.bytes_of(places), layer)) {
      return;
    }
  } catch (const Error&) {
    return;  // bring() says it, if these are needed
  }
  reader_.begin(std::move(places));
}

/// Blocks that are not in memory, each once; marks all that the uses name.
std::vector<PageTiers::Place> PageTiers::missing(int64_t layer, std::span<const PageUse> uses) {
  std::vector<Place> places;
  auto& blocks = blocks_[static_cast<size_t>(layer)];
  for (const PageUse& use : uses) {
    const int64_t block = pages_.block_of(layer, use.page);
    if (std::ssize(blocks) <= block) {
      blocks.resize(static_cast<size_t>(block) + 1);
    }
    Block& needed = blocks[static_cast<size_t>(block)];
    if (!std::exchange(needed.is_needed, true)) {
      needed_.push_back({layer, block});
      if (!needed.in_memory) {
        places.push_back({layer, block});
      }
    }
  }
  return places;
}

void PageTiers::forget_needs() {
  for (const Place place : needed_) {
    at(place).is_needed = false;
  }
  needed_.clear();
}

/// How many of the first places are neighbours, all changed or none.
size_t PageTiers::like_run(std::span<const Place> places) {
  const size_t neighbours = run_length(*memory_, places);
  size_t length = 1;
  while (length < neighbours && at(places[length]).is_changed == at(places[0]).is_changed) {
    ++length;
  }
  return length;
}

/// Whether so many bytes fit now, before `layer` is used. Changes nothing where they cannot.
bool PageTiers::make_room(int64_t bytes, int64_t layer) {
  const int64_t lacking = counts_.memory_bytes + bytes - pages_.memory_bytes;
  if (lacking <= 0) {
    return true;
  }
  const std::vector<Place> leaving = first_to_leave(candidates(layer), lacking);
  if (pages_.bytes_of(leaving) < lacking) {
    return false;
  }
  leave_all(leaving);
  return true;
}

/// Blocks that may leave memory before `layer` is used.
std::vector<PageTiers::Candidate> PageTiers::candidates(int64_t layer) {
  const auto layers = static_cast<int64_t>(blocks_.size());
  std::vector<Candidate> all;
  for (int64_t other = 0; other < layers; ++other) {
    for (int64_t block = 0; block < std::ssize(blocks_[static_cast<size_t>(other)]); ++block) {
      const Block& each = at({other, block});
      if (each.in_memory && !each.is_needed && !is_pinned({other, block})) {
        all.push_back({.use = {.layer = other,
                               // An undone forward may have used it.
                               .forwards_ago = std::max<int64_t>(0, forward_ - each.last_use),
                               .access_count = each.access_count,
                               .turns = (other - layer + layers) % layers},
                       .place = {other, block}});
      }
    }
  }
  return all;
}

/// Candidates that leave memory first, of `bytes` together, in order of place; all where they have
/// fewer.
std::vector<PageTiers::Place> PageTiers::first_to_leave(std::vector<Candidate> candidates,
                                                        int64_t bytes) const {
  const auto place_of = [](Place place) { return std::pair(place.layer, place.block); };
  const auto leaves_later = [&](const Candidate& a, const Candidate& b) {
    return policy_->leaves_before(b.use, a.use) ||
           (!policy_->leaves_before(a.use, b.use) && place_of(a.place) < place_of(b.place));
  };
  std::make_heap(candidates.begin(), candidates.end(), leaves_later);
  std::vector<Place> leaving;
  for (; bytes > 0 && !candidates.empty(); candidates.pop_back()) {
    std::pop_heap(candidates.begin(), candidates.end(), leaves_later);
    leaving.push_back(candidates.back().place);
    bytes -= block_bytes(leaving.back().layer);
  }
  std::sort(leaving.begin(), leaving.end(),
            [&](Place a, Place b) { return place_of(a) < place_of(b); });
  return leaving;
}

/// Moves blocks out of memory, in order of place. Returns their bytes.
int64_t PageTiers::leave_all(std::span<const Place> places) {
  const ScopedSeconds timer(&counts_.wait_seconds);
  for (std::span<const Place> left = places; !left.empty();) {
    const size_t count = like_run(left);
    leave(left.first(count));
    left = left.subspan(count);
  }
  return pages_.bytes_of(places);
}

/// Keeps a run of neighbours elsewhere where it has changed, and gives its memory back.
void PageTiers::leave(std::span<const Place> run) {
  const bool is_changed = at(run[0]).is_changed;
  memory_->leave(run, is_changed);
  for (const Place place : run) {
    Block& block = at(place);
    block.in_memory = false;
    block.is_changed = false;
    block.is_kept = block.is_kept || is_changed;
    counts_.memory_bytes -= block_bytes(place.layer);
    counts_.disk_bytes += block.is_kept ? block_bytes(place.layer) : 0;
    ++counts_.demotions;
  }
}

/// The blocks' bytes are in memory from now on.
void PageTiers::enter_all(std::span<const Place> places) {
  for (const Place place : places) {
    Block& block = at(place);
    const int64_t bytes = block_bytes(place.layer);
    block.in_memory = true;
    counts_.promotions += block.is_kept ? 1 : 0;
    counts_.disk_bytes -= block.is_kept ? bytes : 0;
    counts_.memory_bytes += bytes;
  }
  counts_.peak_memory_bytes = std::max(counts_.peak_memory_bytes, counts_.memory_bytes);
  if (!places.empty()) {
    memory_->end_moves();
  }
}

/// Waits for the reader. What it could not read is read once more when it is brought.
void PageTiers::finish_reads() {
  if (reader_.reading().empty()) {
    return;
  }
  const ScopedSeconds timer(&counts_.wait_seconds);
  enter_all(reader_.finish());
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
    const std::vector<int64_t> staying = pages_.blocks_of(layer, kept);
    for (const int64_t block : pages_.blocks_of(layer, pages)) {
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
  return pages_.bytes_of(places);
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
  const int64_t lacking =
      counts_.memory_bytes + pages_.bytes_of(reader_.reading()) + bytes - pages_.memory_bytes;
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

KvTiers PageTiers::statistics() {
  finish_reads();
  KvTiers counts = counts_;
  memory_->add_counts(counts);
  return counts;
}

}  // namespace specdec
