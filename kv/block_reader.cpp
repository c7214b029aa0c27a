#include "kv/block_reader.h"

#include <exception>
#include <utility>

namespace specdec {

size_t run_length(const BlockMemory& memory, std::span<const BlockPlace> places) {
  size_t length = 1;
  while (memory.moves_runs() && length < places.size() && places[length].layer == places[0].layer &&
         places[length].block == places[length - 1].block + 1) {
    ++length;
  }
  return length;
}

void read_blocks(BlockMemory& memory, std::span<const BlockPlace> places, size_t& count) {
  count = 0;
  while (count < places.size()) {
    const size_t length = run_length(memory, places.subspan(count));
    memory.load(places.subspan(count, length));
    count += length;
  }
}

BlockReader::BlockReader(BlockMemory& memory) : memory_(memory), thread_([this] { run(); }) {}

BlockReader::~BlockReader() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BlockReader::begin(std::vector<BlockPlace> places) {
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(places);
    read_count_ = 0;
    is_reading_ = true;
  }
  changed_.notify_all();
}

std::vector<BlockPlace> BlockReader::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_reading_; });
  std::vector<BlockPlace> read = std::exchange(job_, {});
  read.resize(read_count_);
  read_count_ = 0;
  return read;
}

void BlockReader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || is_reading_; });
    if (stops_) {
      return;
    }
    lock.unlock();
    size_t count = 0;
    try {
      read_blocks(memory_, job_, count);
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
