#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kv/block_memory.h"

namespace specdec {

/// How many of the first places are neighbours, one after another, where such runs move faster
/// together; else 1.
size_t run_length(const BlockMemory& memory, std::span<const BlockPlace> places);

/// Reads blocks that have left memory, run by run. `count`: how many were, should it throw.
void read_blocks(BlockMemory& memory, std::span<const BlockPlace> places, size_t& count);

/// Reads blocks in the background, by a thread of its own: until finish() it uses the memory alone.
class BlockReader {
 public:
  /// `memory` outlives it.
  explicit BlockReader(BlockMemory& memory);
  /// Waits for a read that has begun.
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// Begins to read blocks, after the finish() of those before.
  void begin(std::vector<BlockPlace> places);
  /// The blocks that it has begun to read since the newest finish().
  std::span<const BlockPlace> reading() const { return job_; }
  /// Waits. Returns the blocks that were read, the first ones: a disk that fails ends the reading,
  /// and is no error here.
  std::vector<BlockPlace> finish();

 private:
  void run();

  BlockMemory& memory_;
  std::mutex mutex_;                 // of what follows
  std::condition_variable changed_;  // for both threads
  std::vector<BlockPlace> job_;      // that the thread reads; the others leave them alone
  size_t read_count_ = 0;            // of these
  bool is_reading_ = false;
  bool stops_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace specdec
