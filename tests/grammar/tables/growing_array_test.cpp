#include "grammar/tables/growing_array.h"

#include <gtest/gtest.h>

#include <thread>

namespace specdec {
namespace {

TEST(GrowingArrayTest, ValuesStayAtTheirAddresses) {
  GrowingArray<int> values;
  EXPECT_EQ(values.find(0), nullptr);
  const int* first = &(values.make(0) = 7);
  for (int i = 1; i < 10'000; ++i) {
    values.make(static_cast<size_t>(i)) = 7 + i;
  }
  EXPECT_EQ(values.find(0), first);
  EXPECT_EQ(values.find(size_t{1} << 31), nullptr);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)], 7 + i);
  }
  EXPECT_GE(values.bytes(), 10'000 * sizeof(int));
}

TEST(GrowingArrayTest, RoomIsOfNewValues) {
  GrowingArray<std::atomic<int>> values;
  values.make(1000) = 3;  // in a later piece than the first
  EXPECT_EQ(values.find(0), nullptr);
  EXPECT_EQ(values[999], 0);
  EXPECT_EQ(values[1000], 3);
}

TEST(GrowingArrayTest, OthersReadWhileItGrows) {
  constexpr size_t kCount = 100'000;
  GrowingArray<size_t> values;
  std::atomic<size_t> known = 0;  // how many
  std::thread reader([&] {
    for (size_t seen = 0; seen < kCount;) {
      seen = known.load(std::memory_order_acquire);
      for (size_t i = seen - std::min<size_t>(seen, 100); i < seen; ++i) {
        EXPECT_EQ(values[i], i * i);
      }
    }
  });
  for (size_t i = 0; i < kCount; ++i) {
    values.make(i) = i * i;
    known.store(i + 1, std::memory_order_release);
  }
  reader.join();
}

}  // namespace
}  // namespace specdec
