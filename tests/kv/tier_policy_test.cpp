// What leaves memory first.
#include "kv/tier_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/kv/paged_layers.h"

namespace specdec {
namespace {

/// A researcher's policy: the first layers stay.
class FirstLayersStay final : public TierPolicy {
  bool leaves_before(const BlockUse& a, const BlockUse& b) const override {
    return a.layer > b.layer;
  }
};

class OwnPolicyTest : public PageTiersTest {
 protected:
  OwnPolicyTest() : PageTiersTest(std::make_shared<FirstLayersStay>()) {}
};

TEST_F(OwnPolicyTest, SaysWhatLeaves) {
  fill();
  EXPECT_EQ(pages_in_memory(0), kPages);
  EXPECT_EQ(pages_in_memory(2), 4) << "two blocks have room beside them";
  for (int64_t page = 0; page < kPages; ++page) {
    tiers_.begin_forward({});
    bring_and_check(0, page);
    bring_and_check(2, page);
  }
  EXPECT_EQ(pages_in_memory(0), kPages);
}

/// A policy that notes what it is asked about.
class NotedUses final : public TierPolicy {
 public:
  bool leaves_before(const BlockUse& a, const BlockUse& b) const override {
    fewest_forwards_ago_ = std::min({fewest_forwards_ago_, a.forwards_ago, b.forwards_ago});
    return a.forwards_ago > b.forwards_ago;
  }
  int64_t fewest_forwards_ago() const { return fewest_forwards_ago_; }

 private:
  mutable int64_t fewest_forwards_ago_ = 99;
};

class NotedUsesTest : public PageTiersTest {
 protected:
  NotedUsesTest() : NotedUsesTest(std::make_shared<NotedUses>()) {}
  explicit NotedUsesTest(std::shared_ptr<NotedUses> policy)
      : PageTiersTest(policy), policy_(std::move(policy)) {}
  std::shared_ptr<NotedUses> policy_;
};

TEST_F(NotedUsesTest, AnUndoneForwardUsedNothingInTheFuture) {
  fill();
  tiers_.begin_forward({});
  bring_and_check(2, 1);
  tiers_.undo_forward();  // after it has used something
  bring_and_check(2, 3);
  EXPECT_EQ(policy_->fewest_forwards_ago(), 0);
}

class FrequencyPolicyTest : public PageTiersTest {
 protected:
  FrequencyPolicyTest() : PageTiersTest(least_frequently_used()) {}
};

/// The first pages are used most, and before all others.
TEST_F(FrequencyPolicyTest, KeepsWhatIsUsedOften) {
  for (int32_t use = 1; use < 5; ++use) {
    tiers_.begin_forward({});
    bring_and_write(0, 0, use);
    bring_and_write(2, 0, use);
  }
  EXPECT_EQ(tiers_.state(2, 0)->access_count, 4);
  for (int64_t page = 2; page < kPages; ++page) {
    tiers_.begin_forward({});
    bring_and_write(0, page, static_cast<int32_t>(100 + page));
    bring_and_write(2, page, static_cast<int32_t>(200 + page));
  }
  EXPECT_EQ(tiers_.state(0, 0)->tier, KvTier::kMemory);
  EXPECT_EQ(tiers_.state(2, 0)->tier, KvTier::kMemory);
}

}  // namespace
}  // namespace specdec
