// Pages that a cache gives back once windows have left them behind (KvCacheOptions::window_slack).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/kv/cache_model.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kWindow = 4;  // of the second of three_layers()

KvCacheOptions with_slack(int64_t slack, int64_t page_size = 4) {
  KvCacheOptions options = small_pages();
  options.window_slack = slack;
  options.page_size = page_size;
  return options;
}

void feed(CacheModel& model, int64_t tokens) {
  model.extend(chain(tokens));
  model.commit(0, first_nodes(tokens));
}

/// The places of a row's first pages in a layer's table.
std::vector<int32_t> first_pages(const KvCache& cache, int64_t layer, int64_t count) {
  const int32_t* pages = cache.view(layer).page_table();
  return {pages, pages + count};
}

TEST(WindowSlackTest, LayersFormAGroupForEachWindow) {
  const std::vector<LayerKv> layers = {{1, 2, 8, -1}, {1, 2, 0, -1}, {1, 2, 8, 0}, {1, 2, 4, -1}};
  const KvCache one(layers, small_pages());
  const KvCache many(layers, with_slack(1));
  std::vector<int64_t> groups;
  for (int64_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(one.view(layer).group, 0);
    groups.push_back(many.view(layer).group);
  }
  EXPECT_THAT(groups, ElementsAre(0, 1, 0, 2));
  const std::vector<LayerKv> mixed = {{1, 2, 8, -1}, {1, 2, 0, 0}};
  EXPECT_NO_THROW(KvCache(mixed, small_pages()));
  EXPECT_THROW(KvCache(mixed, with_slack(1)), InternalError) << "it reads another group";
}

TEST(WindowSlackTest, ACommitGivesBackWhatTheWindowHasLeftBehind) {
  CacheModel model(with_slack(3));
  feed(model, 10);
  KvStatistics statistics = model.cache().statistics();
  EXPECT_EQ(statistics.layers[0].used_pages, 3);
  EXPECT_EQ(statistics.layers[1].used_pages, 3) << "slots 0 to 2 lie behind, not a whole page";
  feed(model, 1);
  statistics = model.cache().statistics();
  EXPECT_EQ(statistics.layers[0].used_pages, 3);
  EXPECT_EQ(statistics.layers[1].used_pages, 2);
  EXPECT_EQ(statistics.free_pages, 1);
  model.extend(chain(2));
  EXPECT_THAT(first_pages(model.cache(), 0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(first_pages(model.cache(), 1, 4), ElementsAre(-1, 1, 2, 0)) << "page 0 again";
  EXPECT_EQ(model.cache().view(2).group, model.cache().view(0).group);
  model.check();
}

TEST(WindowSlackTest, ARowTakesNoMoreThanItsWindow) {
  CacheModel model(with_slack(2, 1));
  for (int64_t length = 1; length <= kMaxLength; ++length) {
    feed(model, 1);
    const KvStatistics statistics = model.cache().statistics();
    EXPECT_EQ(statistics.layers[0].used_pages, length);
    EXPECT_EQ(statistics.layers[1].used_pages, std::min(length, kWindow + 2));
  }
  const KvStatistics statistics = model.cache().statistics();
  EXPECT_EQ(statistics.layers[1].allocated_pages, kWindow + 2 + 1);
  EXPECT_EQ(statistics.layers[2].page_bytes, 0);
  EXPECT_EQ(statistics.used_bytes(), kMaxLength * 2 * 2 * 4 + (kWindow + 2) * 2 * 34 * 2 * 4);
  model.check();
}

TEST(WindowSlackTest, WithoutSlackNothingIsGivenBack) {
  CacheModel model;
  feed(model, kMaxLength);
  EXPECT_EQ(model.cache().statistics().free_pages, 0);
  EXPECT_EQ(model.cache().rewindable_to(0, 1), 1);
  model.truncate(0, 1);
  model.check();
}

TEST(WindowSlackTest, TruncatingBeyondItIsAnErrorThatChangesNothing) {
  CacheModel model(with_slack(3, 1));
  feed(model, 20);
  KvCache& cache = model.cache();
  EXPECT_EQ(cache.rewindable_to(0, 17), 17);
  EXPECT_EQ(cache.rewindable_to(0, 16), 0);
  const auto refused = AllOf(HasSubstr("holds what 17 tokens or more need, or none"),
                             HasSubstr("raise window_slack of the cache (3)"));
  EXPECT_THAT(error_message<Error>([&] { cache.truncate(0, 16); }), refused);
  EXPECT_THAT(error_message<Error>([&] { cache.fork(0, 16); }), refused);
  const auto snapshot = cache.snapshot(0);
  EXPECT_EQ(snapshot->rewindable_to(16), 0);
  EXPECT_EQ(snapshot->rewindable_to(18), 18);
  EXPECT_THAT(error_message<Error>([&] { cache.restore(0, *snapshot, 16); }), refused);
  EXPECT_THAT(cache.rows(), ElementsAre(0));
  model.check();
  model.truncate(0, 17);
  feed(model, 1);
  EXPECT_EQ(cache.rewindable_to(0, 17), 17) << "nothing more was given back";
  model.truncate(0, 17);
  model.fork(0, 0);
  model.truncate(0, 0);
  EXPECT_EQ(cache.rewindable_to(0, 0), 0);
  feed(model, 9);
  EXPECT_EQ(cache.rewindable_to(0, 6), 6);
  model.check();
}

TEST(WindowSlackTest, ASnapshotsHoleGoesWithItsCopies) {
  CacheModel model(with_slack(3, 2));
  feed(model, 20);
  const auto snapshot = model.cache().snapshot(0);
  const KvCopies copies(snapshot->copy(), 20, snapshot->shortest_length());
  EXPECT_EQ(copies.shortest_length(), 16);
  CacheModel whole;  // of one group
  whole.restore(0, copies, {model.rows().at(0).kept.begin(), model.rows().at(0).kept.begin() + 18});
  EXPECT_EQ(whole.cache().rewindable_to(0, 16), 16);
  EXPECT_EQ(whole.cache().rewindable_to(0, 15), 0);
  EXPECT_THROW(whole.cache().truncate(0, 15), Error);
}

TEST(WindowSlackTest, ARestoredCopyTakesNoPageBehindItsWindow) {
  CacheModel whole;
  feed(whole, 30);
  KvCacheOptions options = with_slack(2);
  options.max_pending = 8;
  options.max_pages = 10;  // the windowed layer has 5
  CacheModel model(options);
  const auto snapshot = whole.cache().snapshot(0);
  model.restore(0, *snapshot, whole.rows().at(0).kept);
  EXPECT_EQ(model.cache().statistics().layers[1].used_pages, 2);
  model.check();
  feed(model, 8);
  model.check();
}

TEST(WindowSlackTest, RowsFedInPiecesFitTheirCapacity) {
  KvCacheOptions options = with_slack(3);
  options.max_rows = 1;
  options.max_pending = 6;
  CacheModel model(options);
  EXPECT_EQ(model.cache().view(1).window, kWindow);
  while (model.cache().length(0) < kMaxLength) {
    const int64_t tokens = std::min<int64_t>(6, kMaxLength - model.cache().length(0));
    const std::vector<RowGrowth> growth = {{0, tokens}};
    ASSERT_TRUE(model.cache().fits(growth));
    feed(model, tokens);
    model.check();
  }
}

TEST(WindowSlackTest, ReadersSeeTheTablesOfTheirGroup) {
  CacheModel model(with_slack(3));
  feed(model, 20);
  const BatchTables tables = model.cache().readers(0, 2, 25);
  EXPECT_EQ(tables.page_tables.size(1), 2);
  KvView view = model.cache().view(1);
  view.tables = &tables;
  EXPECT_EQ(view.page_table()[2], -1) << "13 slots lie behind";
  EXPECT_GE(view.page_table()[3], 0);
  view = model.cache().view(0);
  view.tables = &tables;
  EXPECT_THAT(std::vector<int32_t>(view.page_table(), view.page_table() + 5),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST(WindowSlackTest, RandomHistoriesHoldWhatTheyShould) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    KvCacheOptions options = with_slack(1 + seed % 9, 1 + seed % 6);
    options.as_device = seed % 4 == 3;
    CacheModel model(options);
    for (int step = 0; step < 150 && !testing::Test::HasFailure(); ++step) {
      random_step(model, random);
      model.check();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace specdec
