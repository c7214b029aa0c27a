#pragma once
#include <cstdint>
#include <memory>

namespace specdec {

/// What is known of a block that lies in memory: some neighbouring pages of a layer, which move
/// together.
struct BlockUse {
  int64_t layer = 0;
  int64_t forwards_ago = 0;  ///< its last use: 0 = by the newest forward, which may be under way
  int64_t access_count = 0;  ///< forwards and copies that have used it
  int64_t turns = 0;         ///< layers until a forward reaches its own

  /// Whether neither of the two newest forwards has used the block: its rows wait.
  bool is_idle() const { return forwards_ago > 1; }
};

/// Which blocks leave memory first where a forward needs room, or some is to be kept free. What the
/// forward needs at the moment is never asked about, so no order changes its results. Called by the
/// threads of several caches.
class TierPolicy {
 public:
  virtual ~TierPolicy() = default;
  TierPolicy() = default;
  TierPolicy(const TierPolicy&) = delete;
  TierPolicy& operator=(const TierPolicy&) = delete;

  /// Whether `a` leaves before `b`: a strict weak order. Of blocks that neither leaves before the
  /// other, that of the later layer and pages goes.
  virtual bool leaves_before(const BlockUse& a, const BlockUse& b) const = 0;
};

/// Idle blocks first, longest unused first; then those of the layers whose turn is farthest away,
/// since forwards use layers in turn and every page of their rows in each.
std::shared_ptr<const TierPolicy> least_recently_used();
/// The order of least_recently_used, but of idle blocks those first that fewest forwards have used:
/// what many rows share, such as the beginning of their prompts, stays.
std::shared_ptr<const TierPolicy> least_frequently_used();

}  // namespace specdec
