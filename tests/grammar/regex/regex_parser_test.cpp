#include "grammar/regex/regex_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool finds(std::string_view pattern, std::string_view text) {
  RegexStore store;
  return store.matches(parse_regex(store, pattern, true), to_code_points(text));
}

bool fits(std::string_view pattern, std::string_view text) {
  RegexStore store;
  return store.matches(parse_regex(store, pattern, false), to_code_points(text));
}

std::string pattern_error(std::string_view pattern) {
  return error_message<GrammarError>([&] {
    RegexStore store;
    parse_regex(store, pattern, true);
  });
}

/// A pattern of letters, classes, groups and quantifiers; with `assertions` also of those, but not
/// within look-ahead, where libstdc++ takes the place for the beginning of the text.
std::string random_pattern(std::mt19937& random, int size, bool assertions) {
  const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  static const std::vector<std::string> kAtoms = {"a", "b", "-", ".", "[ab]", "[^a]", "\\w", "\\W"};
  static const std::vector<std::string> kAsserts = {"^", "$", "\\b", "\\B"};
  static const std::vector<std::string> kCounts = {"*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"};
  if (size <= 1) {
    return assertions && draw(4) == 0 ? kAsserts[draw(4)] : kAtoms[draw(8)];
  }
  const int left = 1 + static_cast<int>(draw(static_cast<unsigned>(size) - 1));
  switch (draw(assertions ? 6 : 5)) {
    case 0:
      return "(?:" + random_pattern(random, size - 1, false) + ")" + kCounts[draw(7)];
    case 1:
      return "(" + random_pattern(random, left, assertions) + "|" +
             random_pattern(random, size - left, assertions) + ")";
    case 5:
      return (draw(2) == 0 ? "(?=" : "(?!") + random_pattern(random, size - 1, false) + ")";
    default:
      return random_pattern(random, left, assertions) +
             random_pattern(random, size - left, assertions);
  }
}

void compare_with_standard(bool assertions, int rounds) {
  std::mt19937 random(assertions ? 5 : 6);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
    for (const char letter : {'a', 'b', '-'}) {
      texts.push_back(texts[i] + letter);
    }
  }
  for (int round = 0; round < rounds; ++round) {
    const std::string pattern = random_pattern(random, 2 + round % 7, assertions);
    const std::regex standard(pattern);
    RegexStore store;
    const RegexId search = parse_regex(store, pattern, true);
    const RegexId whole = parse_regex(store, pattern, false);
    for (const std::string& text : texts) {
      const std::u32string points(text.begin(), text.end());
      ASSERT_EQ(store.matches(search, points), std::regex_search(text, standard))
          << pattern << " in '" << text << "'";
      ASSERT_EQ(store.matches(whole, points), std::regex_match(text, standard))
          << pattern << " as '" << text << "'";
    }
  }
}

TEST(RegexParserTest, AgreesWithTheStandardLibrary) { compare_with_standard(false, 200); }

TEST(RegexParserTest, AgreesWithTheStandardLibraryOnAssertions) {
  compare_with_standard(true, 300);
}

TEST(RegexParserTest, SearchAndWhole) {
  EXPECT_TRUE(finds("b+", "abbc"));
  EXPECT_FALSE(fits("b+", "abbc"));
  EXPECT_TRUE(fits("b+", "bb"));
  EXPECT_TRUE(finds("^a", "ab") && !finds("^a", "ba"));
  EXPECT_TRUE(finds("a$", "ba") && !finds("a$", "ab") && !finds("a$", "a\n"));
  EXPECT_TRUE(finds("^a|b$", "ax") && finds("^a|b$", "xb") && !finds("^a|b$", "xax"));
  EXPECT_TRUE(finds("(x|^)a", "a") && finds("(x|^)a", "bxa") && !finds("(x|^)a", "ba"));
  EXPECT_TRUE(finds("(x*)^a", "a") && !finds("(x+)^a", "xa") && !finds("x^a", "xa"));
  EXPECT_TRUE(finds("", "") && finds("", "abc") && finds("a|", "x"));
  EXPECT_TRUE(fits("\\Aab\\z", "ab"));
}

TEST(RegexParserTest, Classes) {
  EXPECT_TRUE(fits("[a-c\\d_-]+", "ab09_-c") && !fits("[a-c]", "d"));
  EXPECT_TRUE(fits("[\\w-.]+", "a-.") && fits("[-a]+", "-a") && fits("[a\\-z]+", "-"));
  EXPECT_TRUE(fits("[^\\s]", "x") && !fits("[^\\s]", "\xC2\xA0"));
  EXPECT_TRUE(fits("\\s", "\xEF\xBB\xBF") && !fits("\\w", "\xC3\xA9") && !fits("\\d", "\xD9\xA0"));
  EXPECT_TRUE(fits("[^]", "\n") && !fits(".", "\n") && !fits(".", "\xE2\x80\xA8"));
  EXPECT_TRUE(fits(".", "\xC2\x85") && fits(".", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(fits("[]", "a"));
  EXPECT_TRUE(fits("[\\b]", "\b") && fits("[$^.]+", "$^."));
  EXPECT_TRUE(fits("[[:alpha:]]", ":]") && !fits("[[:alpha:]]", "b"));
}

TEST(RegexParserTest, Escapes) {
  EXPECT_TRUE(fits("\\u0061\\u{1F600}\\uD83D\\uDE00\\x41\\cJ\\0",
                   std::string("a\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
                               "A\n\0",
                               12)));
  EXPECT_TRUE(fits("[\\uD83D\\uDE00-\\u{1F605}]", "\xF0\x9F\x98\x81"));
  EXPECT_TRUE(fits("\\-\\_\\/\\@\\\"\\ \\'\\:\\.\\\\", "-_/@\" ':.\\"));
  EXPECT_TRUE(fits("a{b}", "a{b}") && fits("{,3}", "{,3}") && fits("x{1", "x{1"));
  EXPECT_TRUE(fits("\\t\\n\\v\\f\\r", "\t\n\v\f\r"));
}

TEST(RegexParserTest, UnicodeProperties) {
  EXPECT_TRUE(fits("\\p{Letter}+", "\xC3\xA9t\xC3\xA9") && !fits("\\p{L}", "1"));
  EXPECT_TRUE(fits("\\P{L}", "1") && fits("[\\p{Lu}\\p{Nd}]", "\xD9\xA0"));
  EXPECT_TRUE(fits("\\p{Script=Greek}", "\xCE\xB1") && fits("\\p{scx=Grek}", "\xCE\xB1"));
  EXPECT_TRUE(fits("\\p{Emoji}", "\xF0\x9F\x98\x80") && fits("\\p{gc=Lu}", "A"));
  EXPECT_THAT(pattern_error("\\p{Foo}"), HasSubstr("no Unicode property 'Foo'"));
  EXPECT_THAT(pattern_error("\\p{L"), HasSubstr("not closed"));
  EXPECT_THAT(pattern_error("\\p"), HasSubstr("no Unicode property"));
}

TEST(RegexParserTest, Flags) {
  EXPECT_TRUE(fits("(?i)ab[c-d]", "AbD") && !fits("a(?i:b)c", "abC") && fits("a(?i:b)c", "aBc"));
  EXPECT_TRUE(fits("(?s).", "\n") && fits("(?s:.)(?-s:.)", "\nx") && !fits("(?s:.).", "x\n"));
  EXPECT_TRUE(fits("(?i:k)", "\xE2\x84\xAA") && !fits("(?i)[^k]", "K"));
  EXPECT_TRUE(fits("((?i)a)b", "Ab") && !fits("((?i)a)b", "AB"));
  EXPECT_TRUE(fits("(?i:ab){2}", "aBAb"));
  EXPECT_THAT(pattern_error("(?m)^a"), HasSubstr("flag 'm'"));
}

TEST(RegexParserTest, LookAround) {
  EXPECT_TRUE(finds("^(?!.*foo)[a-z]*$", "fobar") && !finds("^(?!.*foo)[a-z]*$", "afoob"));
  const std::string password = "^(?=.*[A-Z])(?=.*\\d).{4,}$";
  EXPECT_TRUE(finds(password, "abC1") && !finds(password, "abc1") && !finds(password, "C1"));
  EXPECT_TRUE(finds("(?<=a)b", "ab") && !finds("(?<=a)b", "b") && !finds("(?<=a)b", "cb"));
  EXPECT_TRUE(finds("(?<!a)b", "b") && !finds("(?<!a)b", "ab") && finds("(?<![a-c]|^)b", "xb"));
  EXPECT_FALSE(finds("(?<![a-c]|^)b", "b"));
  EXPECT_TRUE(finds("^((?!ab).)*$", "ba") && !finds("^((?!ab).)*$", "bab"));
  EXPECT_TRUE(finds("^(?:(?!--)[a-z-])+$", "a-b-") && !finds("^(?:(?!--)[a-z-])+$", "a--b"));
  EXPECT_TRUE(finds("^(a(?!b)|b)?c", "ac") && finds("^(?:\\bx|y\\b){2,3}$", "xy"));
  EXPECT_TRUE(finds("^(?:[a-z]+($|/))+$", "a/b") && finds("^(?:[a-z]+($|/))+$", "a/b/"));
  EXPECT_FALSE(finds("^(?:[a-z]+($|/))+$", "a//b") || finds("^(?:a($|/))*c$", "ac"));
  EXPECT_TRUE(finds("^(?:a($|/))*c?$", "a") && finds("^(?:a($|/))*c$", "a/c"));
  EXPECT_TRUE(finds("\\bfoo\\b", "a foo.") && !finds("\\bfoo\\b", "afoo"));
}

TEST(RegexParserTest, ErrorsSayWhatAndWhere) {
  EXPECT_THAT(pattern_error("abc(d"), AllOf(StartsWith("pattern 'abc(d', character 4: "),
                                            HasSubstr("the group is not closed; add ')'")));
  EXPECT_THAT(pattern_error("a)"), AllOf(HasSubstr("character 2"), HasSubstr("closes no group")));
  EXPECT_THAT(pattern_error("[a"), HasSubstr("class is not closed"));
  EXPECT_THAT(pattern_error("[z-a]"), HasSubstr("out of order"));
  EXPECT_THAT(pattern_error("a{3,2}"), HasSubstr("out of order"));
  EXPECT_THAT(pattern_error("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(pattern_error("a**"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(pattern_error("a++"), HasSubstr("possessive"));
  EXPECT_THAT(pattern_error("(?>a)"), HasSubstr("atomic"));
  EXPECT_THAT(pattern_error("(a)\\1"),
              AllOf(HasSubstr("character 4"), HasSubstr("back-references")));
  EXPECT_THAT(pattern_error("(?<n>a)\\k<n>"), HasSubstr("back-references"));
  EXPECT_THAT(pattern_error("\\Z"), HasSubstr("use '$'"));
  EXPECT_THAT(pattern_error("\\a"), HasSubstr("no meaning"));
  EXPECT_THAT(pattern_error("\\"), HasSubstr("nothing follows"));
  EXPECT_THAT(pattern_error("\\u12"), HasSubstr("4 hexadecimal"));
  EXPECT_THAT(pattern_error("\\u{110000}"), HasSubstr("up to 10FFFF"));
  EXPECT_THAT(pattern_error("\\01"), HasSubstr("no meaning"));
  EXPECT_THAT(pattern_error("(?<=ab)c"), HasSubstr("look-behind is not supported"));
  EXPECT_THAT(pattern_error("(?:^a|b$)+"), HasSubstr("repeated are not supported"));
  EXPECT_THAT(pattern_error("a{99999999999}"), HasSubstr("larger than"));
  EXPECT_THAT(pattern_error("(?"), HasSubstr("not supported"));
  EXPECT_THAT(pattern_error("\xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(pattern_error(std::string(300, 'a') + "("), HasSubstr("aaa...', character 301"));
}

TEST(RegexParserTest, HostileInputs) {
  EXPECT_THAT(pattern_error(std::string(100'000, '(')), HasSubstr("nested more than 500 deep"));
  EXPECT_THAT(pattern_error(std::string(100'000, '[')), HasSubstr("not closed"));
  std::string nested = "a";
  for (int i = 0; i < 400; ++i) {
    nested = "(" + nested + ")*";
  }
  EXPECT_TRUE(finds("^" + nested + "$", "aaaa") && !finds("^" + nested + "$", "ab"));
  EXPECT_THAT(pattern_error("((((^a|b){0,60}c){0,60}d){0,60}e){0,60}"), HasSubstr("too large"));
  EXPECT_TRUE(finds("^(a|aa)+$", std::string(1000, 'a')));
  RegexStore store;
  const RegexId counted = parse_regex(store, "^.{0,1000000000}$", true);
  EXPECT_NE(store.next(counted, 'x'), RegexStore::kNothing);
  const std::string literal(100'000, 'x');
  EXPECT_TRUE(
      store.matches(parse_regex(store, literal + "y", false), to_code_points(literal + "y")));
}

TEST(RegexParserTest, CommonPatternsStaySmall) {
  RegexStore store;
  const RegexId slug = parse_regex(store, "^[a-z0-9]+(?:-[a-z0-9]+)*$", true);
  const RegexId bounded = store.all_of(slug, store.repeat(store.one_of(CodePoints::all()), 3, 60));
  EXPECT_EQ(store.shortest(bounded)->size(), 3);
  EXPECT_TRUE(store.matches(bounded, U"a-b-c"));
  EXPECT_LT(store.states(), 200);
  EXPECT_EQ(store.star_of(parse_regex(store, "^[a-f]*$", true)), CodePoints({{'a', 'f'}}));
  EXPECT_EQ(parse_regex(store, ".*", true), RegexStore::kAll);
}

}  // namespace
}  // namespace specdec
