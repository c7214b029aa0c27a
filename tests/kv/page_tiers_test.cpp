// Pages between memory and disk: what they hold, what leaves first, and what a failing disk does.
#include "kv/page_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "core/error.h"
#include "kv/page_memory.h"
#include "tests/kv/cache_model.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A disk in memory, which fails or changes bits where it is told.
class FakeDisk final : public PageFile {
 public:
  struct State {
    std::vector<std::byte> bytes = std::vector<std::byte>(size_t{1} << 20U);
    bool fails_writes = false;
    bool fails_reads = false;
    bool flips_a_bit = false;
  };
  explicit FakeDisk(State& state) : state_(state) {}

  void read(int64_t offset, std::span<std::byte> memory) override {
    if (state_.fails_reads) {
      throw Error("the disk cannot be read");
    }
    ASSERT_LE(offset + std::ssize(memory), std::ssize(state_.bytes));
    std::copy_n(state_.bytes.begin() + offset, memory.size(), memory.begin());
    if (state_.flips_a_bit) {
      memory[memory.size() / 2] ^= std::byte{1};
    }
  }
  void write(int64_t offset, std::span<const std::byte> memory) override {
    if (state_.fails_writes) {
      throw Error("the disk is full");
    }
    ASSERT_LE(offset + std::ssize(memory), std::ssize(state_.bytes));
    std::copy(memory.begin(), memory.end(), state_.bytes.begin() + offset);
  }

 private:
  State& state_;
};

/// Three layers with own pages of 2, 0 and 4 KiB of keys: blocks of two pages.
class PageTiersTest : public testing::Test {
 protected:
  static constexpr int64_t kPages = 24;
  static constexpr int64_t kMemory = 128 << 10;  // of 288 KiB
  static constexpr int64_t kPageBytes[] = {2048, 0, 4096};

  PageTiersTest()
      : tiers_({.page_bytes = {2048, 0, 4096}, .capacity = kPages, .memory_bytes = kMemory},
               std::make_unique<FakeDisk>(disk_)) {
    for (const int64_t layer : {0, 2}) {
      for (auto* memory : {&keys_[layer], &values_[layer]}) {
        *memory = std::make_unique<ReservedMemory>(kPages * kPageBytes[layer]);
        (*memory)->use(kPages * kPageBytes[layer]);
      }
      tiers_.place(layer, static_cast<std::byte*>(keys_[layer]->data()),
                   static_cast<std::byte*>(values_[layer]->data()));
    }
  }

  int32_t* number(int64_t layer, int64_t page, bool of_values) {
    auto* begin = static_cast<char*>((of_values ? values_ : keys_)[layer]->data());
    return reinterpret_cast<int32_t*>(begin + page * kPageBytes[layer]);
  }
  void write(int64_t layer, int64_t page, int32_t value) {
    *number(layer, page, false) = value;
    *number(layer, page, true) = -value;
    expected_[{layer, page}] = value;
  }
  void check(int64_t layer, int64_t page) {
    const int32_t value = expected_[{layer, page}];  // 0 where nothing was written
    ASSERT_EQ(*number(layer, page, false), value) << "layer " << layer << ", page " << page;
    ASSERT_EQ(*number(layer, page, true), -value) << "layer " << layer << ", page " << page;
  }
  void bring_and_write(int64_t layer, int64_t page, int32_t value) {
    const PageUse use{page, true};
    tiers_.bring(layer, {&use, 1});
    write(layer, page, value);
  }
  void bring_and_check(int64_t layer, int64_t page) {
    const PageUse use{page};
    tiers_.bring(layer, {&use, 1});
    check(layer, page);
  }
  /// Writes every page of both layers, in as many forwards.
  void fill() {
    for (int64_t page = 0; page < kPages; ++page) {
      tiers_.begin_forward({});
      bring_and_write(0, page, static_cast<int32_t>(100 + page));
      bring_and_write(2, page, static_cast<int32_t>(200 + page));
    }
  }

  FakeDisk::State disk_;
  PageTiers tiers_;
  std::map<int64_t, std::unique_ptr<ReservedMemory>> keys_, values_;
  std::map<std::pair<int64_t, int64_t>, int32_t> expected_;
};

TEST_F(PageTiersTest, RandomUsesFindWhatWasWritten) {
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
      tiers_.begin_forward(below(2) == 0 ? std::vector<int64_t>{below(kPages)}
                                         : std::vector<int64_t>{});
    } else if (step % 12 == 1) {
      tiers_.hold(uses.front().page);
    }
    tiers_.bring(layer, uses);
    for (const PageUse& use : uses) {
      check(layer, use.page);
      if (use.is_written) {
        write(layer, use.page, step + 1);
      }
    }
    if (below(2) == 0) {
      tiers_.read_ahead(2 * below(2), std::array{PageUse{below(kPages)}, PageUse{below(kPages)}});
    }
    for (const PageUse& use : uses) {
      check(layer, use.page);  // beside what is read ahead
    }
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
  const KvTiers counts = tiers_.statistics();
  EXPECT_LE(counts.peak_memory_bytes, kMemory);
  EXPECT_GT(counts.promotions, 500);
  EXPECT_GT(counts.read_bytes, 0);
  EXPECT_EQ(counts.memory_bytes % 8192, 0);
}

TEST_F(PageTiersTest, IdlePagesLeaveFirstAndUnchangedOnesAreNotWrittenAgain) {
  fill();
  tiers_.begin_forward({});
  const int64_t written = tiers_.statistics().written_bytes;
  bring_and_check(0, 0);
  bring_and_check(2, 0);
  tiers_.begin_forward({});
  bring_and_check(0, 0);
  bring_and_check(2, 0);
  const KvTiers before = tiers_.statistics();
  bring_and_check(0, 2);  // an idle block of the fill leaves, none of these two
  bring_and_check(0, 0);
  bring_and_check(2, 0);
  EXPECT_EQ(tiers_.statistics().promotions, before.promotions + 1);
  EXPECT_GE(tiers_.statistics().written_bytes, written);
  for (int round = 0; round < 4; ++round) {
    tiers_.begin_forward({});
    for (int64_t page = 0; page < kPages; page += 2) {
      bring_and_check(2, page);
    }
  }
  const KvTiers later = tiers_.statistics();
  tiers_.begin_forward({});
  for (int64_t page = 0; page < kPages; page += 2) {
    bring_and_check(2, page);
  }
  EXPECT_EQ(tiers_.statistics().written_bytes, later.written_bytes) << "nothing has changed";
  EXPECT_GT(tiers_.statistics().read_bytes, later.read_bytes);
}

TEST_F(PageTiersTest, PinnedPagesStayInEveryLayer) {
  fill();
  tiers_.begin_forward({5});
  bring_and_check(0, 5);
  bring_and_check(2, 5);
  for (int64_t page = 8; page < kPages; ++page) {
    bring_and_check(2, page);
  }
  const int64_t promotions = tiers_.statistics().promotions;
  bring_and_check(0, 5);
  bring_and_check(2, 5);
  EXPECT_EQ(tiers_.statistics().promotions, promotions);
}

TEST_F(PageTiersTest, MoreThanTheMemoryHoldsIsAnErrorThatChangesNothing) {
  fill();
  std::vector<PageUse> all;
  for (int64_t page = 0; page < kPages; ++page) {
    all.push_back({page});
  }
  EXPECT_THAT(error_message<Error>([&] { tiers_.bring(2, all); }),
              HasSubstr("raise the cache's memory_megabytes"));
  for (int64_t page = 0; page < kPages; ++page) {
    bring_and_check(0, page);
    bring_and_check(2, page);
  }
}

TEST_F(PageTiersTest, AFailingDiskLosesNothing) {
  fill();
  bring_and_write(0, 1, 77);
  disk_.fails_writes = true;
  EXPECT_THAT(error_message<Error>([&] {
                for (int64_t page = 0; page < kPages; ++page) {
                  tiers_.begin_forward({});
                  bring_and_write(2, page, static_cast<int32_t>(300 + page));
                }
              }),
              HasSubstr("the disk is full"));
  disk_.fails_writes = false;
  disk_.fails_reads = true;
  tiers_.read_ahead(0, std::array{PageUse{20}, PageUse{0}});
  EXPECT_THAT(error_message<Error>([&] {
                for (int64_t page = 0; page < kPages; ++page) {
                  bring_and_check(0, page);
                }
              }),
              HasSubstr("cannot be read"));
  disk_.fails_reads = false;
  for (int64_t page = 0; page < kPages; ++page) {
    bring_and_check(0, page);
    bring_and_check(2, page);
  }
}

TEST_F(PageTiersTest, ADamagedBlockIsAnErrorThatNamesIt) {
  fill();
  disk_.flips_a_bit = true;
  EXPECT_THAT(error_message<Error>([&] { bring_and_check(2, 5); }),
              HasSubstr("pages 4 to 5 of layer 2 in the cache's file are damaged"));
  disk_.flips_a_bit = false;
  bring_and_check(2, 5);
}

TEST(TemporaryPageFileTest, HoldsWhatIsWrittenAndLeavesNoName) {
  const TemporaryFolder folder;
  const auto file = temporary_page_file(folder.path(), 1 << 20);
  ReservedMemory memory(8192);
  memory.use(8192);
  auto* bytes = static_cast<std::byte*>(memory.data());
  std::fill_n(bytes, 4096, std::byte{7});
  file->write(8192, {bytes, 4096});
  file->read(8192, {bytes + 4096, 4096});
  EXPECT_EQ(std::memcmp(bytes, bytes + 4096, 4096), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TemporaryPageFileTest, AFullDiskOrNoFolderIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      error_message<Error>([&] { (void)temporary_page_file(folder.path(), int64_t{1} << 55U); }),
      HasSubstr("MiB of pages of a cache"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_message<Error>([&] { (void)temporary_page_file(folder.path() / "no", 4096); }),
              HasSubstr("no file can be made here"));
}

/// A page for each row or snapshot. Memory for the pages of four rows and for copies of each.
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
    std::vector<std::pair<std::shared_ptr<const KvSnapshot>, std::vector<float>>> snapshots;
    for (int step = 0; step < 400; ++step) {
      random_step(model, random);
      if (step % 7 == 0) {
        model.truncate(0, model.cache().length(0));  // a snapshot has no pending nodes
        snapshots.emplace_back(model.cache().snapshot(0), model.rows().at(0).kept);
      } else if (step % 11 == 0 && !snapshots.empty()) {
        const auto& [snapshot, tokens] = snapshots[random() % snapshots.size()];
        model.restore(0, *snapshot, tokens);
      }
      model.check();
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
    const KvTiers tiers = *model.cache().statistics().tiers;
    EXPECT_GT(tiers.promotions, 4);
    EXPECT_LE(tiers.peak_memory_bytes, options.memory_bytes);
    EXPECT_GT(tiers.disk_bytes, options.memory_bytes);
  }
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

}  // namespace
}  // namespace specdec
