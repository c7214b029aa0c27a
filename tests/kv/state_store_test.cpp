#include "kv/state_store.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/draft.h"
#include "core/error.h"
#include "core/prefill_size.h"
#include "core/row_tiers.h"
#include "kv/paged_kv.h"
#include "kv/stateful_store.h"

namespace specdec {
namespace {

constexpr int64_t kStateNumbers = 3;

/// A store and what it should hold, kept the slow way: a state is written as the text that leads to
/// it would have it, a number of its own.
class StateModel {
 public:
  StateModel(const StateOptions& options, uint32_t seed)
      : options_(options),
        store_(kStateNumbers, {.dtype = at::kFloat, .max_length = 1, .states = options}),
        random_(seed) {
    rows_[0] = {};
  }

  void step() {
    const RowId row = std::next(rows_.begin(), below(std::ssize(rows_)))->first;
    switch (below(9)) {
      case 0:
        return truncate(row);
      case 1:
        return change_rows(row);
      case 2:
      case 3:
        return commit(row);
      default:
        return extend(row);
    }
  }

  void check() {
    std::set<float> states;
    for (const auto& [name, row] : rows_) {
      const auto length = std::ssize(row.kept);
      for (int64_t wanted = 0; wanted <= length; ++wanted) {
        ASSERT_EQ(store_.rewindable_to(name, wanted), rewindable(row, wanted)) << wanted;
      }
      if (length > 0) {
        states.insert(row.kept.back());
      }
      for (const int64_t at : row.checkpoints) {
        states.insert(row.kept[static_cast<size_t>(at - 1)]);
      }
      for (const auto& [parent, number] : row.pending) {
        states.insert(number);
      }
    }
    ASSERT_EQ(store_.count(), std::ssize(states));
  }

 private:
  struct Row {
    std::vector<float> kept = {};  ///< the number of each kept token's state
    std::vector<int64_t> checkpoints = {};
    std::vector<std::pair<int64_t, float>> pending = {};  ///< parent and number
  };

  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  static int64_t rewindable(const Row& row, int64_t length) {
    if (length == std::ssize(row.kept)) {
      return length;
    }
    int64_t best = 0;
    for (const int64_t at : row.checkpoints) {
      best = at <= length ? std::max(best, at) : best;
    }
    return best;
  }

  void extend(RowId name) {
    Row& row = rows_[name];
    const int64_t count = 1 + below(4);
    const std::vector<RowId> rows(static_cast<size_t>(count), name);
    std::vector<int64_t> parents;
    for (int64_t node = 0; node < count; ++node) {
      parents.push_back(below(std::ssize(row.pending) + node + 1) - 1);
    }
    store_.extend({.count = count, .rows = rows, .parents = parents});
    const auto already = std::ssize(row.pending);
    const Tensor& memory = store_.nodes().memory;
    const auto places = store_.nodes().nodes.accessor<int32_t, 2>();
    ASSERT_GE(places.size(0), count);
    const bool is_undone = below(5) == 0;
    for (size_t node = 0; node < parents.size(); ++node) {
      const auto place = places[static_cast<int64_t>(node)];
      const int64_t parent = parents[node];
      ASSERT_EQ(place[0], parent < already ? -1 : parent - already);
      const bool begins = parent < 0 && row.kept.empty();
      ASSERT_EQ(place[1] < 0, begins);
      if (!begins) {
        ASSERT_EQ(memory[place[1]][kStateNumbers - 1].item<float>(),
                  parent < 0 ? row.kept.back() : row.pending[static_cast<size_t>(parent)].second);
      }
      memory[place[2]].fill_(++newest_);
      row.pending.emplace_back(parent, newest_);
    }
    if (is_undone) {
      store_.undo_extend();
      row.pending.resize(row.pending.size() - parents.size());
    }
  }

  void commit(RowId name) {
    Row& row = rows_[name];
    std::vector<int64_t> path;
    for (int64_t node = below(std::ssize(row.pending) + 1) - 1; node >= 0;
         node = row.pending[static_cast<size_t>(node)].first) {
      path.insert(path.begin(), node);
    }
    store_.commit(name, path);
    for (const int64_t node : path) {
      row.kept.push_back(row.pending[static_cast<size_t>(node)].second);
      if (std::ssize(row.kept) % options_.every == 0) {
        row.checkpoints.push_back(std::ssize(row.kept));
      }
    }
    while (std::ssize(row.checkpoints) > options_.most_checkpoints) {
      row.checkpoints.erase(row.checkpoints.begin());
    }
    row.pending.clear();
  }

  static void cut(Row& row, int64_t length) {
    row.kept.resize(static_cast<size_t>(length));
    std::erase_if(row.checkpoints, [length](int64_t at) { return at > length; });
    row.pending.clear();
  }

  void truncate(RowId name) {
    Row& row = rows_[name];
    const int64_t length = below(std::ssize(row.kept) + 1);
    if (rewindable(row, length) != length) {
      EXPECT_THROW(store_.truncate(name, length), Error);
      return;
    }
    store_.truncate(name, length);
    cut(row, length);
  }

  void change_rows(RowId name) {
    if (name != 0 && below(2) == 0) {
      store_.close(name);
      rows_.erase(name);
    } else if (rows_.size() < 4) {
      const int64_t length = rewindable(rows_[name], below(std::ssize(rows_[name].kept) + 1));
      store_.fork(name, ++newest_row_, length);
      Row branch = rows_[name];
      cut(branch, length);
      rows_[newest_row_] = std::move(branch);
    }
  }

  StateOptions options_;
  StateStore store_;
  std::mt19937 random_;
  std::map<RowId, Row> rows_;
  RowId newest_row_ = 0;
  float newest_ = 0.0F;
};

TEST(StateStoreTest, RandomHistoriesAreThoseOfLists) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StateModel model({.every = 1 + seed % 5, .most_checkpoints = seed % 4}, seed);
    for (int step = 0; step < 200 && !testing::Test::HasFatalFailure(); ++step) {
      model.step();
      model.check();
    }
  }
}

TEST(StateStoreTest, ABudgetCountsSharedStatesOnce) {
  StateStore store(kStateNumbers, {.dtype = at::kFloat,
                                   .max_length = 1,
                                   .states = {.every = 1, .most_checkpoints = 2, .max_bytes = 60}});
  EXPECT_EQ(store.state_bytes(), 12);
  store.extend({.count = 4});
  EXPECT_THROW(store.extend({.count = 2}), Error);
  const std::vector<int64_t> path = {0, 1, 2, 3};
  store.commit(0, path);
  EXPECT_EQ(store.count(), 2) << "the last token's is a checkpoint too";
  store.fork(0, 1, 4);
  EXPECT_EQ(store.count(), 2);
  store.extend({.count = 3});
  EXPECT_THROW(store.extend({.count = 1}), Error);
  EXPECT_EQ(store.count(), 5);
}

// A GPU's store: all states are allocated at once, and the places of nodes go up.
TEST(StateStoreTest, ADeviceHoldsTheStatesOfARowAndOfAPromptsPiece) {
  StateStore store(kStateNumbers, {.dtype = at::kFloat,
                                   .device = at::kMeta,
                                   .max_length = 1,
                                   .states = {.every = 1, .most_checkpoints = 3}});
  const int64_t states = 1 + 3 + kPrefillTokens;
  EXPECT_EQ(store.allocated(), states);
  for (int piece = 0; piece < 3; ++piece) {
    store.extend({.count = kPrefillTokens});
    EXPECT_EQ(store.nodes().memory.sizes(), (std::vector<int64_t>{states, kStateNumbers}));
    store.commit(0, chain_path(kPrefillTokens));
  }
  EXPECT_EQ(store.count(), 3) << "the last one is a checkpoint too";
  EXPECT_THROW(store.extend({.count = states}), Error);
}

TEST(StatefulStoreTest, TiersNameLayersByTheirNumberAmongAll) {
  const auto cache = make_cache({{.state_size = 4}, {.head_dim = 8}},
                                {.max_length = 16, .max_bytes = 1 << 20, .memory_bytes = 1 << 18});
  cache->extend({.count = 3});
  (void)cache->view(1);
  cache->commit(0, chain_path(3));
  RowTiers& tiers = *cache->row_tiers();
  EXPECT_GT(tiers.demote(0), 0);
  const std::vector<PlacedPage> pages = tiers.pages(0);
  ASSERT_EQ(pages.size(), 1U);
  EXPECT_EQ(pages[0].layer, 1);
  EXPECT_EQ(pages[0].tier, KvTier::kDisk);
  tiers.prefetch_async(0);
  EXPECT_EQ(tiers.bytes(0).memory, pages[0].bytes);
}

}  // namespace
}  // namespace specdec
