// Completions of texts that are not finished: EarleyAutomaton::completion and a trigger's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/regex/regex_parser.h"
#include "grammar/tags/trigger_automaton.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/support/gbnf_grammar.h"

namespace specdec {
namespace {

TEST(EarleyCompletionTest, IsAShortestText) {
  Gbnf brackets("root ::= \"(\" root \")\" | root root | \"xyz\" | \"[\" root? \"]\"");
  EXPECT_EQ(brackets.completion(""), "[]");
  EXPECT_EQ(brackets.completion("("), "[])");
  EXPECT_EQ(brackets.completion("(([(x"), "yz)]))");
  EXPECT_EQ(brackets.completion("(xyz[]["), "])");
  EXPECT_EQ(brackets.completion("[]xyz"), "");
  Gbnf deep("root ::= \"a\" root \"b\" | \"c\"");
  EXPECT_EQ(deep.completion(std::string(500, 'a')), "c" + std::string(500, 'b'));
}

TEST(EarleyCompletionTest, ShunsControlCharacters) {
  EXPECT_EQ(Gbnf("root ::= [^a] \"é\"").completion(""), " é");
  EXPECT_EQ(Gbnf("root ::= [\\x01-\\x09]{2}").completion(""), "\x01\x01");
}

TEST(EarleyCompletionTest, GoesThroughRulesThatMayBeEmpty) {
  Gbnf grammar("root ::= a root b | \"x\"\na ::= \"(\" | e\nb ::= \")\" | e\ne ::= \"-\"? e?\n");
  EXPECT_EQ(grammar.completion("(("), "x");
  EXPECT_EQ(grammar.completion(""), "x");
}

TEST(EarleyCompletionTest, EndsCharactersFirst) {
  Gbnf grammar("root ::= [à-ÿ] \"1\" | \"中\"+ \".\"");
  EXPECT_EQ(grammar.completion("\xC3"),
            "\xA0"
            "1");
  EXPECT_EQ(grammar.completion("中\xE4"), "\xB8\xAD.");
}

TEST(EarleyCompletionTest, TooLongOnesAreNone) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < 64; ++i) {
    text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"(\" root? \")\" r" +
            std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(Gbnf(text + "r64 ::= \"x\"").completion(""), "none");
}

/// Whatever the text, its completion leads to the end.
TEST(EarleyCompletionTest, LeadsToTheEndOfRandomTexts) {
  std::mt19937 random(3);
  for (const char* text :
       {"root ::= root \"+\" root | [0-9]+ | \"(\" root \")\"",
        "root ::= a* b\na ::= \"[\" root \"]\" | \"é\"\nb ::= a b \"!\" | \"\" | \"中\" b",
        "root ::= \"a\" b c\nb ::= \"b\" root? b | \"d\"\nc ::= root | \"cc\""}) {
    Gbnf grammar(text);
    for (size_t length = 0; length < 60; ++length) {
      const std::string begun = random_text(*grammar, random, length);
      const std::string way = grammar.completion(begun);
      EXPECT_TRUE(accepts(*grammar, begun + way)) << text << "\n" << begun << "|" << way;
    }
  }
}

TEST(EarleyCompletionTest, OfTriggers) {
  RegexStore regexes;
  std::vector<TriggerRule> rules;
  rules.push_back(
      {"<a>", make_gbnf_automaton(regexes, "root ::= \"(\" root \")\" | \"1\"", "test"), "</a>"});
  rules.push_back(
      {"#", make_regex_automaton(regexes, parse_regex(regexes, "[0-9]{3}", false)), ""});
  const auto automaton = make_trigger_automaton(std::move(rules));
  const auto completion = [&](std::string_view text) {
    return automaton->completion(walk(*automaton, text));
  };
  EXPECT_EQ(completion("free"), "");
  EXPECT_EQ(completion("\xE4\xB8"), "\x80");
  EXPECT_EQ(completion("<a>(("), "1))</a>");
  EXPECT_EQ(completion("<a>1"), "</a>");
  EXPECT_EQ(completion("<a>1</"), "a>");
  EXPECT_EQ(completion("x#1"), "00");
  EXPECT_EQ(completion("x#123"), "");
}

}  // namespace
}  // namespace specdec
