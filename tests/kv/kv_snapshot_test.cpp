// Snapshots of a KvCache's rows, against a list of what they should hold.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>

#include "core/error.h"
#include "tests/kv/cache_model.h"

namespace specdec {
namespace {

/// A snapshot and what it should hold.
struct Taken {
  std::shared_ptr<const KvSnapshot> snapshot;
  std::vector<float> tokens;
  KvFormat format;
  int64_t exact_recent;
};

Taken take(CacheModel& model, int64_t row) {
  const KvView view = model.cache().view(0);
  return {model.cache().snapshot(row), model.rows().at(row).kept, view.format, view.exact.recent};
}

/// [kv_heads, tokens, head_dim] of what a cache stored.
Tensor numbers_of(KvFormat format, const Tensor& stored) {
  if (stored.scalar_type() != at::kByte) {
    return stored.to(at::kFloat);
  }
  const int64_t head_dim = kv_head_dim(format, stored.size(2));
  Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim});
  for (int64_t head = 0; head < stored.size(0); ++head) {
    for (int64_t token = 0; token < stored.size(1); ++token) {
      decode_kv(format, {stored[head][token].mutable_data_ptr(), 1}, head_dim,
                numbers[head][token].mutable_data_ptr<float>());
    }
  }
  return numbers;
}

void check_copy(const Taken& taken) {
  const std::vector<LayerKeyValues> layers = taken.snapshot->copy();
  ASSERT_EQ(layers.size(), taken.exact_recent > 0 ? 4U : 2U) << "the third layer reads the first's";
  const Tensor numbers = at::tensor(taken.tokens, at::kFloat).view({1, -1, 1});
  for (size_t i = 0; i < layers.size(); ++i) {
    const size_t layer = i % 2;
    const bool exact = i >= 2;
    const Tensor keys = numbers_of(exact ? KvFormat::kNative : taken.format, layers[i].keys);
    const Tensor wanted =
        ((layer == 1 ? numbers * kSecondLayer : numbers) * (exact ? kExactForm : 1.0F))
            .expand_as(keys);
    const int64_t given_back =
        i == 0 ? 0 : keys[0].eq(0).all(1).sum().item<int64_t>();  // no number is 0
    const int64_t window = exact ? taken.exact_recent : 4;
    ASSERT_LE(given_back, std::max<int64_t>(0, taken.snapshot->shortest_length() - window));
    const auto left = [given_back](const Tensor& all) {
      return all.narrow(1, given_back, all.size(1) - given_back);
    };
    ASSERT_TRUE(at::equal(left(keys), left(wanted))) << "layer " << layer;
    const Tensor values = numbers_of(exact ? KvFormat::kNative : taken.format, layers[i].values);
    ASSERT_TRUE(at::equal(left(values), -left(wanted)));
  }
}

std::shared_ptr<const KvSnapshot> copied(const KvSnapshot& snapshot) {
  return std::make_shared<KvCopies>(snapshot.copy(), snapshot.length(), snapshot.shortest_length());
}

/// Random steps, among which snapshots are taken, checked and restored, by reference or from
/// copies.
void walk(const KvCacheOptions& options, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t bound) { return static_cast<int64_t>(random() % bound); };
  CacheModel model(options);
  std::vector<Taken> taken;
  for (int step = 0; step < 150; ++step) {
    const int64_t choice = below(6);
    const std::vector<RowId> rows = model.names();
    const RowId row = rows[static_cast<size_t>(below(rows.size()))];
    if (choice == 0) {
      model.truncate(row, model.cache().length(row));  // forgets pending nodes
      taken.push_back(take(model, row));
    } else if (choice == 1 && !taken.empty()) {
      const Taken& chosen = taken[static_cast<size_t>(below(taken.size()))];
      const int64_t length = chosen.snapshot->rewindable_to(below(chosen.tokens.size() + 1));
      const auto snapshot = below(2) == 0 ? chosen.snapshot : copied(*chosen.snapshot);
      model.restore(row, *snapshot, {chosen.tokens.begin(), chosen.tokens.begin() + length});
    } else if (choice == 2 && taken.size() > 3) {
      taken.erase(taken.begin() + below(taken.size()));
    } else {
      random_step(model, random);
    }
    model.check();
    if (!taken.empty()) {
      check_copy(taken[static_cast<size_t>(below(taken.size()))]);
    }
    if (testing::Test::HasFatalFailure()) {
      FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

TEST(KvSnapshotTest, RandomWalksHoldWhatTheyShould) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    for (const KvFormat format : kExactFormats) {
      walk(small_pages(format), seed);
    }
  }
}

TEST(KvSnapshotTest, RandomWalksHoldWhatTheyShouldOnADevice) {
  KvCacheOptions options = small_pages();
  options.as_device = true;
  walk(options, 100);
}

TEST(KvSnapshotTest, RandomWalksHoldWhatWindowsHaveNotLeftBehind) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    KvCacheOptions options = small_pages(kExactFormats[seed % std::size(kExactFormats)]);
    options.window_slack = 1 + seed % 7;
    options.page_size = 1 + seed % 5;
    options.as_device = seed % 5 == 4 && options.format == KvFormat::kNative;
    options.exact_recent = seed % 2 == 1 && options.format != KvFormat::kNative ? 1 + seed % 6 : 0;
    walk(options, seed);
  }
}

TEST(KvSnapshotTest, SharesPagesUntilTheyAreWritten) {
  CacheModel model;
  model.extend(chain(10));
  model.commit(0, first_nodes(10));
  const int64_t bytes = model.cache().statistics().allocated_bytes();
  const Taken taken = take(model, 0);
  EXPECT_EQ(taken.snapshot->bytes(), bytes) << "three pages";
  model.restore(model.open(), *taken.snapshot, taken.tokens);
  EXPECT_EQ(model.cache().statistics().allocated_bytes(), bytes);
  model.extend(batch_of({1}, {-1}));
  EXPECT_EQ(model.cache().statistics().allocated_bytes(), bytes + bytes / 3)
      << "the last page was copied";
  model.check();
  check_copy(taken);
}

TEST(KvSnapshotTest, PagesThatSeveralShareCountOnce) {
  CacheModel model;
  model.extend(chain(10));
  model.commit(0, first_nodes(10));
  const Taken first = take(model, 0);
  model.extend(chain(3));
  model.commit(0, first_nodes(3));
  const Taken second = take(model, 0);
  SharedBytes bytes;
  bytes.add(first.snapshot->parts());
  bytes.add(second.snapshot->parts());
  EXPECT_EQ(bytes.bytes(), first.snapshot->bytes() / 3 * 5)
      << "two of them, and a third each twice";
  model.truncate(0, 0);
  EXPECT_EQ(bytes.bytes(), model.cache().statistics().used_bytes());
}

TEST(KvSnapshotTest, OtherThreadsMayReadThemAndLetThemGo) {
  CacheModel model;
  for (int round = 0; round < 20; ++round) {
    model.extend(chain(8));
    model.commit(0, first_nodes(8));
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 3; ++reader) {
      readers.emplace_back([taken = take(model, 0)] { check_copy(taken); });
    }
    model.extend(chain(9));  // the pool grows, and pages are copied
    model.commit(0, first_nodes(9));
    model.check();
    for (std::thread& reader : readers) {
      reader.join();
    }
    model.truncate(0, 0);
  }
  EXPECT_EQ(model.cache().statistics().used_pages, 0) << "all were given back";
}

TEST(KvSnapshotTest, OutlivesItsCacheAndFitsAnother) {
  auto first = std::make_unique<CacheModel>();
  first->extend(chain(9));
  first->commit(0, first_nodes(9));
  const Taken taken = take(*first, 0);
  first.reset();
  check_copy(taken);
  KvCacheOptions other = small_pages();
  other.page_size = 16;
  CacheModel second(other);
  second.restore(0, *taken.snapshot, {taken.tokens.begin(), taken.tokens.begin() + 7});
  second.check();
  EXPECT_EQ(copied(*taken.snapshot)->bytes(), 9 * 2 * (2 + 2 * 34) * 4);
}

TEST(KvSnapshotTest, LeavesRoomForARow) {
  KvCacheOptions options = small_pages();
  options.max_pages = 12;  // a row of max_length takes 10
  CacheModel model(options);
  model.extend(chain(8));
  model.commit(0, first_nodes(8));
  const Taken shared = take(model, 0);
  model.extend(chain(4));
  model.commit(0, first_nodes(4));
  const Taken copy = take(model, 0);  // would hold a third page
  EXPECT_EQ(dynamic_cast<const KvCopies*>(shared.snapshot.get()), nullptr);
  EXPECT_NE(dynamic_cast<const KvCopies*>(copy.snapshot.get()), nullptr);
  model.truncate(0, 0);
  const std::vector<RowGrowth> whole = {{0, kMaxLength}};
  EXPECT_TRUE(model.cache().fits(whole));
  model.extend(chain(kMaxLength));
  model.commit(0, first_nodes(kMaxLength));
  model.check();
  check_copy(shared);
  check_copy(copy);
}

TEST(KvSnapshotTest, RefusesWhatDoesNotFit) {
  CacheModel model;
  model.extend(chain(6));
  EXPECT_THROW((void)model.cache().snapshot(0), InternalError) << "pending nodes";
  model.commit(0, first_nodes(6));
  const auto snapshot = model.cache().snapshot(0);
  EXPECT_THROW(model.cache().restore(2, *snapshot, 6), InternalError) << "not open";
  EXPECT_THROW(model.cache().restore(0, *snapshot, 7), InternalError) << "more than there is";
  EXPECT_EQ(model.cache().length(0), 6);

  KvCacheOptions narrow = small_pages();
  narrow.max_length = 5;
  CacheModel shorter(narrow);
  EXPECT_THROW(shorter.cache().restore(0, *snapshot, 6), Error);
  EXPECT_EQ(shorter.cache().length(0), 0);

  KvCache other({{1, 2, 0, -1}}, small_pages());
  EXPECT_THROW(other.restore(0, *snapshot, 6), InternalError) << "fewer layers";
  EXPECT_EQ(other.length(0), 0);
  KvCache wider({{1, 4, 0, -1}, {2, 34, 4, -1}}, small_pages());
  EXPECT_THROW(wider.restore(0, *snapshot, 6), InternalError) << "larger heads";
  KvCache half({{1, 2, 0, -1}, {2, 34, 4, -1}}, small_pages(KvFormat::kBFloat16));
  EXPECT_THROW(half.restore(0, *snapshot, 6), InternalError) << "another format";
}

}  // namespace
}  // namespace specdec
