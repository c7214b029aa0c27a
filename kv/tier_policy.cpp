#include "kv/tier_policy.h"

#include <tuple>

namespace specdec {
namespace {

/// An order by what is idle, then of these by a rank, the highest first, and of the others by
/// turns.
class IdleFirst : public TierPolicy {
 public:
  bool leaves_before(const BlockUse& a, const BlockUse& b) const final { return key(a) > key(b); }

 private:
  virtual int64_t idle_rank(const BlockUse& block) const = 0;
  std::tuple<bool, int64_t> key(const BlockUse& block) const {
    return {block.is_idle(), block.is_idle() ? idle_rank(block) : block.turns};
  }
};

class LeastRecentlyUsed final : public IdleFirst {
  int64_t idle_rank(const BlockUse& block) const override { return block.forwards_ago; }
};

class LeastFrequentlyUsed final : public IdleFirst {
  int64_t idle_rank(const BlockUse& block) const override { return -block.access_count; }
};

}  // namespace

std::shared_ptr<const TierPolicy> least_recently_used() {
  return std::make_shared<LeastRecentlyUsed>();
}

std::shared_ptr<const TierPolicy> least_frequently_used() {
  return std::make_shared<LeastFrequentlyUsed>();
}

}  // namespace specdec
