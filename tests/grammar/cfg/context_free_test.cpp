#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/cfg/context_free_builder.h"
#include "grammar/cfg/gbnf.h"
#include "grammar/tables/components.h"
#include "tests/grammar/automaton_checks.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Symbol = ContextFreeGrammar::Symbol;

/// Rules over the letters of a text: r0 begins.
class RuleSetTest : public ::testing::Test {
 protected:
  ExpressionId letter(char32_t c) { return rules_.literal(std::u32string(1, c), {}); }
  ExpressionId rule(const std::string& name) { return rules_.rule(rules_.find(name, 0), {}); }
  ExpressionId sequence(std::vector<ExpressionId> parts) {
    return rules_.sequence(std::move(parts), {});
  }
  ExpressionId choice(std::vector<ExpressionId> parts) {
    return rules_.choice(std::move(parts), {});
  }
  void define(const std::string& name, ExpressionId body) {
    rules_.define(rules_.find(name, 0), body, 0, text_);
  }
  std::unique_ptr<ContextFreeGrammar> make(GrammarLimits limits = {}) {
    return make_context_free(regexes_, rules_, rules_.require("start", text_), text_, limits);
  }
  std::string error(GrammarLimits limits = {}) {
    return grammar_error([&] { make(limits); });
  }

  RegexStore regexes_;
  RuleSet rules_;
  GrammarText text_{"", "test"};
};

TEST_F(RuleSetTest, WhatIsRegularIsOneTerminal) {
  define("start", sequence({letter('a'), rule("b"), rules_.repeat(rule("b"), 2, 70'000, {})}));
  define("b", choice({letter('b'), sequence({letter('c'), letter('d')})}));
  const auto grammar = make();
  EXPECT_EQ(grammar->nonterminals(), 1U);
  ASSERT_THAT(grammar->heads(0), ElementsAre(1U));
  EXPECT_TRUE(grammar->slot(1).symbol.is_terminal);
  EXPECT_EQ(grammar->slot(1).next, ContextFreeGrammar::kEnd);
  EXPECT_TRUE(regexes_.matches(grammar->terminal(0).regex, U"abbcd"));
  EXPECT_EQ(grammar->terminal(0).label, "start");
}

TEST_F(RuleSetTest, RecursionTakesNonterminals) {
  define("start", choice({sequence({letter('('), rule("start"), letter(')'), letter(';')}),
                          letter('x'), letter('y')}));
  const auto grammar = make();
  EXPECT_EQ(grammar->nonterminals(), 1U);
  EXPECT_EQ(grammar->heads(0).size(), 2U);  // x and y are one terminal
  EXPECT_EQ(grammar->slots(), 5U);          // the end, 3 symbols, 1 symbol
}

TEST_F(RuleSetTest, CountedRecursionIsUnrolledUpToALimit) {
  define("start",
         choice({sequence({letter('('), rules_.repeat(rule("start"), 2, 5, {}), letter(')')}),
                 letter('x')}));
  EXPECT_EQ(error({.max_unrolled = 5}), "no error");
  EXPECT_THAT(error({.max_unrolled = 4}), AllOf(HasSubstr("max_unrolled = 4"), HasSubstr("test:")));
}

TEST_F(RuleSetTest, NestedCountsAddUpInsteadOfMultiplying) {
  ExpressionId body = rule("start");
  for (int i = 0; i < 5; ++i) {
    body = rules_.repeat(body, 100, 100, {});
  }
  define("start", choice({sequence({letter('('), body}), letter('x')}));
  EXPECT_EQ(error({.max_unrolled = 500}), "no error");
}

TEST_F(RuleSetTest, DoublingRulesDoNotGrow) {
  define("start", rule("r60"));
  define("r0", sequence({letter('a'), letter('b')}));
  for (int i = 1; i <= 60; ++i) {
    const std::string below = "r" + std::to_string(i - 1);
    define("r" + std::to_string(i), sequence({rule(below), letter('c'), rule(below)}));
  }
  EXPECT_TRUE(make()->has_texts());
}

TEST_F(RuleSetTest, LongChainsOfRulesAreFine) {
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = i == 0 ? "start" : "r" + std::to_string(i);
    define(name, choice({letter('a'),
                         sequence({letter('b'), rule("r" + std::to_string(i + 1)), letter('c')})}));
  }
  define("r20000", letter('z'));
  EXPECT_TRUE(make()->has_texts());
}

TEST_F(RuleSetTest, TooManySymbolsAreAnError) {
  define("start", choice({sequence(std::vector<ExpressionId>(200, rule("start"))), letter('x')}));
  EXPECT_THAT(error({.max_symbols = 100}), HasSubstr("max_symbols = 100"));
}

TEST_F(RuleSetTest, ARuleWithoutTextsIsAnError) {
  define("start", sequence({letter('a'), rule("b")}));
  define("b", choice({sequence({letter('x'), rule("b")}), rules_.choice({}, {})}));
  EXPECT_THAT(error(), HasSubstr("no text matches the rule 'start'"));
}

TEST_F(RuleSetTest, TerminalsMustBeRegular) {
  define("start", rule("T"));
  define("T", choice({sequence({letter('a'), rule("T")}), letter('b')}));
  rules_.rule(rules_.find("T", 0)).is_terminal = true;
  EXPECT_THAT(error(), HasSubstr("the terminal 'T' refers to itself"));
}

TEST(ContextFreeGrammarTest, UnproductiveProductionsAreLeftOut) {
  RegexStore regexes;
  const RegexId a = regexes.literal(U"a");
  // 0 -> a | 1 a | a 2;  1 -> 1 a;  2 -> nothing
  const ContextFreeGrammar grammar(regexes, {{a, "a"}, {RegexStore::kNothing, "none"}}, 3,
                                   {{0, {{true, 0}}},
                                    {0, {{false, 1}, {true, 0}}},
                                    {0, {{true, 0}, {false, 2}}},
                                    {1, {{false, 1}, {true, 0}}},
                                    {2, {{true, 1}}}});
  EXPECT_TRUE(grammar.has_texts());
  EXPECT_EQ(grammar.heads(0).size(), 1U);
  EXPECT_THAT(grammar.heads(1), IsEmpty());
}

TEST(ContextFreeGrammarTest, HeadsSkipWhatMayBeEmpty) {
  RegexStore regexes;
  const RegexId a = regexes.literal(U"a");
  const RegexId maybe = regexes.any_of(a, RegexStore::kEmpty);
  // 0 -> 1 maybe a a;  1 -> 1 1 | nothing
  const ContextFreeGrammar grammar(
      regexes, {{a, "a"}, {maybe, "a?"}}, 2,
      {{0, {{false, 1}, {true, 1}, {true, 0}, {true, 0}}}, {1, {{false, 1}, {false, 1}}}, {1, {}}});
  EXPECT_TRUE(grammar.is_nullable({false, 1}));
  EXPECT_FALSE(grammar.is_nullable({false, 0}));
  EXPECT_EQ(grammar.heads(0).size(), 3U);
  EXPECT_EQ(grammar.heads(1).size(), 2U);
}

TEST(ContextFreeGrammarTest, WithoutTextsItSaysSo) {
  RegexStore regexes;
  EXPECT_FALSE(ContextFreeGrammar(regexes, {}, 1, {{0, {{false, 0}}}}).has_texts());
  EXPECT_TRUE(ContextFreeGrammar(regexes, {}, 1, {{0, {}}}).has_texts());
}

TEST(ComponentsTest, ComeAfterWhatTheyPointTo) {
  EXPECT_THAT(components_of({{1}, {2}, {1, 3}, {}, {0, 4}}),
              ElementsAre(ElementsAre(3U), ElementsAre(1U, 2U), ElementsAre(0U), ElementsAre(4U)));
  std::vector<std::vector<uint32_t>> chain(100'000);
  for (uint32_t i = 0; i + 1 < chain.size(); ++i) {
    chain[i] = {i + 1};
  }
  EXPECT_EQ(components_of(chain).size(), chain.size());
}

}  // namespace
}  // namespace specdec
