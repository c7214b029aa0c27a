// Pages between a device, the host's memory and a disk. The device's memory is the host's here, and
// copies are as late as they may be.
#include "kv/device_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/row_tiers.h"
#include "kv/page_tiers.h"
#include "tests/kv/cache_model.h"
#include "tests/kv/fake_disk.h"
#include "tests/kv/late_copies.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Three layers with own pages of 2, 0 and 4 KiB of keys, in blocks of 8 KiB: 36, of which the
/// device holds 16. The parameter is the host's bytes: 8 blocks are the least.
class DeviceBlocksTest : public testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kPages = 24;
  static constexpr int64_t kMemory = 128 << 10;
  static constexpr int64_t kPageBytes[] = {2048, 0, 4096};

  DeviceBlocksTest() {
    const TieredPages pages{.page_bytes = {2048, 0, 4096},
                            .pages_per_block = equal_bytes(kPageBytes),
                            .capacity = kPages,
                            .memory_bytes = kMemory};
    auto blocks = std::make_unique<DeviceBlocks>(pages, std::make_unique<FakeDisk>(disk_), copies_,
                                                 GetParam());
    blocks_ = blocks.get();
    tiers_ = std::make_unique<PageTiers>(std::move(blocks));
  }

  int32_t* number(int64_t layer, int64_t page, bool of_values) {
    std::byte* begin = blocks_->slot(0, of_values);
    return reinterpret_cast<int32_t*>(begin + tiers_->number(layer, page) * kPageBytes[layer]);
  }
  /// Writes a value at both ends of the page.
  void write(int64_t layer, int64_t page, int32_t value) {
    const int64_t last = kPageBytes[layer] / 4 - 1;
    for (const int64_t at : {int64_t{0}, last}) {
      number(layer, page, false)[at] = value;
      number(layer, page, true)[at] = -value;
    }
    expected_[{layer, page}] = value;
  }
  bool holds(int64_t layer, int64_t page) {
    const auto found = expected_.find({layer, page});
    if (found == expected_.end()) {
      return true;
    }
    const int32_t value = found->second;
    const int64_t last = kPageBytes[layer] / 4 - 1;
    return *number(layer, page, false) == value && number(layer, page, false)[last] == value &&
           *number(layer, page, true) == -value && number(layer, page, true)[last] == -value;
  }
  bool bring_and_check(int64_t layer, int64_t page) {
    const PageUse use{page};
    tiers_->bring(layer, {&use, 1});
    return holds(layer, page);
  }
  void bring_and_write(int64_t layer, int64_t page, int32_t value) {
    const PageUse use{page, true};
    tiers_->bring(layer, {&use, 1});
    write(layer, page, value);
  }
  /// Writes every page of both layers, in as many forwards.
  void fill() {
    for (int64_t page = 0; page < kPages; ++page) {
      tiers_->begin_forward({});
      bring_and_write(0, page, static_cast<int32_t>(100 + page));
      bring_and_write(2, page, static_cast<int32_t>(200 + page));
    }
  }
  /// How many pages do not hold what was written to them.
  int wrong_pages() {
    int wrong = 0;
    for (int64_t page = 0; page < kPages; ++page) {
      wrong += (bring_and_check(0, page) ? 0 : 1) + (bring_and_check(2, page) ? 0 : 1);
    }
    return wrong;
  }

  FakeDisk::State disk_;
  std::shared_ptr<LateCopies> copies_ = std::make_shared<LateCopies>();
  DeviceBlocks* blocks_ = nullptr;
  std::unique_ptr<PageTiers> tiers_;
  std::map<std::pair<int64_t, int64_t>, int32_t> expected_;
};

TEST_P(DeviceBlocksTest, RandomUsesFindWhatWasWritten) {
  std::mt19937 random(5);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int step = 0; step < 4000; ++step) {
    const int64_t layer = 2 * below(2);
    std::vector<PageUse> uses;
    for (int64_t count = below(3); count >= 0; --count) {
      uses.push_back({below(kPages), below(3) == 0});
    }
    if (step % 3 == 0) {
      tiers_->begin_forward(below(2) == 0 ? std::vector<int64_t>{below(kPages)}
                                          : std::vector<int64_t>{});
    } else if (step % 12 == 1) {
      tiers_->hold(uses.front().page);
    }
    tiers_->bring(layer, uses);
    for (const PageUse& use : uses) {
      ASSERT_TRUE(holds(layer, use.page)) << "layer " << layer << ", page " << use.page;
      if (use.is_written) {
        write(layer, use.page, step + 1);
      }
    }
    const PageUse first = uses.front();
    const int32_t* at = number(layer, first.page, true);
    const int32_t value = *at;
    if (below(2) == 0) {
      tiers_->read_ahead(2 * below(2), std::array{PageUse{below(kPages)}, PageUse{below(kPages)}});
    }
    ASSERT_EQ(*at, value) << "beside what is read ahead";
  }
  const KvTiers counts = tiers_->statistics();
  EXPECT_LE(counts.peak_memory_bytes, kMemory);
  EXPECT_GT(counts.promotions, 500);
  EXPECT_LE(counts.host_bytes, std::max<int64_t>(GetParam(), 8 * 8192));
  EXPECT_EQ(counts.memory_bytes + counts.host_bytes + counts.disk_bytes, 36 * 8192);
  EXPECT_EQ(counts.read_bytes > 0, GetParam() < (200 << 10));
}

TEST_P(DeviceBlocksTest, AFailingDiskLosesNothing) {
  fill();
  for (const bool writes : {true, false}) {
    (writes ? disk_.fails_writes : disk_.fails_reads) = true;
    bool failed = false;
    for (int64_t page = 0; page < 2 * kPages; ++page) {
      try {
        tiers_->begin_forward({});
        bring_and_write(2, page % kPages, static_cast<int32_t>(300 + page));
        tiers_->read_ahead(0, std::array{PageUse{page % kPages}});
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(writes ? "the disk is full" : "cannot be read"));
        failed = true;
      }
    }
    EXPECT_EQ(failed, GetParam() < (200 << 10)) << "the host has no room for all";
    disk_.fails_writes = disk_.fails_reads = false;
    EXPECT_EQ(wrong_pages(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceBlocksTest, testing::Values(0, 100 << 10, 400 << 10));

using DeviceBlocksOnDiskTest = DeviceBlocksTest;

TEST_P(DeviceBlocksOnDiskTest, ADamagedBlockIsAnErrorThatNamesIt) {
  fill();
  disk_.flips_a_bit = true;
  EXPECT_THAT(error_message<Error>([&] { (void)bring_and_check(0, 1); }),
              HasSubstr("pages 0 to 1 of layer 0 in the cache's file are damaged"));
  disk_.flips_a_bit = false;
  EXPECT_EQ(wrong_pages(), 0);
}

TEST_P(DeviceBlocksOnDiskTest, ACopyThatNobodyWaitsForIsFound) {
  fill();
  copies_->ops_wait = false;
  EXPECT_GT(wrong_pages(), 0);
}

TEST_P(DeviceBlocksOnDiskTest, UnchangedBlocksAreCopiedOnce) {
  fill();
  EXPECT_EQ(wrong_pages(), 0);
  const int64_t written = tiers_->statistics().written_bytes;
  EXPECT_EQ(wrong_pages(), 0);
  EXPECT_GT(tiers_->statistics().read_bytes, 0);
  // Only copies in buffers were the only ones of blocks until then.
  EXPECT_LE(tiers_->statistics().written_bytes, written + 8 * 8192);
  const int64_t later = tiers_->statistics().written_bytes;
  EXPECT_EQ(wrong_pages(), 0);
  EXPECT_EQ(tiers_->statistics().written_bytes, later);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceBlocksOnDiskTest, testing::Values(0));

/// A page for each row, as those of TieredCacheTest.
TEST(TieredDeviceCacheTest, RandomHistoriesHoldWhatTheyShould) {
  const TemporaryFolder folder;
  for (const KvFormat format : {KvFormat::kNative, KvFormat::kQ8}) {
    std::mt19937 random(9);
    KvCacheOptions options = small_pages(format);
    options.page_size = 512;
    options.max_bytes = 64 << 20;
    options.memory_bytes = format == KvFormat::kNative ? 3'000'000 : 1'700'000;
    options.disk = folder.path();
    options.as_device = true;
    options.copies = std::make_shared<LateCopies>();
    CacheModel model(options);
    random_history(model, random, 400);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
    const KvTiers tiers = *model.cache().statistics().tiers;
    EXPECT_GT(tiers.promotions, 4);
    EXPECT_LE(tiers.peak_memory_bytes, options.memory_bytes);
    EXPECT_GT(tiers.disk_bytes, 0);
    EXPECT_GT(tiers.host_bytes, 0);
  }
}

TEST(TieredDeviceCacheTest, MovesBetweenForwardsChangeNothing) {
  const TemporaryFolder folder;
  std::mt19937 random(4);
  KvCacheOptions options = small_pages();
  options.page_size = 512;
  options.max_bytes = 64 << 20;
  options.memory_bytes = 3'000'000;
  options.disk = folder.path();
  options.as_device = true;
  options.copies = std::make_shared<LateCopies>();
  options.tier_policy = least_frequently_used();
  options.keep_free = 0.5;
  CacheModel model(options);
  random_history(model, random, 150, true);
  EXPECT_GT(model.cache().statistics().tiers->promotions, 4);
  // A row goes to the host's memory, and comes back. Rows share the first layer's block, so no
  // other one is in use.
  RowTiers& tiers = *model.cache().row_tiers();
  for (const RowId row : model.names()) {
    model.truncate(row, model.cache().length(row));
  }
  const RowId row = model.open();
  model.extend(batch_of(std::vector<int64_t>(9, row), {}));
  model.commit(row, first_nodes(9));
  const int64_t all = tiers.bytes(row).memory;
  const int64_t left = tiers.demote(row);
  EXPECT_GE(left, all);
  EXPECT_EQ(tiers.bytes(row).host, all);
  EXPECT_EQ(tiers.promote(row), left);
  EXPECT_EQ(tiers.bytes(row).memory, all);
  model.check();
}

TEST(TieredDeviceCacheTest, ADeviceWithoutCopiesIsRefused) {
  KvCacheOptions options = small_pages();
  options.as_device = true;
  options.max_bytes = 1 << 20;
  options.memory_bytes = 1 << 18;
  EXPECT_THAT(error_message<InternalError>([&] { const KvCache cache(three_layers(), options); }),
              HasSubstr("memory_bytes on cpu without a queue of copies"));
}

}  // namespace
}  // namespace specdec
