// Pages between memory and disk: what they hold, what leaves first, and what a failing disk does.
#include "kv/page_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "core/error.h"
#include "core/formats/direct_file.h"
#include "tests/kv/paged_layers.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

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
  // What left of the fill is as much as came: two blocks of the first layer, one of the last.
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

}  // namespace
}  // namespace specdec
