#include "grammar/tables/bounded_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace specdec {
namespace {

/// Bytes that an entry takes beside its value.
template <class Value>
uint64_t place() {
  BoundedCache<int, Value> cache(0);
  cache.add(0, Value(), 0);
  return cache.bytes();
}

TEST(BoundedCacheTest, DropsWhatWasNotUsedForLongest) {
  BoundedCache<int, std::string> cache(2 * place<std::string>() + 20);
  cache.add(1, "one", 10);
  cache.add(2, "two", 10);
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), "one");
  cache.add(3, "three", 10);
  EXPECT_TRUE(cache.has(1));
  EXPECT_FALSE(cache.has(2));
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_EQ(cache.bytes(), 2 * place<std::string>() + 20);
}

TEST(BoundedCacheTest, TheNewestStaysHoweverLarge) {
  BoundedCache<int, std::string> cache(1);
  cache.add(1, "one", 10);
  EXPECT_EQ(cache.add(2, "two", 1'000), "two");
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_TRUE(cache.has(2));
}

TEST(BoundedCacheTest, WhatIsSharedCountsOnce) {
  const int what = 0;
  BoundedCache<int, int> cache(100'000);
  cache.add(1, 1, 10, {&what, 1'000});
  const uint64_t one = cache.bytes();
  cache.add(2, 2, 10, {&what, 1'000});
  EXPECT_EQ(cache.bytes(), 2 * one - 1'000);
  BoundedCache<int, int> small(one);
  small.add(1, 1, 10, {&what, 1'000});
  small.add(2, 2, 10, {&what, 1'000});  // the first goes, what it shared stays
  EXPECT_EQ(small.bytes(), one);
  small.add(3, 3, 10);
  EXPECT_EQ(small.bytes(), one - 1'000);
}

TEST(BoundedCacheTest, ValuesThatGrew) {
  BoundedCache<int, uint64_t> cache(3 * place<uint64_t>() + 30);
  for (int key = 1; key <= 3; ++key) {
    cache.add(key, 10, 10);
  }
  *cache.find(1) = 40;  // now used last
  cache.recount([](uint64_t value) { return value; });
  EXPECT_TRUE(cache.has(1));
  EXPECT_FALSE(cache.has(2));
  EXPECT_LE(cache.bytes(), cache.max_bytes());
}

TEST(BoundedCacheTest, StaysWithinItsLimit) {
  std::mt19937 random(4);
  const std::array<int, 3> shared = {};
  BoundedCache<uint32_t, uint32_t> cache(20'000);
  for (int i = 0; i < 5'000; ++i) {
    const uint32_t key = random() % 300;
    const size_t which = random() % 4;
    if (const uint32_t* found = cache.find(key)) {
      ASSERT_EQ(*found, key * 7);
    } else {
      cache.add(key, key * 7, random() % 500,
                which == 3 ? decltype(cache)::Shared()
                           : decltype(cache)::Shared{&shared[which], 1'000 * which});
    }
    ASSERT_LE(cache.bytes(), cache.max_bytes());
  }
  EXPECT_GT(cache.size(), 20U);
}

}  // namespace
}  // namespace specdec
