#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_tiers.h"
#include "core/row_tiers.h"
#include "kv/block_memory.h"
#include "kv/block_reader.h"
#include "kv/tier_policy.h"

namespace specdec {

/// A page of a layer that is about to be read, and written too or not.
struct PageUse {
  int64_t page;
  bool is_written = false;
};

/// What a layer is about to read and write.
struct LayerUses {
  int64_t layer;
  std::vector<PageUse> uses;
};

/// Which pages of a cache lie in memory, where attention reads them, and which elsewhere. Blocks of
/// neighbouring pages of a layer move together; a BlockMemory moves them.
///
/// Forwards use layers in turn and every page of their rows in each, and a TierPolicy says what
/// makes room. By least_recently_used() a share of the layers stays, and the others pass through
/// the rest of the memory, read ahead by a thread. Blocks that were not changed since they came are
/// not written again.
class PageTiers {
 public:
  /// `policy`: nullptr = least_recently_used().
  explicit PageTiers(std::unique_ptr<BlockMemory> memory,
                     std::shared_ptr<const TierPolicy> policy = nullptr);
  PageTiers(const PageTiers&) = delete;
  PageTiers& operator=(const PageTiers&) = delete;

  /// Another forward begins, which counts as a use; until the next one these pages stay in memory,
  /// in every layer, once they are brought: those of pending nodes.
  void begin_forward(std::vector<int64_t> pinned);
  /// Forgets that the newest forward began: what it used counts as used by the next one.
  void undo_forward() { --forward_; }
  /// Brings a page in every layer, and pins it until the next begin_forward() or end_holds().
  void hold(int64_t page);
  void end_holds() { held_.clear(); }
  /// Brings pages of a layer into memory. They stay until the next call. Throws Error where the
  /// memory does not hold them beside what is pinned, or the disk fails; all pages keep their
  /// numbers then.
  void bring(int64_t layer, std::span<const PageUse> uses);
  /// Whether all of several layers' pages are in memory together, where they stay until the next
  /// call; makes room for new ones. False where one has left, which bring() reads, or where the
  /// memory does not hold them: then none has left or come, but what was being read ahead.
  bool make_resident(std::span<const LayerUses> layers);
  /// Begins to read pages of another layer that will be brought next, where there is room beside
  /// those that the newest bring() named.
  void read_ahead(int64_t layer, std::span<const PageUse> uses);

  /// The number that attention finds a page under which the newest bring() or make_resident() was
  /// asked for; -1 where it is known to lie elsewhere. Until the next read_ahead().
  int64_t number(int64_t layer, int64_t page) const { return memory_->number(layer, page); }

  /// Moves blocks with these pages out of memory, but those with one of `kept`. Returns the bytes
  /// that became free. Like the functions below it is called between forwards; see RowTiers for
  /// what they throw.
  int64_t demote(std::span<const int64_t> pages, std::span<const int64_t> kept);
  /// Brings blocks of a layer that there is free memory for. Returns the bytes that came.
  int64_t promote(int64_t layer, std::span<const PageUse> uses);
  void prefetch(int64_t layer, std::span<const PageUse> uses);
  /// Moves idle blocks out of memory until so many bytes are free. Returns the bytes that became
  /// free.
  int64_t keep_free(int64_t bytes);
  struct PageState {
    KvTier tier;
    int64_t access_count;
  };
  /// State of a page in a layer; nullopt where it has never been in memory.
  std::optional<PageState> state(int64_t layer, int64_t page);

  const TieredPages& pages() const { return pages_; }
  KvTiers statistics();

 private:
  using Place = BlockPlace;
  struct Block {
    bool in_memory = false;
    bool is_changed = false;  ///< since it came into memory
    bool is_kept = false;     ///< elsewhere, where it does not lie in memory
    bool is_needed = false;   ///< by the newest bring() or make_resident(), or being read
    int64_t last_use = -1;    ///< forward
    int64_t access_count = 0;
  };
  struct Candidate {
    BlockUse use;
    Place place;
  };

  Block& at(Place place) {
    return blocks_[static_cast<size_t>(place.layer)][static_cast<size_t>(place.block)];
  }
  int64_t block_bytes(int64_t layer) const { return pages_.block_bytes(layer); }
  bool is_pinned(Place place) const;
  std::vector<Place> missing(int64_t layer, std::span<const PageUse> uses);
  bool make_room(int64_t bytes, int64_t layer);
  bool admit(std::span<const Place> places, int64_t layer);
  void note_access(int64_t layer, std::span<const PageUse> uses);
  std::vector<Candidate> candidates(int64_t layer);
  std::vector<Place> first_to_leave(std::vector<Candidate> candidates, int64_t bytes) const;
  int64_t leave_all(std::span<const Place> places);
  void leave(std::span<const Place> run);
  size_t like_run(std::span<const Place> places);
  void fetch(std::span<const Place> places);
  void enter_all(std::span<const Place> places);
  void forget_needs();
  void note_use(int64_t layer, std::span<const PageUse> uses);
  void finish_reads();

  const std::unique_ptr<BlockMemory> memory_;
  const TieredPages& pages_;
  const std::shared_ptr<const TierPolicy> policy_;
  std::vector<std::vector<Block>> blocks_;  ///< [layers][blocks], all in memory or not
  std::vector<Place> needed_;               ///< whose is_needed is set
  std::vector<int64_t> pinned_;             ///< pages, ascending
  std::vector<int64_t> held_;               ///< pages pinned by hold()
  int64_t forward_ = 0;
  KvTiers counts_;
  BlockReader reader_;  // of memory_, which lives longer
};

}  // namespace specdec
