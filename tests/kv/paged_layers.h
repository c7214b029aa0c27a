#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kv/addressed_blocks.h"
#include "kv/page_memory.h"
#include "kv/page_tiers.h"
#include "tests/kv/fake_disk.h"

namespace specdec {

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

}  // namespace specdec
