#include "core/transformer/paging/layer_pager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kLayers = 7;

/// Fills a layer with its number, and fails as often as it is told to.
class NumberStore final : public LayerStore {
 public:
  int64_t layers() const override { return kLayers; }
  int64_t bytes(int64_t /*layer*/) const override { return kLayerAlignment; }
  void read(int64_t layer, std::span<std::byte> memory) override {
    ++reads;
    if (layer == broken && failures-- > 0) {
      throw Error("the disk is gone");
    }
    std::fill(memory.begin(), memory.end(), static_cast<std::byte>(layer));
  }

  std::atomic<int64_t> reads = 0;
  int64_t broken = -1;
  std::atomic<int64_t> failures = 0;
};

std::vector<int64_t> all_layers() { return {0, 1, 2, 3, 4, 5, 6}; }

bool holds(const LayerPager& pager, int64_t layer) {
  const std::byte* memory = pager.memory(layer).get();
  return std::all_of(memory, memory + kLayerAlignment,
                     [layer](std::byte byte) { return byte == static_cast<std::byte>(layer); });
}

void run_layers(LayerPager& pager, const std::vector<int64_t>& layers) {
  pager.prefetch(layers);
  for (const int64_t layer : layers) {
    const HeldLayer held(&pager, layer);
    ASSERT_TRUE(holds(pager, layer)) << layer;
  }
}

TEST(LayerPagerTest, HoldsEachLayerWhileItIsUsed) {
  const auto store = std::make_shared<NumberStore>();
  LayerPager pager(store, all_layers());
  for (int round = 0; round < 50; ++round) {
    run_layers(pager, all_layers());
    run_layers(pager, {1, 3, 5});  // all in one buffer
    run_layers(pager, {6});
    run_layers(pager, {0, 5, 6});
  }
  const LayerReads reads = pager.reads();
  EXPECT_EQ(reads.layers, 50 * (7 + 3 + 1 + 3));
  EXPECT_LE(reads.ready, reads.layers);
}

TEST(LayerPagerTest, CountsTheBytesOfWhatWasUsed) {
  const auto store = std::make_shared<NumberStore>();
  LayerPager pager(store, all_layers());
  for (int round = 0; round < 10; ++round) {
    run_layers(pager, all_layers());
  }
  EXPECT_EQ(pager.reads().bytes, 10 * kLayers * kLayerAlignment);
  EXPECT_GE(store->reads, 10 * kLayers);  // and what is read ahead for a forward to come
  EXPECT_LE(store->reads, 10 * kLayers + LayerPager::kBuffers);
}

TEST(LayerPagerTest, ReadsALayerOnceThatStays) {
  const auto store = std::make_shared<NumberStore>();
  LayerPager pager(store, all_layers());
  for (int round = 0; round < 10; ++round) {
    run_layers(pager, {2, 3});
  }
  EXPECT_EQ(store->reads, 2);
  EXPECT_EQ(pager.reads().bytes, 2 * kLayerAlignment);
  EXPECT_GE(pager.reads().ready, 18);
}

TEST(LayerPagerTest, ReadsAheadWhileALayerIsHeld) {
  const auto store = std::make_shared<NumberStore>();
  LayerPager pager(store, all_layers());
  pager.prefetch(all_layers());
  const HeldLayer held(&pager, 0);
  while (store->reads < 2) {  // would hang if layer 1 were not read now
    std::this_thread::yield();
  }
  EXPECT_TRUE(holds(pager, 0));
}

TEST(LayerPagerTest, AFailedReadIsAnErrorAndTriedAgain) {
  const auto store = std::make_shared<NumberStore>();
  store->broken = 3;
  store->failures = 1;
  LayerPager pager(store, all_layers());
  pager.prefetch(all_layers());
  const auto run = [&] {
    for (const int64_t layer : all_layers()) {
      const HeldLayer held(&pager, layer);
      EXPECT_TRUE(holds(pager, layer));
    }
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(HasSubstr("the disk is gone")));
  run_layers(pager, all_layers());
}

TEST(LayerPagerTest, ThreadsShareIt) {
  const auto store = std::make_shared<NumberStore>();
  LayerPager pager(store, all_layers());
  std::vector<std::thread> threads;
  std::atomic<int64_t> wrong = 0;
  for (int64_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      for (int64_t i = 0; i < 300; ++i) {
        const int64_t layer = (first + i * (first + 1)) % kLayers;
        if (i % 10 == 0) {
          pager.prefetch(std::vector<int64_t>{layer, (layer + 1) % kLayers});
        }
        const HeldLayer held(&pager, layer);
        wrong += holds(pager, layer) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pager.reads().layers, 900);
}

TEST(LayerPagerTest, FailsForAllThatWait) {
  const auto store = std::make_shared<NumberStore>();
  store->broken = 2;
  store->failures = int64_t{1} << 40U;
  LayerPager pager(store, all_layers());
  std::vector<std::thread> threads;
  std::atomic<int64_t> failed = 0;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        try {
          pager.acquire(2);
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failed, 150);
}

TEST(LayerPagerTest, KnowsNoOtherLayers) {
  LayerPager pager(std::make_shared<NumberStore>(), {1, 3});
  EXPECT_THROW(pager.acquire(2), InternalError);
  EXPECT_THROW(LayerPager(std::make_shared<NumberStore>(), {kLayers}), InternalError);
}

}  // namespace
}  // namespace specdec
