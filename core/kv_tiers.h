#pragma once
#include <cstdint>

namespace specdec {

/// Where the pages of a store lie that keeps some of them on disk, and what moving them took. A
/// block is some neighbouring pages of a layer, which move together. Memory is that of the device
/// that computes.
struct KvTiers {
  int64_t memory_bytes = 0;       ///< of the blocks in memory
  int64_t peak_memory_bytes = 0;  ///< the most that they were
  int64_t host_bytes = 0;         ///< of a GPU's blocks that lie in the host's memory alone
  int64_t disk_bytes = 0;         ///< of the blocks that lie on disk alone
  int64_t accesses = 0;           ///< of blocks: by the attention of a layer, and by copies
  int64_t promotions = 0;         ///< blocks that came back into memory
  int64_t demotions = 0;          ///< blocks whose memory was given back
  int64_t read_bytes = 0;         ///< from disk
  int64_t written_bytes = 0;      ///< to disk
  double wait_seconds = 0.0;      ///< for blocks that came or left
};

}  // namespace specdec
