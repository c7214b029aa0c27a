// Caches whose pages move between memory and disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "core/draft.h"
#include "core/error.h"
#include "core/row_tiers.h"
#include "kv/kv_cache.h"
#include "kv/tier_policy.h"
#include "tests/kv/cache_model.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A page for each row. Memory for the pages of four rows and for copies of each.
KvCacheOptions with_tiers(KvFormat format, const std::filesystem::path& disk) {
  KvCacheOptions options = small_pages(format);
  options.page_size = 512;
  options.max_bytes = 64 << 20;
  options.memory_bytes = format == KvFormat::kNative ? 2'600'000 : 1'500'000;
  options.disk = disk;
  return options;
}

TEST(TieredCacheTest, RandomHistoriesHoldWhatTheyShould) {
  const TemporaryFolder folder;
  for (const KvFormat format : {KvFormat::kNative, KvFormat::kQ8}) {
    std::mt19937 random(9);
    const KvCacheOptions options = with_tiers(format, folder.path());
    CacheModel model(options);
    random_history(model, random, 400);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
    const KvTiers tiers = *model.cache().statistics().tiers;
    EXPECT_GT(tiers.promotions, 4);
    EXPECT_LE(tiers.peak_memory_bytes, options.memory_bytes);
    EXPECT_GT(tiers.disk_bytes, options.memory_bytes);
  }
}

TEST(TieredCacheTest, MovesBetweenForwardsChangeNothing) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  KvCacheOptions options = with_tiers(KvFormat::kNative, folder.path());
  options.keep_free = 0.5;
  CacheModel model(options);
  random_history(model, random, 150, true);
  EXPECT_GT(model.cache().statistics().tiers->promotions, 4);
}

TEST(TieredCacheTest, AnExtendForgetsTheRowThatReadersWereAskedFor) {
  const TemporaryFolder folder;
  CacheModel model(with_tiers(KvFormat::kNative, folder.path()));
  KvCache& cache = model.cache();
  const RowId other = model.open();
  model.extend(batch_of({0, other}, {}));
  model.commit(0, first_nodes(1));
  model.commit(other, first_nodes(1));
  const auto pages_brought = [&] {
    const int64_t before = cache.statistics().tiers->accesses;
    cache.view(0);
    return cache.statistics().tiers->accesses - before;
  };
  cache.readers(0, 1, 1);
  cache.extend(batch_of({other}, {}).nodes());
  EXPECT_EQ(pages_brought(), 1) << "of the row that the forward evaluates";
  cache.readers(0, 1, 1);
  EXPECT_EQ(pages_brought(), 1) << "of the row that is read beside it";
}

constexpr int64_t kFirstLayerBlock = 2 * 512 * 2 * 4;  // keys and values: bytes of a row's page
constexpr int64_t kSecondLayerBlock = 2 * 512 * 2 * 34 * 4;

KvCacheOptions with_memory(int64_t memory_bytes, const std::filesystem::path& disk) {
  KvCacheOptions options = with_tiers(KvFormat::kNative, disk);
  options.memory_bytes = memory_bytes;
  return options;
}

/// Rows 0 and 1 share a page, row 2 has its own.
void share_a_page(CacheModel& model) {
  model.extend(chain(20));
  model.commit(0, first_nodes(20));
  model.fork(0, 15);
  const RowId other = model.open();
  model.extend(batch_of(std::vector<int64_t>(9, other), {}));
  model.commit(other, first_nodes(9));
}

/// Rows 0 and 1 share a page, row 2 has its own.
TEST(TieredCacheTest, WhatARowInUseSharesStays) {
  const TemporaryFolder folder;
  CacheModel model(with_memory(3 * (kFirstLayerBlock + kSecondLayerBlock), folder.path()));
  share_a_page(model);  // row 2 was used last
  RowTiers& tiers = *model.cache().row_tiers();
  constexpr int64_t kPageOfAllLayers = kFirstLayerBlock + kSecondLayerBlock;
  const auto memory = [&](RowId row) { return tiers.bytes(row).memory; };
  ASSERT_EQ(tiers.pages(1).size(), 2U) << "the last layer reads the first's";
  EXPECT_EQ(tiers.pages(1)[1].layer, 1);
  EXPECT_EQ(tiers.demote(1), kPageOfAllLayers) << "neither row that has it is in use";
  EXPECT_EQ(tiers.bytes(0).disk, kPageOfAllLayers);
  EXPECT_EQ(memory(2), kPageOfAllLayers);
  EXPECT_EQ(tiers.promote(0), kPageOfAllLayers);
  EXPECT_EQ(memory(1), kPageOfAllLayers);
  model.extend(batch_of({1}, {}));  // row 1 has a copy of the page
  model.commit(1, {0});
  model.fork(1, 16);
  EXPECT_EQ(tiers.demote(3), 0) << "row 1 is in use";
  EXPECT_EQ(memory(0), kPageOfAllLayers) << "it shares no block any more";
  EXPECT_EQ(tiers.demote(1), kPageOfAllLayers);
  EXPECT_EQ(memory(3), 0);
  model.extend(batch_of({1, 1, 1}, {-1, -1, 0}));  // a tree, whose path may move
  EXPECT_EQ(tiers.demote(1), 0);
  model.commit(1, {0, 2});
  EXPECT_EQ(tiers.demote(1), kPageOfAllLayers);
  model.check();
  EXPECT_THROW(tiers.demote(9), InternalError);
  const KvCache plain(three_layers(), small_pages());
  EXPECT_EQ(plain.row_tiers(), nullptr);
}

TEST(TieredCacheTest, AnExtendThatADiskFailsChangesNothing) {
  const TemporaryFolder folder;
  CacheModel model(with_memory(2 * (kFirstLayerBlock + kSecondLayerBlock), folder.path()));
  share_a_page(model);
  const KvStatistics before = model.cache().statistics();
  {
    const FullDisk full;  // the copy needs the memory of row 2's page
    EXPECT_THAT(error_message<Error>([&] {
                  model.extend(batch_of({1, 1, 1, 0}, {}));
                }),
                HasSubstr("(pages of a cache): cannot be written"));
  }
  EXPECT_EQ(model.cache().statistics().shared_pages, 1);
  EXPECT_EQ(model.cache().statistics().used_pages, before.used_pages);
  model.check();
  model.extend(batch_of({1, 1, 1, 0}, {}));
  model.commit(1, first_nodes(3));
  model.check();
  EXPECT_EQ(model.cache().statistics().shared_pages, 0);
}

TEST(TieredCacheTest, AnExtendWhoseCopyTheMemoryDoesNotHoldChangesNothing) {
  const TemporaryFolder folder;
  // Room for the copy in the first layer only, beside the page that is held.
  CacheModel model(with_memory(2 * kFirstLayerBlock + kSecondLayerBlock, folder.path()));
  share_a_page(model);
  EXPECT_THAT(error_message<Error>([&] { model.extend(chain(2)); }),
              HasSubstr("raise the cache's memory_megabytes"));
  EXPECT_EQ(model.cache().statistics().shared_pages, 1);
  model.check();  // reads row 2's page too: nothing is held any more
  model.close(1);
  model.extend(chain(2));
  model.commit(0, first_nodes(2));
  model.check();
}

TEST(TieredCacheTest, LayersWithASinkAreRefused) {
  const TemporaryFolder folder;
  std::vector<LayerKv> layers = three_layers();
  layers[1].sink = 2;
  EXPECT_THAT(error_message<InternalError>([&] {
                const KvCache cache(layers, with_tiers(KvFormat::kNative, folder.path()));
              }),
              HasSubstr("memory_bytes would leave the sink of layer 1 on disk"));
}

TEST(TieredCacheTest, AKilledProcessLeavesNoFile) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    CacheModel model(with_tiers(KvFormat::kNative, folder.path()));
    model.extend(chain(20));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TieredCacheTest, ASnapshotOutlivesItsCacheAndFitsAnother) {
  const TemporaryFolder folder;
  std::vector<LayerKeyValues> expected;
  std::shared_ptr<const KvSnapshot> snapshot;
  {
    CacheModel model(with_tiers(KvFormat::kNative, folder.path()));
    model.extend(chain(20));
    model.commit(0, first_nodes(20));
    snapshot = model.cache().snapshot(0);
    expected = snapshot->copy();
  }
  const std::vector<LayerKeyValues> left = snapshot->copy();
  for (size_t layer = 0; layer < expected.size(); ++layer) {
    EXPECT_TRUE(at::equal(left[layer].keys, expected[layer].keys));
  }
  KvCache plain(three_layers(), small_pages());
  plain.restore(0, *snapshot, 20);
  EXPECT_TRUE(at::equal(plain.key_values(1, 0).first, expected[1].keys));
}

TEST(TieredCacheTest, AnUndoneForwardLeavesNoRowIdle) {
  const LayerKv layer{.kv_heads = 1, .head_dim = 64};
  KvCache cache(
      {layer, layer, layer},
      {.max_length = 64, .max_bytes = 1 << 20, .memory_bytes = 256 << 10, .keep_free = 1.0});
  cache.extend({.count = 20});
  for (const int64_t viewed : {0, 1, 2}) {  // the last one and the one after it, the first, stay
    (void)cache.view(viewed);
  }
  cache.commit(0, chain_path(20));
  for (int forward = 0; forward < 3; ++forward) {
    cache.extend({.count = 1});
    cache.undo_extend();
  }
  EXPECT_EQ(cache.row_tiers()->manage_tiers(), 0);
  for (int forward = 0; forward < 3; ++forward) {
    cache.extend({.count = 1});
    cache.truncate(0, 20);
  }
  EXPECT_GT(cache.row_tiers()->manage_tiers(), 0) << "its pages are not used";
}

}  // namespace
}  // namespace specdec
