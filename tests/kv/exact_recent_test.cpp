// Pages of recent tokens as they are beside those of a format (KvCacheOptions::exact_recent).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/kernels/hadamard.h"
#include "tests/kv/cache_model.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

KvCacheOptions exact_of(int64_t recent, int64_t slack, int64_t page_size = 4) {
  KvCacheOptions options = small_pages(KvFormat::kQ4);
  options.exact_recent = recent;
  options.window_slack = slack;
  options.page_size = page_size;
  return options;
}

void feed_tokens(CacheModel& model, int64_t tokens) {
  model.extend(chain(tokens));
  model.commit(0, first_nodes(tokens));
}

TEST(ExactRecentTest, RandomHistoriesHoldBothForms) {
  for (uint32_t seed = 0; seed < 14; ++seed) {
    std::mt19937 random(seed);
    KvCacheOptions options = exact_of(1 + seed % 7, seed % 3 == 2 ? 0 : 1 + seed % 5, 1 + seed % 6);
    options.format = kExactFormats[1 + seed % (std::size(kExactFormats) - 1)];
    CacheModel model(options);
    for (int step = 0; step < 100 && !testing::Test::HasFailure(); ++step) {
      random_step(model, random);
      model.check();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(ExactRecentTest, ARowTakesExactPagesOfTheRecentTokensAlone) {
  CacheModel model(exact_of(5, 2, 1));
  for (int64_t length = 1; length <= kMaxLength; ++length) {
    feed_tokens(model, 1);
    const KvStatistics statistics = model.cache().statistics();
    ASSERT_EQ(statistics.exact_layers.size(), 3U);
    EXPECT_EQ(statistics.exact_layers[0].used_pages, std::min<int64_t>(length, 5 + 2));
    EXPECT_EQ(statistics.layers[0].used_pages, length);
  }
  const KvStatistics statistics = model.cache().statistics();
  EXPECT_EQ(statistics.exact_layers[1].page_bytes, 2 * 2 * 34 * 4);
  EXPECT_EQ(statistics.exact_layers[1].allocated_pages, 5 + 2 + 1);
  EXPECT_EQ(statistics.exact_layers[2].page_bytes, 0) << "it reads the first layer's";
  const auto bytes = [](const std::vector<KvStatistics::Layer>& layers) {
    int64_t sum = 0;
    for (const KvStatistics::Layer& layer : layers) {
      sum += layer.page_bytes * layer.used_pages;
    }
    return sum;
  };
  EXPECT_EQ(statistics.used_bytes(), bytes(statistics.layers) + bytes(statistics.exact_layers));
}

TEST(ExactRecentTest, LayersReadNoMoreThanTheirWindow) {
  const CacheModel model(exact_of(30, 0));
  EXPECT_EQ(model.cache().describe(0).exact.recent, 30);
  EXPECT_EQ(model.cache().describe(1).exact.recent, 4);
  EXPECT_EQ(model.cache().describe(2).exact.recent, 30);
}

TEST(ExactRecentTest, TruncatingBeyondTheSlackIsAnErrorThatNamesIt) {
  CacheModel model(exact_of(5, 3, 1));
  feed_tokens(model, 20);
  EXPECT_EQ(model.cache().rewindable_to(0, 17), 17);
  EXPECT_EQ(model.cache().rewindable_to(0, 16), 0);
  EXPECT_THAT(error_message<Error>([&] { model.cache().truncate(0, 16); }),
              AllOf(HasSubstr("exact_recent left behind"), HasSubstr("raise window_slack")));
  model.truncate(0, 17);
  model.check();
  feed_tokens(model, 3);
  model.truncate(0, 17);
  model.check();
  CacheModel wide(exact_of(5, 0, 1));
  EXPECT_EQ(wide.cache().rewindable_to(0, 0), 0);
  feed_tokens(wide, kMaxLength);
  EXPECT_EQ(wide.cache().rewindable_to(0, 1), 1) << "it can be cut by kExactSlack";
  wide.truncate(0, 1);
  wide.check();
  KvCacheOptions longer = exact_of(5, 0);
  longer.max_length = 100;
  KvCache cache(three_layers(), longer);
  cache.extend(chain(100).nodes());
  cache.commit(0, first_nodes(100));
  EXPECT_EQ(cache.rewindable_to(0, 100 - kExactSlack), 100 - kExactSlack);
  EXPECT_THAT(error_message<Error>([&] { cache.truncate(0, 20); }),
              HasSubstr("window_slack of the cache (64)"));
}

TEST(ExactRecentTest, SnapshotsAndTheirCopiesHoldBothForms) {
  for (const bool copied : {false, true}) {
    SCOPED_TRACE(copied);
    CacheModel model(exact_of(5, 3, 2));
    feed_tokens(model, 23);
    const auto snapshot = model.cache().snapshot(0);
    EXPECT_EQ(snapshot->shortest_length(), 20) << "of the window of 4 tokens";
    const std::vector<float> tokens = model.rows().at(0).kept;
    const KvCopies copies(snapshot->copy(), snapshot->length(), snapshot->shortest_length());
    EXPECT_EQ(copies.layers().size(), 4U) << "two layers with keys of their own, in two forms";
    const KvSnapshot& source = copied ? static_cast<const KvSnapshot&>(copies) : *snapshot;
    model.truncate(0, 0);
    feed_tokens(model, 9);
    model.restore(0, source, {tokens.begin(), tokens.begin() + (copied ? 23 : 20)});
    model.check();
    feed_tokens(model, 4);
    model.check();
    EXPECT_EQ(model.cache().rewindable_to(0, 18), 0);
    EXPECT_THROW(model.cache().restore(0, source, 18), Error);
  }
}

/// What follows another cache is rounded and kept as it is, rotated in both forms.
TEST(ExactRecentTest, AppendedNumbersAreKeptInBothForms) {
  at::manual_seed(3);
  for (const KvRotation rotation : {KvRotation::kNone, KvRotation::kHadamard}) {
    KvCacheOptions options = exact_of(4, 0);
    options.rotation = rotation;
    KvCache cache({{2, 64, 0, -1}}, options);
    options.exact_recent = 0;
    KvCache rounded({{2, 64, 0, -1}}, options);
    const Tensor keys = at::randn({2, 11, 64});
    const Tensor values = at::randn({2, 11, 64});
    for (KvCache* each : {&cache, &rounded}) {
      each->append(0, 11, [&](int64_t) { return std::pair(keys, values); });
    }
    const auto held = cache.key_values(0, 0);
    const auto old = rounded.key_values(0, 0);
    EXPECT_TRUE(at::equal(held.first.narrow(1, 0, 7), old.first.narrow(1, 0, 7)));
    EXPECT_TRUE(at::equal(held.second.narrow(1, 0, 7), old.second.narrow(1, 0, 7)));
    EXPECT_TRUE(at::allclose(held.first.narrow(1, 7, 4), keys.narrow(1, 7, 4), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(held.second.narrow(1, 7, 4), values.narrow(1, 7, 4), 1e-5, 1e-6));
    EXPECT_FALSE(at::allclose(old.first.narrow(1, 7, 4), keys.narrow(1, 7, 4), 1e-5, 1e-6));
  }
}

TEST(ExactRecentTest, ABudgetCountsBothForms) {
  KvCacheOptions options = exact_of(5, 3);
  options.max_pending = 4;
  options.max_bytes = 30'000;
  CacheModel model(options);
  int64_t most = 0;
  const auto fill = [&] {
    for (RowId row = 0;; row = model.open()) {
      while (model.cache().length(row) < kMaxLength) {
        model.extend(batch_of({row, row, row, row}, {}));
        most = std::max(most, model.cache().statistics().used_bytes());
        model.commit(row, first_nodes(4));
      }
    }
  };
  EXPECT_THAT(error_message<Error>(fill), HasSubstr("raise the cache's limit"));
  EXPECT_LE(most, options.max_bytes);
  EXPECT_GT(most, options.max_bytes / 2);
}

TEST(ExactRecentTest, RefusesWhatItIsNotFor) {
  KvCacheOptions options = exact_of(5, 3);
  options.format = KvFormat::kNative;
  EXPECT_THAT(error_message<Error>([&] { (void)CacheModel(options); }),
              HasSubstr("give it a format"));
  options = exact_of(5, 3);
  options.format = KvFormat::kBFloat16;
  options.device = at::kMPS;
  EXPECT_THAT(error_message<Error>([&] { (void)CacheModel(options); }),
              AllOf(HasSubstr("is for the CPU and CUDA"), HasSubstr("leave exact_recent out")));
}

}  // namespace
}  // namespace specdec
