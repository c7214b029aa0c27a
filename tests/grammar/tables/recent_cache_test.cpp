#include "grammar/tables/recent_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace specdec {
namespace {

TEST(RecentCacheTest, DropsWhatWasNotUsedForLongest) {
  RecentCache<int, std::string> cache;
  cache.add(1, "one");
  cache.add(2, "two");
  cache.add(3, "three");
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), "one");
  EXPECT_EQ(cache.drop(), std::pair(2, std::string("two")));
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_EQ(cache.drop().first, 3);
  EXPECT_EQ(cache.drop().first, 1);
  EXPECT_EQ(cache.size(), 0U);
}

}  // namespace
}  // namespace specdec
