// The cuts are those of the `tokenizers` library, which splits by Oniguruma.
#include "core/tokenizers/oniguruma.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/tokenizers/pre_tokenizer.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST(OnigurumaTest, CutsAsTheLibraryDoes) {
  struct Case {
    const char* pattern;
    std::string text;
    std::vector<std::string> pieces;
  };
  const Case cases[] = {{R"([\p{L}&&[^a-m]]+)", "abyzcZ", {"ab", "yz", "c", "Z"}},
                        {R"([^\p{L}&&[^a-m]]+)", "abyzc", {"ab", "yz", "c"}},
                        {R"([a-z&&[^aeiou]&&[^xyz]]+)", "abcxde", {"a", "bc", "x", "d", "e"}},
                        {R"([x[bc]]+)", "axbcd", {"a", "xbc", "d"}},
                        {R"([^x[^bc]]+)", "axbcd", {"ax", "bc", "d"}},
                        {R"(\h+)", "xFe g1", {"x", "Fe", " g", "1"}},
                        {R"([[:alpha:]]+|[[:punct:]])", "ab+\u00a3.", {"ab", "+", "\u00a3", "."}},
                        {R"([[:^alpha:]]+)", "a12b", {"a", "12", "b"}},
                        {R"(\w+)", "a\u0301_\u00b2!", {"a\u0301_\u00b2", "!"}},
                        {R"([\w]+)", "a\u00b2", {"a", "\u00b2"}},
                        {R"(\b)", "ab c", {"ab", " ", "c"}},
                        {R"(\p{Han}+)", "\u4e2d\u3001a", {"\u4e2d", "\u3001a"}},
                        {R"(^.|.$)", "ab\ncd", {"a", "b", "\n", "c", "d"}},
                        {R"((?m:a.))", "xa\nb", {"x", "a\n", "b"}},
                        {R"(\v|\u0062)", "a\vb", {"a", "\v", "b"}},
                        {R"(a{,2}b)", "aaab", {"a", "aab"}},
                        {R"(\d{2}+x)", "12345x", {"1", "2345x"}},
                        {R"((?<n>a)|b)", "xab", {"x", "a", "b"}},
                        {R"((?i:[sdmt]|ll))", "xLL\u017f", {"x", "LL", "\u017f"}},
                        {R"(x*)", "axxb", {"a", "xx", "b"}},
                        {R"((?=b))", "abb", {"a", "b", "b"}}};
  for (const Case& one : cases) {
    EXPECT_THAT(PreTokenizer({one.pattern}, "t.json").split(one.text), ElementsAreArray(one.pieces))
        << one.pattern;
  }
}

TEST(OnigurumaTest, WhatIsNotSupportedIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(ab\G)", R"(\G at byte 2 is not supported)"},
      {R"(\K)", R"(\K at byte 0)"},
      {R"(\X)", R"(\X at byte 0)"},
      {R"((a)\1)", R"(\1 at byte 3)"},
      {R"(\g<n>)", R"(\g at byte 0)"},
      {R"((?~a))", "the group (?~a at byte 0"},
      {R"((*FAIL))", "the group (*FA at byte 0"},
      {R"(a(?i)b|c)", "the group (?i) at byte 1"},
      {R"((?x: a))", "the group (?x: at byte 0"},
      {R"(a{2}?)", "the repetition {2}? at byte 1"},
      {R"(a{3,1})", "the repetition {3,1} at byte 1"},
      {R"([]a])", "] at the beginning of a class at byte 1"},
      {R"([\w-x])", "- behind many characters at byte 3"},
      {R"([a&&])", "&& beside nothing at byte 5"},
      {R"([[:graph:]])", "the POSIX bracket graph at byte 3"},
      {R"(\p{In_Basic_Latin})", R"(\p{In_Basic_Latin} at byte 0)"},
      {R"(\xE9)", R"(\xE9 at byte 0)"},
      {R"((?i:ss))", "'s' without case at byte 5"},
      {R"((?i:\p{L}))", R"(\p without case at byte 4)"},
      {R"((?i:\u00DF))", R"(\u00 at byte 4)"},
      {R"([a)", "the end at byte 2 comes too early"},
      {R"((a)", "the end at byte 2 comes before the ) of a group"},
      {R"(a))", ") at byte 1 closes no group"}};
  for (const auto& [pattern, expected] : cases) {
    EXPECT_THAT(error_message<Error>([pattern = pattern] { (void)pcre2_of_oniguruma(pattern); }),
                HasSubstr(expected))
        << pattern;
  }
}

TEST(OnigurumaTest, NestingDoesNotExhaustTheStack) {
  for (const char* open : {"(", "[a"}) {
    std::string pattern;
    for (int i = 0; i < 100000; ++i) {
      pattern += open;
    }
    EXPECT_THAT(error_message<Error>([&] { (void)pcre2_of_oniguruma(pattern); }),
                HasSubstr("is nested too deeply"));
  }
}

TEST(OnigurumaTest, AnExpressionThatTakesTooLongIsNamed) {
  const PreTokenizer pre({"(?:a|a)+[bc]"}, "t.json");
  EXPECT_THAT(error_message<Error>([&] { (void)pre.split(std::string(60, 'a')); }),
              HasSubstr("t.json: the pre-tokenizer's expression \"(?:a|a)+[bc]\" takes too long or "
                        "too much memory for a text of 60 bytes (match limit exceeded)"));
}

}  // namespace
}  // namespace specdec
