#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/kv_tiers.h"
#include "kv/page_file.h"

namespace specdec {

/// A page of a layer that is about to be read, and written too or not.
struct PageUse {
  int64_t page;
  bool is_written = false;
};

/// What a PageTiers moves.
struct TieredPages {
  /// Bytes of a page of each layer's keys, and of its values; 0 = the layer has none of its own.
  std::vector<int64_t> page_bytes;
  int64_t capacity = 0;      ///< page numbers, a multiple of pages_per_block()
  int64_t memory_bytes = 0;  ///< most bytes in memory
};

/// Which pages of a cache lie in memory, where attention reads them, and which in a file. They have
/// fixed addresses; those in the file take no memory there. Blocks of neighbouring pages move
/// together: a block of one layer is as small as the system's pages of memory allow.
///
/// Forwards use layers in turn and every page of their rows in each, so what makes room is, first,
/// what neither this forward nor the last one used (idle rows, snapshots), longest unused first;
/// then the layers whose turn is farthest away. So a share of the layers stays, and the others
/// pass through the rest of the memory, read ahead by a thread. Blocks that were not changed since
/// they were read are not written again, and neighbours are read and written together. A block is
/// compared with its checksum when it is read.
class PageTiers {
 public:
  /// `file` holds file_bytes(pages) bytes.
  PageTiers(TieredPages pages, std::unique_ptr<PageFile> file);
  /// Waits for a read that has begun.
  ~PageTiers();
  PageTiers(const PageTiers&) = delete;
  PageTiers& operator=(const PageTiers&) = delete;

  static int64_t pages_per_block(std::span<const int64_t> page_bytes);
  static int64_t file_bytes(const TieredPages& pages);

  /// Where page 0 of a layer lies; for each layer with pages, before they are used.
  void place(int64_t layer, std::byte* keys, std::byte* values);
  /// Another forward begins, which counts as a use; until the next one these pages stay in memory,
  /// in every layer, once they are brought: those of pending nodes.
  void begin_forward(std::vector<int64_t> pinned);
  /// Brings a page in every layer, and pins it until the next begin_forward() or end_holds().
  void hold(int64_t page);
  void end_holds() { held_.clear(); }
  /// Brings pages of a layer into memory. They stay until the next call. Throws Error where the
  /// memory does not hold them beside what is pinned, or the disk fails; all pages keep their
  /// numbers then.
  void bring(int64_t layer, std::span<const PageUse> uses);
  /// Begins to read pages of another layer that will be brought next, where there is room beside
  /// those that the newest bring() named.
  void read_ahead(int64_t layer, std::span<const PageUse> uses);

  KvTiers statistics();

 private:
  struct Block {
    bool in_memory = false;
    bool is_changed = false;  ///< since it was last read or written
    bool is_on_disk = false;  ///< was written there
    bool is_needed = false;   ///< by the newest bring(), or being read
    int64_t last_use = -1;    ///< forward
    uint64_t checksum = 0;    ///< of what lies on disk
  };
  struct Place {
    int64_t layer;
    int64_t block;
  };

  Block& at(Place place) {
    return blocks_[static_cast<size_t>(place.layer)][static_cast<size_t>(place.block)];
  }
  int64_t half_bytes(int64_t layer) const;
  int64_t block_bytes(int64_t layer) const { return 2 * half_bytes(layer); }
  std::span<std::byte> memory(Place place, bool values, size_t count = 1) const;
  int64_t offset(Place place, bool values) const;
  uint64_t checksum(Place place) const;
  bool is_pinned(int64_t block) const;
  std::vector<Place> missing(int64_t layer, std::span<const PageUse> uses);
  int64_t bytes_of(std::span<const Place> places) const;
  bool make_room(int64_t bytes, int64_t layer);
  std::vector<Place> victims(int64_t lacking, int64_t layer);
  void demote(std::span<const Place> run);
  void read(std::span<const Place> run);
  void read_all(std::span<const Place> places, size_t& count);
  size_t run_length(std::span<const Place> places);
  void enter(Place place);
  void forget_needs();
  void finish_reads();
  void run();

  const TieredPages pages_;
  const int64_t per_block_;
  const std::unique_ptr<PageFile> file_;
  std::vector<int64_t> file_begins_;  ///< [layers]
  std::vector<std::byte*> keys_, values_;
  std::vector<std::vector<Block>> blocks_;  ///< [layers][blocks], all in memory or not
  std::vector<Place> needed_;               ///< whose is_needed is set
  std::vector<int64_t> pinned_;             ///< blocks, ascending
  std::vector<int64_t> held_;               ///< blocks pinned by hold()
  int64_t forward_ = 0;
  KvTiers counts_;

  std::mutex mutex_;                 // of what follows
  std::condition_variable changed_;  // for both threads
  std::vector<Place> job_;           // that the reader reads; the model's thread leaves them alone
  size_t read_count_ = 0;            // of these
  bool is_reading_ = false;
  bool stops_ = false;
  std::thread reader_;  // the last member: it uses the others
};

}  // namespace specdec
