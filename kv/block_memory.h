#pragma once
#include <cstdint>
#include <span>

#include "core/kv_tiers.h"
#include "kv/block_file.h"

namespace specdec {

/// Where blocks of pages lie while attention reads them, and where they go from there: PageTiers
/// says which are in memory. Used by one thread at a time.
class BlockMemory {
 public:
  virtual ~BlockMemory() = default;
  BlockMemory() = default;
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  virtual const TieredPages& pages() const = 0;
  /// Whether neighbours move faster together; else each run is one block.
  virtual bool moves_runs() const = 0;

  /// Blocks are going to move: what ops do that were called before comes first. Of the thread that
  /// calls ops.
  virtual void begin_moves() {}
  /// Ops that are called from now on find the blocks that have moved so far. Likewise.
  virtual void end_moves() {}

  /// Gives a block memory that never left it, or only unchanged.
  virtual void make(BlockPlace place) = 0;
  /// Brings a run back that has left. Throws Error where the disk fails or holds something else;
  /// then none of it is in memory, and nothing is lost.
  virtual void load(std::span<const BlockPlace> run) = 0;
  /// Gives the memory of a run back, once what is_changed (since it came) is kept elsewhere. Throws
  /// Error where the disk fails; then all of it is in memory.
  virtual void leave(std::span<const BlockPlace> run, bool is_changed) = 0;

  /// Whether a block that has left lies in the host's memory, not on disk.
  virtual bool is_on_host(BlockPlace /*place*/) const { return false; }
  /// The number that attention finds a page of a layer under; -1 where it is not in memory and that
  /// is known.
  virtual int64_t number(int64_t layer, int64_t page) const = 0;
  /// Adds what only it knows, beside disk_bytes, which are given as those of all blocks that have
  /// left.
  virtual void add_counts(KvTiers& counts) const = 0;
};

}  // namespace specdec
