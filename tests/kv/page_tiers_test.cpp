// Pages between memory and disk: what they hold, what leaves first, and what a failing disk does.
#include "kv/page_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "core/draft.h"
#include "core/error.h"
#include "core/formats/direct_file.h"
#include "kv/addressed_blocks.h"
#include "kv/page_memory.h"
#include "tests/kv/cache_model.h"
#include "tests/kv/fake_disk.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Three layers with own pages of 2, 0 and 4 KiB of keys: blocks of two pages.
class PageTiersTest : public testing::Test {
 protected:
  static constexpr int64_t kPages = 24;
  static constexpr int64_t kMemory = 128 << 10;  // of 288 KiB
  static constexpr int64_t kPageBytes[] = {2048, 0, 4096};

  explicit PageTiersTest(std::shared_ptr<const TierPolicy> policy = nullptr)
      : tiers_(reserved_blocks(), std::move(policy)) {}

  std::unique_ptr<BlockMemory> reserved_blocks() {
    std::vector<AddressedBlocks::Addresses> addresses(3);
    for (const int64_t layer : {0, 2}) {
      for (auto* memory : {&keys_[layer], &values_[layer]}) {
        *memory = std::make_unique<ReservedMemory>(kPages * kPageBytes[layer]);
        (*memory)->use(kPages * kPageBytes[layer]);
      }
      addresses[static_cast<size_t>(layer)] = {static_cast<std::byte*>(keys_[layer]->data()),
                                               static_cast<std::byte*>(values_[layer]->data())};
    }
    const TieredPages pages{.page_bytes = {2048, 0, 4096},
                            .pages_per_block = equal_pages(kPageBytes),
                            .capacity = kPages,
                            .memory_bytes = kMemory};
    return std::make_unique<AddressedBlocks>(pages, std::move(addresses),
                                             std::make_unique<FakeDisk>(disk_));
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
  /// Writes the first pages of both layers, in as many forwards.
  void fill(int64_t pages = kPages) {
    for (int64_t page = 0; page < pages; ++page) {
      tiers_.begin_forward({});
      bring_and_write(0, page, static_cast<int32_t>(100 + page));
      bring_and_write(2, page, static_cast<int32_t>(200 + page));
    }
  }

  /// Pages of a layer that lie in memory.
  int64_t pages_in_memory(int64_t layer) {
    int64_t count = 0;
    for (int64_t page = 0; page < kPages; ++page) {
      const auto state = tiers_.state(layer, page);
      count += state && state->tier == KvTier::kMemory ? 1 : 0;
    }
    return count;
  }

  FakeDisk::State disk_;
  std::map<int64_t, std::unique_ptr<ReservedMemory>> keys_, values_;
  PageTiers tiers_;
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
      const std::array<int64_t, 2> leaving = {below(kPages), below(kPages)};
      (void)(below(4) == 0 ? tiers_.demote(leaving, std::span(leaving).last(1))
                           : tiers_.promote(layer, uses));
      (void)tiers_.keep_free(below(2) * 4096);
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
  // As much of the fill left as came: two blocks of the first layer, one of the last.
  EXPECT_EQ(tiers_.statistics().written_bytes, written + 2 * 8192 + 16384);
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

/// Notes what it is asked about.
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

TEST_F(PageTiersTest, IdleBlocksLeaveUntilSoMuchIsFree) {
  fill();
  EXPECT_GT(tiers_.statistics().memory_bytes, kMemory - 16384);
  EXPECT_GT(tiers_.keep_free(kMemory / 2), 0);
  EXPECT_LE(tiers_.statistics().memory_bytes, kMemory / 2);
  EXPECT_EQ(tiers_.keep_free(kMemory / 2), 0);
  (void)tiers_.keep_free(kMemory);
  EXPECT_EQ(tiers_.statistics().memory_bytes, 8192 + 16384) << "the last block is in use";
  EXPECT_EQ(tiers_.state(2, 23)->tier, KvTier::kMemory);
  EXPECT_EQ(tiers_.state(2, 21)->tier, KvTier::kDisk);
  EXPECT_EQ(tiers_.state(1, 0), std::nullopt) << "it has no pages";
}

TEST_F(PageTiersTest, PagesGoAndComeBackOnRequest) {
  fill();
  const std::array<int64_t, 3> pages = {20, 21, 22};
  const std::array<int64_t, 1> kept = {23};
  EXPECT_EQ(tiers_.demote(pages, kept), 8192 + 16384) << "pages 22 and 23 are a block";
  EXPECT_EQ(tiers_.demote(pages, kept), 0);
  EXPECT_EQ(pages_in_memory(2), 2 * (tiers_.statistics().memory_bytes / 24576));
  disk_.fails_reads = true;
  const std::array uses = {PageUse{20}, PageUse{21}};
  EXPECT_THAT(error_message<Error>([&] { (void)tiers_.promote(2, uses); }),
              HasSubstr("cannot be read"));
  disk_.fails_reads = false;
  EXPECT_EQ(tiers_.promote(2, uses), 16384);
  EXPECT_EQ(tiers_.promote(2, uses), 0);
  check(2, 20);
  check(2, 21);
  tiers_.prefetch(0, uses);
  EXPECT_EQ(tiers_.state(0, 20)->tier, KvTier::kMemory);
  check(0, 20);
  (void)tiers_.demote(std::array<int64_t, 2>{20, 21}, {});
  for (int forward = 0; forward < 3; ++forward) {
    tiers_.begin_forward({});
  }
  tiers_.prefetch(0, uses);
  tiers_.begin_forward({});
  bring_and_check(2, 5);
  (void)tiers_.keep_free(kMemory);
  EXPECT_EQ(tiers_.state(0, 20)->tier, KvTier::kMemory) << "it waits for its forward";
}

TEST_F(PageTiersTest, HeldPagesStayUntilTheirEnd) {
  fill();
  tiers_.begin_forward({});
  tiers_.hold(5);
  const auto read_all = [this] {
    for (int64_t page = 8; page < kPages; ++page) {
      bring_and_check(2, page);
    }
    const int64_t promotions = tiers_.statistics().promotions;
    bring_and_check(0, 5);
    bring_and_check(2, 5);
    return tiers_.statistics().promotions - promotions;
  };
  EXPECT_EQ(read_all(), 0);
  tiers_.end_holds();
  EXPECT_GT(read_all(), 0);
}

/// Pages that two layers are about to write.
std::vector<LayerUses> uses_of_pages(int64_t of_first, int64_t of_last) {
  std::vector<LayerUses> layers = {{0, {}}, {2, {}}};
  for (int64_t page = 0; page < of_first; ++page) {
    layers[0].uses.push_back({page, true});
  }
  for (int64_t page = 0; page < of_last; ++page) {
    layers[1].uses.push_back({page, true});
  }
  return layers;
}

TEST_F(PageTiersTest, LayersAreResidentTogetherOrNothingMoves) {
  const auto counts = [this] {
    const KvTiers all = tiers_.statistics();
    return std::vector{all.memory_bytes, all.promotions, all.demotions,
                       all.accesses,     all.read_bytes, all.written_bytes};
  };
  tiers_.begin_forward({});
  EXPECT_TRUE(tiers_.make_resident({}));
  ASSERT_TRUE(tiers_.make_resident(uses_of_pages(8, 12)));  // 128 KiB that are new
  EXPECT_EQ(pages_in_memory(0), 8);
  EXPECT_EQ(pages_in_memory(2), 12);
  const auto resident = counts();
  EXPECT_TRUE(tiers_.make_resident(uses_of_pages(8, 12)));
  EXPECT_EQ(counts(), resident) << "all of it is there, and used by the same forward";
  EXPECT_FALSE(tiers_.make_resident(uses_of_pages(10, 12)));
  EXPECT_EQ(counts(), resident) << "no room for one more block";

  const std::array<int64_t, 1> left = {10};  // a block in layer 2, two free ones' worth in 0
  ASSERT_EQ(tiers_.demote(left, {}), 16384);
  const auto without = counts();
  EXPECT_FALSE(tiers_.make_resident(uses_of_pages(8, 12))) << "a page has left";
  EXPECT_EQ(counts(), without);
  EXPECT_TRUE(tiers_.make_resident(uses_of_pages(12, 10)));
  EXPECT_EQ(tiers_.statistics().read_bytes, 0);
  tiers_.begin_forward({23});
  EXPECT_FALSE(tiers_.make_resident(uses_of_pages(0, 12)));
  bring_and_check(2, 10);
  bring_and_check(2, 23);  // stays, in this layer
  EXPECT_FALSE(tiers_.make_resident(uses_of_pages(8, 12))) << "a pinned page takes the room";
}

TEST_F(PageTiersTest, NewPagesOfLayersHaveTheRoomOfIdleOnes) {
  fill(kPages - 2);
  for (int forward = 0; forward < 3; ++forward) {
    tiers_.begin_forward({});
  }
  const auto kept = tiers_.statistics();
  std::vector<LayerUses> uses = uses_of_pages(0, 0);
  uses[0].uses = {{kPages - 2, true}};
  uses[1].uses = {{kPages - 1, true}};
  disk_.fails_writes = true;
  EXPECT_THAT(error_message<Error>([&] { (void)tiers_.make_resident(uses); }),
              HasSubstr("the disk is full"));
  disk_.fails_writes = false;
  EXPECT_TRUE(tiers_.make_resident(uses));
  EXPECT_GT(tiers_.statistics().demotions, kept.demotions);
  EXPECT_EQ(tiers_.statistics().promotions, kept.promotions);
  write(0, kPages - 2, 7);
  write(2, kPages - 1, 8);
  for (int64_t page = 0; page < kPages; ++page) {
    bring_and_check(0, page);
    bring_and_check(2, page);
  }
}

TEST_F(PageTiersTest, AnUndoneForwardIsNone) {
  for (const bool is_undone : {false, true}) {
    tiers_.begin_forward({});
    bring_and_check(0, 0);
    bring_and_check(0, 2);
    tiers_.begin_forward({});
    if (is_undone) {
      tiers_.undo_forward();
    }
    tiers_.begin_forward({});
    bring_and_check(0, 2);
    EXPECT_EQ(tiers_.keep_free(kMemory), is_undone ? 0 : 8192) << "an idle block leaves";
  }
}

/// Flags of the mapping that an address lies in; "" where the system does not tell.
std::string flags_of_memory(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_inside = begin <= at && at < end;
    } else if (is_inside && line.rfind("VmFlags:", 0) == 0) {
      return line;
    }
  }
  return "";
}

TEST_F(PageTiersTest, NoLargePageHoldsSeveralBlocks) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage") ||
      flags_of_memory(keys_[0]->data()).empty()) {
    GTEST_SKIP() << "the system has no large pages, or does not tell";
  }
  for (const int64_t layer : {0, 2}) {
    EXPECT_THAT(flags_of_memory(keys_[layer]->data()), HasSubstr(" nh"));
    EXPECT_THAT(flags_of_memory(values_[layer]->data()), HasSubstr(" nh"));
  }
}

TEST(PagesPerBlockTest, BlocksAreWholePagesOfTheSystemAndOfTheDisk) {
  const std::vector<int64_t> page_bytes = {96, 0, 2560, 4096};
  for (const bool equally_many : {false, true}) {
    const auto pages = equally_many ? equal_pages(page_bytes) : equal_bytes(page_bytes);
    for (size_t layer = 0; layer < page_bytes.size(); ++layer) {
      const int64_t bytes = pages[layer] * page_bytes[layer];
      EXPECT_EQ(bytes % kDirectAlignment, 0);
      EXPECT_EQ(bytes % sysconf(_SC_PAGESIZE), 0);
      EXPECT_TRUE(equally_many ? pages[layer] == pages[0] : layer == 1 || bytes == pages[3] * 4096);
    }
  }
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
  const auto message_of = [&](int64_t bytes) {
    return error_message<Error>([&] { (void)temporary_page_file(folder.path(), bytes); });
  };
  {
    const FullDisk full;  // a real one would be filled first
    EXPECT_THAT(message_of((3 << 20) + 1), HasSubstr("the disk has no room for 4 MiB of pages"));
  }
  EXPECT_THAT(message_of(-(1 << 20)), HasSubstr("no file can be given -1 MiB of pages of a cache"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_message<Error>([&] { (void)temporary_page_file(folder.path() / "no", 4096); }),
              HasSubstr("no file can be made here"));
}

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
