#pragma once
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Where a page lies: in the memory that attention reads (a GPU's where it computes), in the host's
/// beside a GPU, or on disk.
enum class KvTier { kMemory, kHost, kDisk };

/// The keys and values of a row's page in one layer.
struct PlacedPage {
  int64_t layer = 0;     ///< one that has keys and values of its own
  int64_t position = 0;  ///< of the page's first token
  int64_t bytes = 0;
  KvTier tier = KvTier::kMemory;
  /// Forwards and copies that have used its block: some neighbouring pages, which move together.
  int64_t access_count = 0;
};

/// Bytes of pages in each tier.
struct TierBytes {
  int64_t memory = 0;
  int64_t host = 0;
  int64_t disk = 0;
};

/// Where the pages of rows lie in a store that keeps some of them elsewhere than in memory
/// (KvStore::row_tiers), and moves of a whole row's, for programs that hold many rows and know
/// which comes next. Forwards bring what they read all the same, so no call changes any bit of
/// their results. To be called between forwards by the thread that runs them; KvViews of before
/// mean nothing afterwards. Throws InternalError for a row that is not open.
class RowTiers {
 public:
  virtual ~RowTiers() = default;
  RowTiers() = default;
  RowTiers(const RowTiers&) = delete;
  RowTiers& operator=(const RowTiers&) = delete;

  /// The row's written pages by layer, then position. Waits for what prefetch_async() reads.
  virtual std::vector<PlacedPage> pages(RowId row) = 0;
  /// The sums of pages().
  TierBytes bytes(RowId row);

  /// The row is idle: its pages leave memory, but those in a block with pages of the newest
  /// forward's other rows, and those of draft trees that wait for a commit. Returns the bytes that
  /// became free. Throws Error where the disk fails; nothing is lost then.
  virtual int64_t demote(RowId row) = 0;
  /// The pages that the row's next forward reads come back, the first layers' first, as far as
  /// memory is free: nothing leaves for them. Until two more forwards have begun they are not idle.
  /// Returns the bytes that came. Throws Error where the disk fails or a block is damaged; the
  /// others have come then.
  virtual int64_t promote(RowId row) = 0;
  /// Begins to read in the background what the row's next forward needs first: the pages of the
  /// first layer. Other pages make room as they do for a forward. A disk that fails is an error of
  /// that forward.
  virtual void prefetch_async(RowId row) = 0;
  /// Pages that neither of the two newest forwards has used leave memory until the share is free
  /// that the store was told to keep free, or none is left. After each commit the store does the
  /// same. Returns the bytes that became free. Throws as demote().
  virtual int64_t manage_tiers() = 0;
};

}  // namespace specdec
