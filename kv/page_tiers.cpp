#include "kv/page_tiers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/formats/direct_file.h"
#include "core/hash.h"

namespace specdec {
namespace {

/// Adds the seconds that it lives.
class WaitMeter {
 public:
  explicit WaitMeter(double& seconds)
      : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
  ~WaitMeter() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  WaitMeter(const WaitMeter&) = delete;
  WaitMeter& operator=(const WaitMeter&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_;
};

/// Bytes that reads and writes are multiples of, and what the system gives back of memory.
int64_t block_alignment() {
  return std::max<int64_t>(kDirectAlignment, ::sysconf(_SC_PAGESIZE));  // both are powers of two
}

/// A large page of the system would make all blocks in it resident with the first one.
void forbid_large_pages([[maybe_unused]] std::span<std::byte> memory) {
#ifdef MADV_NOHUGEPAGE
  (void)::madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);  // fails where there are none
#endif
}

}  // namespace

int64_t PageTiers::pages_per_block(std::span<const int64_t> page_bytes) {
  int64_t most = 1;
  const int64_t alignment = block_alignment();
  for (const int64_t bytes : page_bytes) {
    if (bytes > 0) {
      most = std::lcm(most, alignment / std::gcd(alignment, bytes));
    }
  }
  return most;
}

int64_t PageTiers::file_bytes(const TieredPages& pages) {
  const int64_t of_page =
      std::accumulate(pages.page_bytes.begin(), pages.page_bytes.end(), int64_t{0});
  return 2 * of_page * pages.capacity;
}

PageTiers::PageTiers(TieredPages pages, std::unique_ptr<PageFile> file)
    : pages_(std::move(pages)),
      per_block_(pages_per_block(pages_.page_bytes)),
      file_(std::move(file)),
      keys_(pages_.page_bytes.size()),
      values_(pages_.page_bytes.size()),
      blocks_(pages_.page_bytes.size()) {
  SPECDEC_CHECK(pages_.capacity % per_block_ == 0, "PageTiers: {} pages in blocks of {}",
                pages_.capacity, per_block_);
  int64_t begin = 0;
  for (const int64_t bytes : pages_.page_bytes) {
    file_begins_.push_back(begin);
    begin += 2 * bytes * pages_.capacity;
  }
  reader_ = std::thread([this] { run(); });
}

PageTiers::~PageTiers() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

void PageTiers::place(int64_t layer, std::byte* keys, std::byte* values) {
  keys_[static_cast<size_t>(layer)] = keys;
  values_[static_cast<size_t>(layer)] = values;
  const auto blocks = static_cast<size_t>(pages_.capacity / per_block_);
  forbid_large_pages(memory({layer, 0}, false, blocks));
  forbid_large_pages(memory({layer, 0}, true, blocks));
}

int64_t PageTiers::half_bytes(int64_t layer) const {
  return per_block_ * pages_.page_bytes[static_cast<size_t>(layer)];
}

/// Of a block, and those after it.
std::span<std::byte> PageTiers::memory(Place place, bool values, size_t count) const {
  std::byte* begin = (values ? values_ : keys_)[static_cast<size_t>(place.layer)];
  const int64_t bytes = half_bytes(place.layer);
  return {begin + place.block * bytes, count * static_cast<size_t>(bytes)};
}

/// In the file, where a layer's values lie behind its keys.
int64_t PageTiers::offset(Place place, bool values) const {
  const auto layer = static_cast<size_t>(place.layer);
  return file_begins_[layer] + (values ? pages_.page_bytes[layer] * pages_.capacity : 0) +
         place.block * half_bytes(place.layer);
}

uint64_t PageTiers::checksum(Place place) const {
  uint64_t hash = kHashStart;
  for (const bool values : {false, true}) {
    const std::span<std::byte> bytes = memory(place, values);
    hash = hash_bytes(hash, bytes.data(), bytes.size());
  }
  return hash;
}

bool PageTiers::is_pinned(int64_t block) const {
  return std::binary_search(pinned_.begin(), pinned_.end(), block) ||
         std::find(held_.begin(), held_.end(), block) != held_.end();
}

void PageTiers::begin_forward(std::vector<int64_t> pinned) {
  ++forward_;
  end_holds();
  pinned_ = std::move(pinned);
  for (int64_t& page : pinned_) {
    page /= per_block_;
  }
  std::sort(pinned_.begin(), pinned_.end());
}

void PageTiers::hold(int64_t page) {
  held_.push_back(page / per_block_);
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
  if (const int64_t bytes = bytes_of(places); !make_room(bytes, layer)) {
    throw Error(fmt::format(
        "{} bytes of keys and values in memory do not hold {} more, which a layer reads at once, "
        "beside those of drafted tokens: raise the cache's memory_megabytes",
        pages_.memory_bytes, bytes));
  }
  const WaitMeter meter(counts_.wait_seconds);
  std::vector<Place> on_disk;
  std::copy_if(places.begin(), places.end(), std::back_inserter(on_disk),
               [this](Place place) { return at(place).is_on_disk; });
  size_t count = 0;
  read_all(on_disk, count);
  for (const Place place : places) {
    enter(place);
  }
  for (const PageUse& use : uses) {
    Block& block = at({layer, use.page / per_block_});
    block.is_changed = block.is_changed || use.is_written;
    counts_.accesses += std::exchange(block.last_use, forward_) == forward_ ? 0 : 1;
  }
}

void PageTiers::read_ahead(int64_t layer, std::span<const PageUse> uses) {
  finish_reads();
  std::vector<Place> places = missing(layer, uses);
  std::erase_if(places, [this](Place place) { return !at(place).is_on_disk; });
  if (places.empty() || !make_room(bytes_of(places), layer)) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(places);
    read_count_ = 0;
    is_reading_ = true;
  }
  changed_.notify_all();
}

/// Blocks that are not in memory, each once; marks all that the uses name.
std::vector<PageTiers::Place> PageTiers::missing(int64_t layer, std::span<const PageUse> uses) {
  std::vector<Place> places;
  auto& blocks = blocks_[static_cast<size_t>(layer)];
  for (const PageUse& use : uses) {
    const int64_t block = use.page / per_block_;
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

int64_t PageTiers::bytes_of(std::span<const Place> places) const {
  int64_t bytes = 0;
  for (const Place place : places) {
    bytes += block_bytes(place.layer);
  }
  return bytes;
}

/// How many of the first places are neighbours, one after another, all changed or none.
size_t PageTiers::run_length(std::span<const Place> places) {
  size_t length = 1;
  while (length < places.size() && places[length].layer == places[0].layer &&
         places[length].block == places[length - 1].block + 1 &&
         at(places[length]).is_changed == at(places[0]).is_changed) {
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
  const WaitMeter meter(counts_.wait_seconds);
  const std::vector<Place> leaving = victims(lacking, layer);
  for (std::span<const Place> left = leaving; !left.empty();) {
    const size_t count = run_length(left);
    demote(left.first(count));
    left = left.subspan(count);
  }
  return !leaving.empty();
}

/// What leaves memory before `layer` is used, in order of place; none where it does not suffice.
std::vector<PageTiers::Place> PageTiers::victims(int64_t lacking, int64_t layer) {
  const auto layers = static_cast<int64_t>(blocks_.size());
  using Rank = std::tuple<bool, int64_t, int64_t, int64_t>;  // the largest leaves first
  std::vector<std::pair<Rank, Place>> heap;
  for (int64_t other = 0; other < layers; ++other) {
    const int64_t turns = (other - layer + layers) % layers;  // until it is used
    for (int64_t block = 0; block < std::ssize(blocks_[static_cast<size_t>(other)]); ++block) {
      const Block& each = at({other, block});
      if (each.in_memory && !each.is_needed && !is_pinned(block)) {
        const bool is_idle = each.last_use < forward_ - 1;
        heap.push_back({{is_idle, is_idle ? -each.last_use : turns, other, block}, {other, block}});
      }
    }
  }
  const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::make_heap(heap.begin(), heap.end(), less);
  std::vector<Place> leaving;
  for (; lacking > 0 && !heap.empty(); heap.pop_back()) {
    std::pop_heap(heap.begin(), heap.end(), less);
    leaving.push_back(heap.back().second);
    lacking -= block_bytes(leaving.back().layer);
  }
  std::sort(leaving.begin(), leaving.end(), [](Place a, Place b) {
    return std::pair(a.layer, a.block) < std::pair(b.layer, b.block);
  });
  return lacking > 0 ? std::vector<Place>() : leaving;
}

/// Writes a run of neighbours that has changed, and gives its memory back.
void PageTiers::demote(std::span<const Place> run) {
  const int64_t bytes = block_bytes(run[0].layer);
  const bool is_changed = at(run[0]).is_changed;
  for (const bool values : {false, true}) {
    if (is_changed) {
      file_->write(offset(run[0], values), memory(run[0], values, run.size()));
    }
  }
  for (const Place place : run) {
    Block& block = at(place);
    if (is_changed) {
      block.checksum = checksum(place);
      block.is_changed = false;
      block.is_on_disk = true;
      counts_.written_bytes += bytes;
    }
    block.in_memory = false;
    counts_.memory_bytes -= bytes;
    counts_.disk_bytes += block.is_on_disk ? bytes : 0;
    ++counts_.demotions;
  }
  for (const bool values : {false, true}) {
    const std::span<std::byte> all = memory(run[0], values, run.size());
    SPECDEC_CHECK(::madvise(all.data(), all.size(), MADV_DONTNEED) == 0,
                  "the memory of {} blocks of layer {} cannot be given back", run.size(),
                  run[0].layer);
  }
}

/// Reads blocks, run by run; `count`: how many were, should it throw.
void PageTiers::read_all(std::span<const Place> places, size_t& count) {
  count = 0;
  while (count < places.size()) {
    const size_t length = run_length(places.subspan(count));
    read(places.subspan(count, length));
    count += length;
  }
}

void PageTiers::read(std::span<const Place> run) {
  for (const bool values : {false, true}) {
    file_->read(offset(run[0], values), memory(run[0], values, run.size()));
  }
  for (const Place place : run) {
    if (checksum(place) != at(place).checksum) {
      throw Error(fmt::format(
          "pages {} to {} of layer {} in the cache's file are damaged: their checksum is not that "
          "of their bytes. Check the disk, or name another folder with the cache's disk.",
          place.block * per_block_, (place.block + 1) * per_block_ - 1, place.layer));
    }
  }
}

/// The block's bytes are in memory from now on.
void PageTiers::enter(Place place) {
  Block& block = at(place);
  const int64_t bytes = block_bytes(place.layer);
  block.in_memory = true;
  if (block.is_on_disk) {
    ++counts_.promotions;
    counts_.read_bytes += bytes;
    counts_.disk_bytes -= bytes;
  }
  counts_.memory_bytes += bytes;
  counts_.peak_memory_bytes = std::max(counts_.peak_memory_bytes, counts_.memory_bytes);
}

/// Waits for the reader. What it could not read is read once more when it is brought.
void PageTiers::finish_reads() {
  std::unique_lock lock(mutex_);
  if (job_.empty()) {
    return;
  }
  const WaitMeter meter(counts_.wait_seconds);
  changed_.wait(lock, [this] { return !is_reading_; });
  for (const Place place : std::span(job_).first(read_count_)) {
    enter(place);
  }
  job_.clear();
}

KvTiers PageTiers::statistics() {
  finish_reads();
  return counts_;
}

void PageTiers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || is_reading_; });
    if (stops_) {
      return;
    }
    lock.unlock();
    size_t count = 0;
    try {
      read_all(job_, count);
    } catch (const std::exception&) {
      // The forward that needs the block reads it again, and says what is wrong.
    }
    lock.lock();
    read_count_ = count;
    is_reading_ = false;
    changed_.notify_all();
  }
}

}  // namespace specdec
