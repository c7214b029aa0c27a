#pragma once
#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "core/kernels/copy_queue.h"
#include "kv/block_memory.h"

namespace specdec {

/// Blocks in slots of one piece of a device's memory, all of equally many bytes. What leaves it
/// goes to buffers in the host's pinned memory, and from there to a file where they are needed for
/// other blocks: first those of blocks that the device holds again, then those that were filled
/// longest ago. What comes back from the file passes through a buffer too.
/// Slots are written and read by ops and by the queue, in the order that begin_moves() and
/// end_moves() make; the host touches a buffer once the copies from and to it are done.
class DeviceBlocks final : public BlockMemory {
 public:
  /// `pages` have blocks of equally many bytes, which fill pages.memory_bytes; `file` holds
  /// pages.file_bytes(). Throws Error where the device or the host lacks the memory.
  DeviceBlocks(const TieredPages& pages, std::unique_ptr<PageFile> file,
               std::shared_ptr<CopyQueue> queue, int64_t host_bytes);
  /// Waits for the copies.
  ~DeviceBlocks() override;

  /// The host's pinned memory that it takes.
  static int64_t pinned_bytes(const TieredPages& pages, int64_t host_bytes);

  /// Holders keep the slots alive.
  const std::shared_ptr<std::byte>& memory() const { return slots_memory_; }
  /// Where the keys of a slot lie, or the values: those of all slots one after another, each block
  /// with its pages, which number() counts.
  std::byte* slot(int64_t number, bool values) const;
  int64_t slots() const { return slots_; }

  const TieredPages& pages() const override { return file_.pages(); }
  bool moves_runs() const override { return false; }
  void begin_moves() override { queue_->wait_for_ops(); }
  void end_moves() override;
  void make(BlockPlace place) override;
  void load(std::span<const BlockPlace> run) override;
  void leave(std::span<const BlockPlace> run, bool is_changed) override;
  bool is_on_host(BlockPlace place) const override;
  int64_t number(int64_t layer, int64_t page) const override;
  void add_counts(KvTiers& counts) const override;

 private:
  static constexpr int64_t kNone = -1;

  struct Block {
    int64_t slot = kNone;
    int64_t buffer = kNone;
    bool is_on_disk = false;  ///< as it is elsewhere, but for changes in its slot
  };
  /// What a buffer holds: nothing, or bytes of a block that the device holds too, or does not. The
  /// first is taken first.
  enum class Use { kEmpty, kCopy, kOnlyCopy };
  struct Buffer {
    BlockPlace place = {kNone, kNone};
    Use use = Use::kEmpty;
    int64_t since = 0;     ///< when that began
    int64_t mark = kNone;  ///< the copies from and to it lie before it
  };

  Block& at(BlockPlace place);
  std::span<std::byte> buffer(int64_t number, bool values) const;
  void copy(Block& block, bool to_slot);
  void wait(int64_t mark);
  void set_use(int64_t number, Use use);
  int64_t take_buffer();
  void fill_buffer(int64_t number, BlockPlace place);

  BlockFile file_;
  std::shared_ptr<CopyQueue> queue_;
  int64_t half_bytes_;
  int64_t slots_;
  std::shared_ptr<std::byte> slots_memory_;
  std::shared_ptr<std::byte> buffers_memory_;
  std::vector<std::vector<Block>> blocks_;  ///< [layers][blocks]
  std::vector<int64_t> free_slots_;
  std::vector<Buffer> buffers_;
  std::set<std::tuple<Use, int64_t, int64_t>> order_;  ///< use, since when, buffer
  int64_t only_copies_ = 0;
  int64_t uses_ = 0;                                   ///< so far
  int64_t last_moves_ = kNone, moves_before_ = kNone;  ///< marks behind them
};

}  // namespace specdec
