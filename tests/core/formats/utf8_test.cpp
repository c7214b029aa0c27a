#include "core/formats/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace specdec {
namespace {

TEST(Utf8Test, AcceptsWellFormedCharactersAtTheirBorders) {
  for (const std::string text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                                 "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    const Utf8Scan scan = scan_utf8(text + "x");
    EXPECT_TRUE(scan.valid) << text;
    EXPECT_EQ(scan.bytes, text.size()) << text;
  }
}

TEST(Utf8Test, RefusesOverlongSurrogateAndTooLarge) {
  for (const std::string text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    const Utf8Scan scan = scan_utf8(text);
    EXPECT_FALSE(scan.valid);
    EXPECT_FALSE(scan.prefix);
    EXPECT_EQ(scan.bytes, 1U);
  }
}

TEST(Utf8Test, KnowsUnfinishedCharacters) {
  for (const std::string text : {"\xC3", "\xE2\x82", "\xE2", "\xF0\x9F\x98", "\xF0\x9F", "\xF0"}) {
    const Utf8Scan scan = scan_utf8(text);
    EXPECT_TRUE(scan.prefix);
    EXPECT_EQ(scan.bytes, text.size());
  }
  const Utf8Scan broken = scan_utf8("\xE2\x82x");
  EXPECT_FALSE(broken.prefix);
  EXPECT_EQ(broken.bytes, 2U) << "the part that cannot become a character";
}

TEST(Utf8Test, RunsCoverTheTextByTurns) {
  EXPECT_TRUE(utf8_runs("").empty());
  const std::string text =
      "\xFF\xFE"
      "abé"
      "\xE2\x82"
      "z"
      "\xC3";
  const auto runs = utf8_runs(text);
  ASSERT_EQ(runs.size(), 5U);
  std::string joined;
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].valid, i % 2 == 1);
    EXPECT_EQ(is_utf8(runs[i].text), i % 2 == 1);
    joined += runs[i].text;
  }
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace specdec
