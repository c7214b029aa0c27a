#include "core/transformer/extended_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/error.h"
#include "kv/forwarding_store.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

constexpr int64_t kOldNodes = 2;
constexpr int64_t kNewNodes = 3;

/// A small cache that counts how often it is undone.
class UndoCountingStore final : public ForwardingStore {
 public:
  UndoCountingStore()
      : ForwardingStore(paged_kv()({{.kv_heads = 1, .head_dim = 4}}, {.max_length = 8})) {}
  void undo_extend() override {
    ++undone;
    ForwardingStore::undo_extend();
  }

  int undone = 0;
};

/// A store with pending nodes, which an undo has to leave.
class ExtendedStoreTest : public testing::Test {
 protected:
  void SetUp() override { store_.extend({.count = kOldNodes}); }

  void expect_kept() {
    EXPECT_EQ(store_.undone, 0);
    EXPECT_EQ(store_.pending(0), kOldNodes + kNewNodes);
  }
  void expect_undone() {
    EXPECT_EQ(store_.undone, 1);
    EXPECT_EQ(store_.pending(0), kOldNodes);
    store_.extend({.count = kNewNodes});
    EXPECT_EQ(store_.pending(0), kOldNodes + kNewNodes);
  }

  UndoCountingStore store_;
  NewNodes nodes_ = {.count = kNewNodes};
};

TEST_F(ExtendedStoreTest, NodesArePendingWhileTheyAreEvaluated) {
  int64_t pending = 0;
  with_new_nodes(store_, nodes_, [&] { pending = store_.pending(0); });
  EXPECT_EQ(pending, kOldNodes + kNewNodes);
  expect_kept();
}

TEST_F(ExtendedStoreTest, AResultLeavesThemPending) {
  const auto result = with_new_nodes(store_, nodes_, [] { return std::vector<int64_t>(); });
  EXPECT_TRUE(result.empty()) << "a list is a result, also without elements";
  expect_kept();
}

TEST_F(ExtendedStoreTest, TrueAndAValueLeaveThemPending) {
  EXPECT_TRUE(with_new_nodes(store_, nodes_, [] { return true; }));
  expect_kept();
  EXPECT_EQ(with_new_nodes(store_, nodes_, [] { return std::optional<bool>(false); }), false);
  EXPECT_EQ(store_.undone, 0) << "an optional that holds false is not empty";
}

TEST_F(ExtendedStoreTest, FalseForgetsThem) {
  EXPECT_FALSE(with_new_nodes(store_, nodes_, [] { return false; }));
  expect_undone();
}

TEST_F(ExtendedStoreTest, AnEmptyResultForgetsThem) {
  EXPECT_EQ(with_new_nodes(store_, nodes_, [] { return std::optional<int64_t>(); }), std::nullopt);
  expect_undone();
}

TEST_F(ExtendedStoreTest, AnExceptionForgetsThemAndIsThrownOn) {
  EXPECT_THROW(
      with_new_nodes(store_, nodes_, []() -> bool { throw std::runtime_error("no memory"); }),
      std::runtime_error);
  expect_undone();
  EXPECT_THROW(with_new_nodes(store_, {.count = 1}, [] { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_EQ(store_.undone, 2);
}

TEST_F(ExtendedStoreTest, AnExtendThatFailsIsNotUndone) {
  bool evaluated = false;
  EXPECT_THROW(with_new_nodes(store_, {.count = 100}, [&] { evaluated = true; }), Error);
  EXPECT_FALSE(evaluated);
  EXPECT_EQ(store_.undone, 0);
  EXPECT_EQ(store_.pending(0), kOldNodes);
}

}  // namespace
}  // namespace specdec
