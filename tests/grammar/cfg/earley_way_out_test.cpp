// Ways out of texts that are not finished: EarleyAutomaton::way_out and a trigger's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/regex/regex_parser.h"
#include "grammar/tags/trigger_automaton.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/support/gbnf_grammar.h"

namespace specdec {
namespace {

TEST(EarleyWayOutTest, IsAShortestText) {
  Gbnf brackets("root ::= \"(\" root \")\" | root root | \"xyz\" | \"[\" root? \"]\"");
  EXPECT_EQ(brackets.way_out(""), "[]");
  EXPECT_EQ(brackets.way_out("("), "[])");
  EXPECT_EQ(brackets.way_out("(([(x"), "yz)]))");
  EXPECT_EQ(brackets.way_out("(xyz[]["), "])");
  EXPECT_EQ(brackets.way_out("[]xyz"), "");
  Gbnf deep("root ::= \"a\" root \"b\" | \"c\"");
  EXPECT_EQ(deep.way_out(std::string(500, 'a')), "c" + std::string(500, 'b'));
}

TEST(EarleyWayOutTest, ShunsControlCharacters) {
  EXPECT_EQ(Gbnf("root ::= [^a] \"é\"").way_out(""), " é");
  EXPECT_EQ(Gbnf("root ::= [\\x01-\\x09]{2}").way_out(""), "\x01\x01");
}

TEST(EarleyWayOutTest, GoesThroughRulesThatMayBeEmpty) {
  Gbnf grammar("root ::= a root b | \"x\"\na ::= \"(\" | e\nb ::= \")\" | e\ne ::= \"-\"? e?\n");
  EXPECT_EQ(grammar.way_out("(("), "x");
  EXPECT_EQ(grammar.way_out(""), "x");
}

TEST(EarleyWayOutTest, EndsCharactersFirst) {
  Gbnf grammar("root ::= [à-ÿ] \"1\" | \"中\"+ \".\"");
  EXPECT_EQ(grammar.way_out("\xC3"),
            "\xA0"
            "1");
  EXPECT_EQ(grammar.way_out("中\xE4"), "\xB8\xAD.");
}

TEST(EarleyWayOutTest, TooLongOnesAreNone) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < 64; ++i) {
    text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"(\" root? \")\" r" +
            std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(Gbnf(text + "r64 ::= \"x\"").way_out(""), "none");
}

/// Whatever the text, its way out leads to the end.
TEST(EarleyWayOutTest, LeadsToTheEndOfRandomTexts) {
  std::mt19937 random(3);
  for (const char* text :
       {"root ::= root \"+\" root | [0-9]+ | \"(\" root \")\"",
        "root ::= a* b\na ::= \"[\" root \"]\" | \"é\"\nb ::= a b \"!\" | \"\" | \"中\" b",
        "root ::= \"a\" b c\nb ::= \"b\" root? b | \"d\"\nc ::= root | \"cc\""}) {
    Gbnf grammar(text);
    for (size_t length = 0; length < 60; ++length) {
      const std::string begun = random_text(*grammar, random, length);
      const std::string way = grammar.way_out(begun);
      EXPECT_TRUE(accepts(*grammar, begun + way)) << text << "\n" << begun << "|" << way;
    }
  }
}

TEST(EarleyWayOutTest, OfTriggers) {
  RegexStore regexes;
  std::vector<TriggerRule> rules;
  rules.push_back(
      {"<a>", make_gbnf_automaton(regexes, "root ::= \"(\" root \")\" | \"1\"", "test"), "</a>"});
  rules.push_back(
      {"#", make_regex_automaton(regexes, parse_regex(regexes, "[0-9]{3}", false)), ""});
  const auto automaton = make_trigger_automaton(std::move(rules));
  const auto way_out = [&](std::string_view text) {
    return automaton->way_out(walk(*automaton, text));
  };
  EXPECT_EQ(way_out("free"), "");
  EXPECT_EQ(way_out("\xE4\xB8"), "\x80");
  EXPECT_EQ(way_out("<a>(("), "1))</a>");
  EXPECT_EQ(way_out("<a>1"), "</a>");
  EXPECT_EQ(way_out("<a>1</"), "a>");
  EXPECT_EQ(way_out("x#1"), "00");
  EXPECT_EQ(way_out("x#123"), "");
}

}  // namespace
}  // namespace specdec
