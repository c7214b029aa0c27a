// What a cache holds at most: what it refuses, and what it says beforehand.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.h"
#include "tests/kv/cache_model.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

KvCacheOptions pages(int64_t max_pages) {
  KvCacheOptions options = small_pages();
  options.max_pages = max_pages;
  return options;
}

/// Bytes of a page number of three_layers().
int64_t page_bytes_of_all() {
  int64_t bytes = 0;
  for (const LayerKv& layer : three_layers()) {
    bytes += page_bytes(layer, small_pages());
  }
  return bytes;
}

bool fits(const CacheModel& model, const std::vector<RowGrowth>& rows,
          const std::vector<RowId>& closed = {}) {
  return model.cache().fits(rows, closed);
}

TEST(CacheCapacityTest, PagesBeyondItAreAnErrorThatNamesTheOption) {
  CacheModel model(pages(3));
  model.extend(chain(9));
  model.commit(0, first_nodes(9));
  EXPECT_THAT(error_message<Error>([&] { model.cache().extend(chain(4).nodes()); }),
              HasSubstr("holds 3 pages of 4 tokens, not 4: raise the cache's limit "
                        "(max_pages"));
  model.check();
  model.extend(chain(3));
  model.commit(0, first_nodes(3));
  model.check();
}

TEST(CacheCapacityTest, PagesBeyondThoseOfTiersNameTheirOption) {
  KvCache cache({{1, 64}}, {.max_length = 1000, .max_bytes = 1 << 15, .memory_bytes = 1 << 14});
  EXPECT_THAT(
      error_message<Error>([&] { cache.extend({.count = 100}); }),
      HasSubstr("holds 4 pages of 16 tokens in memory and on disk, not 7: raise the cache's "
                "limit (megabytes)"));
}

TEST(CacheCapacityTest, APageThatHoldsARowIsCalledOne) {
  KvCacheOptions options = pages(1);
  options.page_size = options.max_length;
  CacheModel model(options);
  model.extend(chain(3));
  model.commit(0, first_nodes(3));
  const RowId row = model.cache().fork(0, 2);
  const RowId rows[] = {row};
  EXPECT_THAT(error_message<Error>([&] { model.cache().extend({.count = 1, .rows = rows}); }),
              HasSubstr("holds 1 rows of"));
}

TEST(CacheCapacityTest, StatisticsCountPagesAndWhatTheyLeaveEmpty) {
  CacheModel model(small_pages());
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  KvStatistics statistics = model.cache().statistics();
  EXPECT_EQ(statistics.used_pages, 2);
  EXPECT_EQ(statistics.tokens, 6);
  EXPECT_EQ(statistics.fragmentation(), 0.25);
  EXPECT_EQ(statistics.layers.size(), 3U);
  EXPECT_EQ(statistics.layers.back().page_bytes, 0) << "it reads the first layer's";
  EXPECT_EQ(statistics.allocated_bytes(), 2 * page_bytes_of_all());
  model.truncate(0, 2);
  statistics = model.cache().statistics();
  EXPECT_EQ(statistics.used_pages, 1);
  EXPECT_EQ(statistics.spare_pages, 1);
  EXPECT_EQ(statistics.allocated_pages, 2);
}

TEST(CacheCapacityTest, TouchedPagesHoldWhatTheyHeld) {
  CacheModel model(pages(5));
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  const KvStatistics before = model.cache().statistics();
  model.cache().touch(1000);
  model.check();
  EXPECT_EQ(model.cache().statistics().used_pages, before.used_pages);
  EXPECT_EQ(model.cache().statistics().allocated_pages, before.allocated_pages);
  model.extend(chain(9));
  model.check();
}

TEST(CacheCapacityTest, BytesLimitPages) {
  KvCacheOptions options = small_pages();
  const int64_t page = page_bytes_of_all();
  options.max_bytes = 3 * page + 1;
  EXPECT_EQ(page_capacity(three_layers(), options), 3);
  options.max_pages = 2;
  EXPECT_EQ(page_capacity(three_layers(), options), 2);
  options.max_bytes = page - 1;
  EXPECT_THAT(error_message<Error>([&] { KvCache(three_layers(), options); }),
              HasSubstr("holds no page of 4 tokens"));
}

TEST(CacheCapacityTest, RowsAndPendingNodesBeyondItAreErrors) {
  KvCacheOptions options = small_pages();
  options.max_rows = 2;
  options.max_pending = 5;
  CacheModel model(options);
  model.open();
  model.extend(batch_of({0, 0, 1}, {}));
  EXPECT_THAT(error_message<Error>([&] { model.cache().open(); }), HasSubstr("max_rows 2"));
  EXPECT_THAT(error_message<Error>([&] { model.cache().fork(0, 0); }), HasSubstr("max_rows 2"));
  EXPECT_THAT(error_message<Error>([&] { model.cache().extend(chain(4).nodes()); }),
              HasSubstr("6 pending tokens of row 0 exceed the cache's max_pending 5"));
  model.check();
  EXPECT_FALSE(fits(model, {{0, 0}, {0, 1}}));
  EXPECT_FALSE(fits(model, {{0, 4}}));
  EXPECT_TRUE(fits(model, {{0, 3}, {1, 4}}));
}

TEST(CacheCapacityTest, TruncatedPagesGoToRowsThatNeedThem) {
  CacheModel model(pages(4));
  model.open();
  model.extend(batch_of(std::vector<int64_t>(13, 0), {}));
  model.commit(0, first_nodes(13));
  model.truncate(0, 3);
  EXPECT_TRUE(fits(model, {{0, 1}, {1, 12}}));
  EXPECT_FALSE(fits(model, {{0, 2}, {1, 12}}));
  model.extend(batch_of(std::vector<int64_t>(12, 1), {}));
  model.check();
  EXPECT_THROW(model.cache().extend(chain(2).nodes()), Error);
  model.extend(chain(1));
  model.check();
}

TEST(CacheCapacityTest, TheLastRowThatHoldsASharedPageWritesInPlace) {
  CacheModel model(pages(4));
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  EXPECT_TRUE(fits(model, {{0, 2}, {0, 2}, {0, 2}}));
  EXPECT_FALSE(fits(model, {{0, 2}, {0, 2}, {0, 3}}));
  EXPECT_FALSE(fits(model, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}));
  model.fork(0, 6);
  model.fork(0, 6);
  model.extend(batch_of({0, 0, 1, 1, 2, 2}, {}));
  model.check();
}

TEST(CacheCapacityTest, ADefaultHoldsRowsOfFullLength) {
  const int64_t of_row = kMaxLength / 4;
  KvCacheOptions options = small_pages();
  EXPECT_EQ(page_capacity(three_layers(), options), 4096 * of_row);
  options.max_rows = 3;
  EXPECT_EQ(page_capacity(three_layers(), options), 3 * of_row);
  options.max_rows = 0;
  options.device = at::kMeta;
  EXPECT_EQ(page_capacity(three_layers(), options), of_row);
  options = {.page_size = 16, .max_length = 1 << 16};
  const std::vector<LayerKv> large(100, LayerKv{16, 256});
  const int64_t bytes = page_capacity(large, options) * 100 * page_bytes(large.front(), options);
  EXPECT_LE(bytes, int64_t{1} << 40);
  EXPECT_GT(bytes, int64_t{1} << 39);
}

TEST(CacheCapacityTest, WithSlackAWindowTakesFewerPages) {
  KvCacheOptions options = {.page_size = 16, .max_length = 16384, .window_slack = 16};
  // 512 and 16 behind, 512 new, and a page that begins before them.
  EXPECT_EQ(windowed_pages(512, 1024, options), 66);
  EXPECT_EQ(windowed_pages(512, 3 * 1024 + 20, options), 3 * 66 + 20);
  EXPECT_EQ(windowed_pages(0, 1024, options), 1024);
  options.max_pending = 32;
  EXPECT_EQ(windowed_pages(512, 1024, options), 36);
  options.window_slack = 0;
  EXPECT_EQ(windowed_pages(512, 1024, options), 1024);
  options.window_slack = 16;

  const std::vector<LayerKv> layers = {{1, 32, 512, -1}, {1, 32, 0, -1}, {1, 32, 512, 0}};
  const int64_t page = page_bytes(layers[0], options);
  options.device = at::kMeta;
  KvCache cache(layers, options);
  EXPECT_EQ(cache.view(0).keys.size(0), 36);
  EXPECT_EQ(cache.view(1).keys.size(0), 1024);
  EXPECT_EQ(cache.statistics().allocated_bytes(), (1024 + 36) * page);
  options.max_bytes = (1024 + 36) * page;
  EXPECT_EQ(page_capacity(layers, options), 1024) << "the bytes of a whole row";
  options.max_bytes -= 1;
  EXPECT_EQ(page_capacity(layers, options), 1023);
}

TEST(CacheCapacityTest, ADeviceHasAllPagesFromTheBeginning) {
  KvCacheOptions options = pages(5);
  options.device = at::kMeta;
  KvCache cache(three_layers(), options);
  EXPECT_EQ(cache.view(1).keys.size(0), 5);
  const int64_t bytes = cache.statistics().allocated_bytes();
  cache.extend(chain(20).nodes());
  EXPECT_EQ(cache.statistics().allocated_bytes(), bytes);
  EXPECT_THROW(cache.extend(chain(1).nodes()), Error);
}

/// Nodes that a batch gives each row.
std::vector<RowGrowth> growth_of(const NodeBatch& batch) {
  std::vector<RowGrowth> rows;
  for (const RowId row : batch.rows) {
    if (rows.empty() || rows.back().row != row) {
      rows.push_back({row, 0});
    }
    ++rows.back().nodes;
  }
  return rows;
}

/// Extends where the cache says that it fits, which then succeeds; elsewhere it throws and changes
/// nothing. Returns whether it fits.
bool try_extend(CacheModel& model, const NodeBatch& batch, bool fits) {
  if (fits) {
    model.extend(batch);
  } else {
    EXPECT_THROW(model.cache().extend(batch.nodes()), Error);
  }
  return fits;
}

/// All rows end but 0; up to three forks of them, or of 0, go on.
bool branch(CacheModel& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const std::vector<RowId> rows = model.names();
  const std::vector<RowId> closed(rows.begin() + 1, rows.end());
  std::vector<RowGrowth> growth = {{0, 0}};
  for (int64_t forks = 1 + below(3); forks > 0; --forks) {
    const RowId row = rows[static_cast<size_t>(below(std::ssize(rows)))];
    const int64_t room = kMaxLength - model.cache().length(row);
    growth.push_back({row, below(std::min<int64_t>(room, 9) + 1)});
  }
  const bool fits = model.cache().fits(growth, closed);
  NodeBatch batch;
  for (const RowGrowth& fork : std::span(growth).subspan(1)) {
    const RowId row = model.fork(fork.row, model.cache().length(fork.row));
    batch.rows.insert(batch.rows.end(), static_cast<size_t>(fork.nodes), row);
  }
  for (const RowId row : closed) {
    model.close(row);
  }
  batch.count = std::ssize(batch.rows);
  return batch.rows.empty() || try_extend(model, batch, fits);
}

/// A step like random_step, of a cache that is often full.
bool crowded_step(CacheModel& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  if (below(2) == 0) {
    const NodeBatch batch = random_batch(model, random);
    return try_extend(model, batch, model.cache().fits(growth_of(batch)));
  }
  if (below(3) > 0) {
    random_step(model, random, false);
    return true;
  }
  return branch(model, random);
}

TEST(CacheCapacityTest, WhatFitsIsExactlyWhatExtendDoes) {
  int64_t refused = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    KvCacheOptions options = pages(4 + seed % 12);
    options.as_device = seed % 2 == 1;
    options.window_slack = seed % 3 == 2 ? 1 + seed % 5 : 0;
    CacheModel model(options);
    for (int step = 0; step < 80 && !testing::Test::HasFailure(); ++step) {
      refused += crowded_step(model, random) ? 0 : 1;
      model.check();
    }
  }
  EXPECT_GT(refused, 100) << "the caches should have been full often";
}

}  // namespace
}  // namespace specdec
