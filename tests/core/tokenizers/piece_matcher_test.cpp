#include "core/tokenizers/piece_matcher.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

TEST(PieceMatcherTest, FindsTheLongestPieceThatTheTextBeginsWith) {
  PieceMatcher matcher;
  matcher.add("ab", 1);
  matcher.add("abcd", 2);
  matcher.add("b", 3);
  matcher.add("\xE2\x96\x81", 4);
  EXPECT_EQ(matcher.longest("abcdef").id, 2);
  EXPECT_EQ(matcher.longest("abcdef").bytes, 4U);
  EXPECT_EQ(matcher.longest("abc").id, 1) << "a path that leads on does not hide a piece on it";
  EXPECT_EQ(matcher.longest("b").id, 3);
  EXPECT_EQ(matcher.longest("\xE2\x96\x81x").bytes, 3U);
  EXPECT_EQ(matcher.longest("a").bytes, 0U);
  EXPECT_EQ(matcher.longest("xab").bytes, 0U);
  EXPECT_EQ(matcher.longest("").bytes, 0U);
}

TEST(PieceMatcherTest, RefusesTheEmptyPiece) {
  PieceMatcher matcher;
  EXPECT_EQ(matcher.longest("a").bytes, 0U);
  EXPECT_THROW(matcher.add("", 1), InternalError);
}

}  // namespace
}  // namespace specdec
