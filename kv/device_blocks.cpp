#include "kv/device_blocks.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// Buffers that are always there, so that the disk reads into one while others are copied.
constexpr int64_t kFewestBuffers = 8;

int64_t bytes_of_halves(const TieredPages& pages) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < pages.layers(); ++layer) {
    bytes = std::max(bytes, pages.half_bytes(layer));
  }
  return bytes;
}

}  // namespace

DeviceBlocks::DeviceBlocks(const TieredPages& pages, std::unique_ptr<PageFile> file,
                           std::shared_ptr<CopyQueue> queue, int64_t host_bytes)
    : file_(pages, std::move(file)),
      queue_(std::move(queue)),
      half_bytes_(bytes_of_halves(pages)),
      slots_(pages.memory_bytes / (2 * half_bytes_)),
      slots_memory_(queue_->on_device(std::max<int64_t>(1, slots_) * 2 * half_bytes_)),
      blocks_(static_cast<size_t>(pages.layers())),
      buffers_(static_cast<size_t>(pinned_bytes(pages, host_bytes) / (2 * half_bytes_))) {
  buffers_memory_ = queue_->pinned(std::ssize(buffers_) * 2 * half_bytes_);
  for (int64_t slot = slots_ - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
  for (int64_t buffer = 0; buffer < std::ssize(buffers_); ++buffer) {
    order_.insert({Use::kEmpty, 0, buffer});
  }
}

int64_t DeviceBlocks::pinned_bytes(const TieredPages& pages, int64_t host_bytes) {
  const int64_t block = 2 * bytes_of_halves(pages);
  return block * std::max(kFewestBuffers, std::min(host_bytes, pages.file_bytes()) / block);
}

DeviceBlocks::~DeviceBlocks() {
  try {
    queue_->wait(queue_->mark());
  } catch (const std::exception&) {
    // A device that fails copies nothing any more.
  }
}

DeviceBlocks::Block& DeviceBlocks::at(BlockPlace place) {
  auto& blocks = blocks_[static_cast<size_t>(place.layer)];
  if (std::ssize(blocks) <= place.block) {
    blocks.resize(static_cast<size_t>(place.block) + 1);
  }
  return blocks[static_cast<size_t>(place.block)];
}

std::byte* DeviceBlocks::slot(int64_t number, bool values) const {
  return slots_memory_.get() + (number + (values ? slots_ : 0)) * half_bytes_;
}

std::span<std::byte> DeviceBlocks::buffer(int64_t number, bool values) const {
  return {buffers_memory_.get() + (2 * number + (values ? 1 : 0)) * half_bytes_,
          static_cast<size_t>(half_bytes_)};
}

bool DeviceBlocks::is_on_host(BlockPlace place) const {
  const auto& blocks = blocks_[static_cast<size_t>(place.layer)];
  return place.block < std::ssize(blocks) &&
         blocks[static_cast<size_t>(place.block)].buffer != kNone;
}

int64_t DeviceBlocks::number(int64_t layer, int64_t page) const {
  const auto& blocks = blocks_[static_cast<size_t>(layer)];
  const int64_t block = pages().block_of(layer, page);
  const int64_t slot = block < std::ssize(blocks) ? blocks[static_cast<size_t>(block)].slot : kNone;
  const int64_t of_block = pages().pages_per_block[static_cast<size_t>(layer)];
  return slot == kNone ? kNone : slot * of_block + page % of_block;
}

void DeviceBlocks::wait(int64_t mark) {
  if (mark != kNone) {
    queue_->wait(mark);
  }
}

/// The host runs ahead of the copies by two moves at most, each of a layer's blocks or of those
/// that leave room for new ones: so few copies wait at a time.
void DeviceBlocks::end_moves() {
  queue_->let_ops_wait();
  wait(moves_before_);
  moves_before_ = last_moves_;
  last_moves_ = queue_->mark();
}

/// Copies a block between its slot and its buffer, beside what the host does.
void DeviceBlocks::copy(Block& block, bool to_slot) {
  for (const bool values : {false, true}) {
    std::byte* device = slot(block.slot, values);
    std::byte* host = buffer(block.buffer, values).data();
    queue_->copy(to_slot ? device : host, to_slot ? host : device, half_bytes_);
  }
  buffers_[static_cast<size_t>(block.buffer)].mark = queue_->mark();
}

void DeviceBlocks::set_use(int64_t number, Use use) {
  Buffer& changed = buffers_[static_cast<size_t>(number)];
  order_.erase({changed.use, changed.since, number});
  only_copies_ += (use == Use::kOnlyCopy ? 1 : 0) - (changed.use == Use::kOnlyCopy ? 1 : 0);
  changed.use = use;
  changed.since = ++uses_;
  order_.insert({use, changed.since, number});
}

/// A buffer that holds no block any more; the only copy of one goes to the disk before. The host
/// may touch it once its copies are done.
int64_t DeviceBlocks::take_buffer() {
  const int64_t taken = std::get<2>(*order_.begin());
  const Buffer& old = buffers_[static_cast<size_t>(taken)];
  if (old.use == Use::kEmpty) {
    return taken;
  }
  Block& block = at(old.place);
  if (old.use == Use::kOnlyCopy && !block.is_on_disk) {
    wait(old.mark);
    file_.write({&old.place, 1}, buffer(taken, false), buffer(taken, true));
    block.is_on_disk = true;
  }
  block.buffer = kNone;
  set_use(taken, Use::kEmpty);
  return taken;
}

void DeviceBlocks::fill_buffer(int64_t number, BlockPlace place) {
  buffers_[static_cast<size_t>(number)].place = place;
  at(place).buffer = number;
  set_use(number, Use::kCopy);
}

void DeviceBlocks::make(BlockPlace place) {
  SPECDEC_CHECK(!free_slots_.empty(), "no slot of {} is free", slots_);
  at(place).slot = free_slots_.back();
  free_slots_.pop_back();
}

void DeviceBlocks::load(std::span<const BlockPlace> run) {
  Block& block = at(run[0]);
  if (block.buffer == kNone) {
    const int64_t taken = take_buffer();
    wait(buffers_[static_cast<size_t>(taken)].mark);
    file_.read(run, buffer(taken, false), buffer(taken, true));
    fill_buffer(taken, run[0]);
  }
  make(run[0]);
  try {
    copy(block, true);
  } catch (...) {
    free_slots_.push_back(std::exchange(block.slot, kNone));
    throw;
  }
  set_use(block.buffer, Use::kCopy);
}

/// A buffer that holds a changed block's bytes of before counts for nothing meanwhile: a block that
/// the device holds is as it is there.
void DeviceBlocks::leave(std::span<const BlockPlace> run, bool is_changed) {
  Block& block = at(run[0]);
  if (is_changed || (block.buffer == kNone && !block.is_on_disk)) {
    block.is_on_disk = false;
    if (block.buffer == kNone) {
      fill_buffer(take_buffer(), run[0]);
    }
    copy(block, false);
  }
  if (block.buffer != kNone) {
    set_use(block.buffer, Use::kOnlyCopy);
  }
  free_slots_.push_back(std::exchange(block.slot, kNone));
}

void DeviceBlocks::add_counts(KvTiers& counts) const {
  counts.read_bytes = file_.read_bytes();
  counts.written_bytes = file_.written_bytes();
  counts.host_bytes = only_copies_ * 2 * half_bytes_;
  counts.disk_bytes -= counts.host_bytes;
}

}  // namespace specdec
