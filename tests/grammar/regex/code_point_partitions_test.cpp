#include "grammar/regex/code_point_partitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/regex/code_points.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;

TEST(CodePointPartitionsTest, RangesOfCodePoints) {
  CodePointPartitions partitions;
  const std::vector<uint32_t> whole = {CodePoints::kLast};
  const std::vector<uint32_t> letters = {'a' - 1, 'z', 0x7F, 0x2028, CodePoints::kLast};
  EXPECT_EQ(partitions.intern(whole), 0U);
  EXPECT_EQ(partitions.intern(letters), 1U);
  EXPECT_EQ(partitions.intern(whole), 0U);
  EXPECT_THAT(partitions.lasts(1), ElementsAre('a' - 1, 'z', 0x7F, 0x2028, CodePoints::kLast));
  for (const char32_t c : {U'\0', U'a', U'\x7F', U'\x80', char32_t{CodePoints::kLast}}) {
    EXPECT_EQ(partitions.range_of(0, c), 0U);
  }
  EXPECT_EQ(partitions.range_of(1, U'`'), 0U);
  EXPECT_EQ(partitions.range_of(1, U'a'), 1U);
  EXPECT_EQ(partitions.range_of(1, U'z'), 1U);
  EXPECT_EQ(partitions.range_of(1, U'{'), 2U);
  EXPECT_EQ(partitions.range_of(1, U'\x7F'), 2U);
  EXPECT_EQ(partitions.range_of(1, U'\x80'), 3U);
  EXPECT_EQ(partitions.range_of(1, 0x2028), 3U);
  EXPECT_EQ(partitions.range_of(1, 0x2029), 4U);
  EXPECT_EQ(partitions.range_of(1, CodePoints::kLast), 4U);
}

}  // namespace
}  // namespace specdec
