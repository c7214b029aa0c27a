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
using ::testing::AnyOf;
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
  EXPECT_TRUE(fits("[[:a]", ":") && fits("[\\[:a:]+\\]", "[a]"));
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
  EXPECT_TRUE(finds("(?m)^b$", "a\nb\r") && !finds("^b", "a\nb") && !finds("(?m)^b", "ab"));
  EXPECT_THAT(pattern_error("(?x)a"), HasSubstr("flag 'x' is not supported; i, m, s and u are"));
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
  EXPECT_THAT(pattern_error("\\01"), HasSubstr("octal"));
  EXPECT_THAT(pattern_error("(?<=ab)c"), HasSubstr("look-behind is not supported"));
  EXPECT_THAT(pattern_error("(?:^a|b$)+"), HasSubstr("repeated are not supported"));
  EXPECT_THAT(pattern_error("a{99999999999}"), HasSubstr("larger than"));
  EXPECT_THAT(pattern_error("(?"), HasSubstr("not supported"));
  EXPECT_THAT(pattern_error("\xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(pattern_error(std::string(300, 'a') + "("), HasSubstr("aaa...', character 301"));
}

/// What a construct does: a text that it matches as a whole and one that it does not, or the error.
struct Construct {
  const char* pattern;
  const char* match;  ///< nullptr: refused
  const char* other;  ///< not matched; the error's words
};

void check_constructs(RegexDialect dialect, const std::vector<Construct>& constructs) {
  for (const Construct& construct : constructs) {
    const char* pattern = construct.pattern;
    const char* match = construct.match;
    const char* other = construct.other;
    RegexStore store;
    const auto error = error_message<GrammarError>([&] {
      const RegexId regex = parse_regex(store, pattern, false, dialect);
      if (match != nullptr) {
        EXPECT_TRUE(store.matches(regex, to_code_points(match))) << pattern << " as " << match;
        EXPECT_FALSE(store.matches(regex, to_code_points(other))) << pattern << " as " << other;
      }
    });
    if (match == nullptr) {
      EXPECT_THAT(error, AllOf(HasSubstr("character "), HasSubstr(other))) << pattern;
    } else {
      EXPECT_EQ(error, "no error") << pattern;
    }
  }
}

/// The constructs of ECMA-262, and those of others that could be taken for characters.
TEST(RegexParserTest, EveryConstructIsUnderstoodOrRefused) {
  check_constructs(
      RegexDialect::kEcma,
      {{"a|b", "b", "c"},
       {"a*", "aa", "b"},
       {"a+", "aa", ""},
       {"a?", "", "aa"},
       {"a{2}", "aa", "a"},
       {"a{2,}", "aaa", "a"},
       {"a{1,2}", "aa", "aaa"},
       {"a*?b", "ab", "a"},
       {"a+?", "aa", ""},
       {"a??", "a", "aa"},
       {"a{1,2}?", "aa", "aaa"},
       {"a{,2}", "a{,2}", "aa"},
       {"(a)", "a", "b"},
       {"(?:a)", "a", "b"},
       {"(?<n>a)", "a", "b"},
       {"(?P<n>a)", "a", "b"},
       {"(?=a)a", "a", "b"},
       {"(?!a)[ab]", "b", "a"},
       {"a(?<=a)", "a", "b"},
       {"a(?<!b)", "a", "b"},
       {"^a$", "a", "a\n"},
       {"\\ba\\b", "a", "b"},
       {"a\\Bb", "ab", "a"},
       {"\\Aa", "a", "b"},
       {"a\\z", "a", "b"},
       {".", "a", "\n"},
       {"[^]", "\n", ""},
       {"[^\\]]", "a", "]"},
       {"[a-c]", "b", "d"},
       {"[^a-c]", "d", "b"},
       {"[\\b]", "\b", "b"},
       {"[\\w-a]", "-", "."},
       {"\\d", "1", "\xD9\xA0"},
       {"\\D", "\xD9\xA0", "1"},
       {"\\w", "_", "\xC3\xA9"},
       {"\\W", "\xC3\xA9", "_"},
       {"\\s", "\xC2\xA0", "a"},
       {"\\S", "a", " "},
       {"\\t\\n\\v\\f\\r", "\t\n\v\f\r", "t"},
       {"\\cJ", "\n", "cJ"},
       {"\\x41", "A", "x41"},
       {"\\u0041", "A", "u"},
       {"\\u{41}", "A", "u"},
       {"\\p{Lu}", "A", "a"},
       {"\\P{Lu}", "a", "A"},
       {"\\/\\-", "/-", "\\/"},
       {"(?i:a)", "A", "b"},
       {"(?s:.)", "\n", ""},
       {"(?m:^a$)", "a", "b"},
       {"(?-i:a)", "a", "A"},
       {"(?is-m:a)", "A", "b"},
       {"(a)\\1", nullptr, "back-references '\\1'"},
       {"(?<n>a)\\k<n>", nullptr, "back-references '\\k'"},
       {"(?P<n>a)(?P=n)", nullptr, "back-references '(?P='"},
       {"a++", nullptr, "possessive quantifiers '++'"},
       {"a*+", nullptr, "possessive quantifiers '*+'"},
       {"a?+", nullptr, "possessive quantifiers '?+'"},
       {"a{2}+", nullptr, "possessive quantifiers '{2}+'"},
       {"(?>a)", nullptr, "atomic groups"},
       {"(?(1)a|b)", nullptr, "conditional groups"},
       {"(?#a)", nullptr, "comments '(?#'"},
       {"(?|a)", nullptr, "branch resets"},
       {"(?'n'a)", nullptr, "groups named"},
       {"(?R)", nullptr, "recursion '(?R'"},
       {"(?&n)", nullptr, "recursion '(?&'"},
       {"(?P>n)", nullptr, "recursion '(?P>'"},
       {"(*FAIL)", nullptr, "control verbs"},
       {"(?x:a)", nullptr, "flag 'x'"},
       {"(?L:a)", nullptr, "flag 'L'"},
       {"[[:alpha:]]", nullptr, "POSIX classes '[:alpha:]'"},
       {"[[.a.]]", nullptr, "POSIX classes '[.a.]'"},
       {"[[=a=]]", nullptr, "POSIX classes '[=a=]'"},
       {"a\\Z", nullptr, "'\\Z' is not supported; use '$'"},
       {"\\G", nullptr, "write '^'"},
       {"\\K", nullptr, "write the pattern without it"},
       {"\\h", nullptr, "write '[ \\t]'"},
       {"\\R", nullptr, "write '(?:\\r\\n|"},
       {"\\X", nullptr, "write '.'"},
       {"\\Q.\\E", nullptr, "a backslash before each"},
       {"\\N{DASH}", nullptr, "write '[^\\n]'"},
       {"\\a", nullptr, "write '\\x07'"},
       {"\\e", nullptr, "write '\\x1B'"},
       {"\\01", nullptr, "octal escapes such as '\\01' are not supported; write '\\x01'"},
       {"\\08", nullptr, "write '\\x00'"},
       {"\\12", nullptr,
        "back-references '\\12' are not supported: such languages are not regular; write '\\x0A'"},
       {"[\\12]", nullptr, "write '\\x0A'"},
       {"[\\8]", nullptr, "write '8' for the digit"},
       {"\\q", nullptr, "write 'q' for the letter"},
       {"a*+", nullptr, "leave out the '+' if what follows"},
       {"\\p{Nope}", nullptr, "no Unicode property 'Nope'"}});
}

TEST(RegexParserTest, EveryConstructOfPythonIsUnderstoodOrRefused) {
  check_constructs(RegexDialect::kPython, {{"a|b", "b", "c"},
                                           {"a{,2}", "aa", "aaa"},
                                           {"a{2,}", "aa", "a"},
                                           {"a{,}", "aaa", "b"},
                                           {"a{x}", "a{x}", "a"},
                                           {"a*?b", "aab", "a"},
                                           {"(?P<n>a)", "a", "b"},
                                           {"(?:a)", "a", "b"},
                                           {"(?#b)a(?#c)+", "aa", "b"},
                                           {"(?i)a", "A", "b"},
                                           {"(?i)(?s)a.", "A\n", "a"},
                                           {"(?ims-x:a)", "A", "b"},
                                           {"(?x) a # b\n c", "ac", "a c"},
                                           {"(?x: a\\ b [ ] )c", "a b c", "abc"},
                                           {"(?x)a +", "aa", "a "},
                                           {"(?a:\\w)", "a", "\xC3\xA9"},
                                           {"(?ai:k)", "K", "\xE2\x84\xAA"},
                                           {"(?u:\\w)", "\xC3\xA9", "-"},
                                           {"\\w", "\xC3\xA9", "-"},
                                           {"\\W", "-", "\xC3\xA9"},
                                           {"\\d", "\xD9\xA0", "a"},
                                           {"\\D", "a", "\xD9\xA0"},
                                           {"\\s", "\x1F", "\xEF\xBB\xBF"},
                                           {"\\S", "\xEF\xBB\xBF", "\x1F"},
                                           {".", "\r", "\n"},
                                           {"a$\n?", "a\n", "b"},
                                           {"a\\Z", "a", "a\n"},
                                           {"\\Aa", "a", "b"},
                                           {"a\n(?m:^)b", "a\nb", "ab"},
                                           {"a(?m:$)\nb", "a\nb", "ab"},
                                           {"[]a]", "]", "b"},
                                           {"[^]a]", "b", "]"},
                                           {"[a-]", "-", "b"},
                                           {"\\07", "\a", "7"},
                                           {"\\101", "A", "a"},
                                           {"\\a\\b?", "\a", "a"},
                                           {"[\\b]", "\b", "b"},
                                           {"\\x41\\u0042\\U00000043", "ABC", "x"},
                                           {"\\.\\-\\ ", ".- ", "-"},
                                           {"(?i:i)", "\xC4\xB0", "j"},
                                           {"(?i:\xC4\xB1)", "I", "j"},
                                           {"(?i:[\xC4\xB1])", "\xC4\xB0", "j"},
                                           {"(?=a).", "a", "b"},
                                           {"a(?<!b)", "a", "b"},
                                           {"(a)\\1", nullptr, "back-references '\\1'"},
                                           {"(?P<n>a)(?P=n)", nullptr, "back-references '(?P='"},
                                           {"(a)?(?(1)b|c)", nullptr, "conditional groups"},
                                           {"a++", nullptr, "possessive quantifiers"},
                                           {"(?>a)", nullptr, "atomic groups"},
                                           {"(?<n>a)", nullptr, "write '(?P<name>...)'"},
                                           {"a(?i)b", nullptr, "stand at its beginning"},
                                           {"(?L:a)", nullptr, "flag 'L'"},
                                           {"[\\d-z]", nullptr, "a range ends at characters"},
                                           {"[a-\\d]", nullptr, "a range ends at characters"},
                                           {"[z-a]", nullptr, "out of order"},
                                           {"[[:alpha:]]", nullptr, "POSIX classes"},
                                           {"\\N{DASH}", nullptr, "named characters"},
                                           {"\\z", nullptr, "use '\\Z'"},
                                           {"\\cJ", nullptr, "write '\\x' and two digits"},
                                           {"\\q", nullptr, "'\\q' has no meaning"},
                                           {"(?P<1>a)", nullptr, "'1' is no name for a group"},
                                           {"\\777", nullptr, "octal escapes end at"},
                                           {"\\U00110000", nullptr, "no such character"},
                                           {"(?#a", nullptr, "comment is not closed"},
                                           {"a**", nullptr, "nothing to repeat"},
                                           {"(*a)", nullptr, "control verbs"}});
}

/// What JSON Schemas may write, but not a pattern of its own.
TEST(RegexParserTest, StrictPatternsHaveOneMeaning) {
  const std::vector<Construct> loose = {{"\\<a\\>", "<a>", "a"},       {"\\`a\\'", "`a'", "a"},
                                        {"a{,2}", "a{,2}", "aa"},      {"a{,}", "a{,}", "a"},
                                        {"(?<n>a)(?<n>b)", "ab", "a"}, {"(?<1>a)", "a", "b"}};
  check_constructs(RegexDialect::kEcma, loose);
  check_constructs(RegexDialect::kEcmaStrict,
                   {{"a\\<", nullptr, "character 2: '\\<' has no meaning here; write '\\b(?=\\w)'"},
                    {"\\>", nullptr, "write '\\b(?!\\w)'"},
                    {"\\`", nullptr, "write '^'"},
                    {"\\'", nullptr, "write '$'"},
                    {"a{,2}", nullptr, "character 2: '{,2}' is no count here; write '{0,2}'"},
                    {"a{,}", nullptr, "write '{0,}'"},
                    {"(?<n>a)(?<n>b)", nullptr, "character 11: two groups are named 'n'"},
                    {"(?<n>a)(b|(?P<n>c))", nullptr, "two groups are named 'n'"},
                    {"(?:(?<n>a)|b|c)(?<n>b)", nullptr, "two groups are named 'n'"},
                    {"(?<1>a)", nullptr, "character 4: '1' is no name for a group"},
                    {"(?<a-b>a)", nullptr, "'a-b' is no name"},
                    {"(?<n>a)|(?<n>b)", "b", "ab"},
                    {"(?:(?<n>a)|(?<n>b)|c)(?<\xC3\xA9t$_1>d)", "bd", "ab"},
                    {"[\\<\\'\\-]{1}x{,a}", "'x{,a}", "x"},
                    {"a{b}\\-\\/{", "a{b}-/{", "a"}});
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
  for (const std::string pattern :
       {"(?:(?:\\bab\\b ?){40}c\\b){40}",
        "(?:(?:\\b[a-z]+(?<![xyz])\\b(?: |,|;)){50}c\\b(?<!q)){50}x", "a(?=[a-z])[a-z]{700002}"}) {
    const auto error = error_message<GrammarError>([&] { parse_terminal(store, pattern); });
    EXPECT_THAT(error, AnyOf(HasSubstr("too large"), HasSubstr("smaller counts"))) << pattern;
  }
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
