#include "grammar/cfg/earley_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "grammar/cfg/gbnf.h"
#include "grammar/regex/regex_parser.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/support/gbnf_grammar.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kLength = 5;  ///< of the texts that are compared

/// Texts up to kLength letters, and the beginnings of all texts, however long these are.
struct Language {
  std::set<std::string> words;
  std::set<std::string> prefixes;
  bool operator==(const Language&) const = default;
};

Language unite(Language a, const Language& b) {
  a.words.insert(b.words.begin(), b.words.end());
  a.prefixes.insert(b.prefixes.begin(), b.prefixes.end());
  return a;
}

Language concat(const Language& a, const Language& b) {
  Language all;
  if (!b.prefixes.empty()) {  // b has a text
    all.prefixes = a.prefixes;
  }
  for (const std::string& first : a.words) {
    for (const std::string& second : b.words) {
      if (first.size() + second.size() <= kLength) {
        all.words.insert(first + second);
      }
    }
    for (const std::string& second : b.prefixes) {
      if (first.size() + second.size() <= kLength) {
        all.prefixes.insert(first + second);
      }
    }
  }
  return all;
}

const Language kEmptyText = {{""}, {""}};

/// Rules as trees, written as GBNF and evaluated by their definition.
struct Node {
  enum class Kind { kLetter, kRule, kSequence, kChoice, kRepeat } kind = Kind::kSequence;
  char letter = 'a';
  size_t rule = 0;
  int min = 0, max = 0;  ///< max -1: any number
  std::vector<Node> children;
};

std::string rule_name(size_t rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }

std::string write(const Node& node) {
  std::string text;
  switch (node.kind) {
    case Node::Kind::kLetter:
      return std::string("\"") + node.letter + "\"";
    case Node::Kind::kRule:
      return rule_name(node.rule);
    case Node::Kind::kSequence:
      for (const Node& child : node.children) {
        text += write(child) + " ";
      }
      return "(" + (text.empty() ? "\"\"" : text) + ")";
    case Node::Kind::kChoice:
      for (const Node& child : node.children) {
        text += (text.empty() ? "" : " | ") + write(child);
      }
      return "(" + text + ")";
    case Node::Kind::kRepeat:
      return write(node.children[0]) + "{" + std::to_string(node.min) + "," +
             (node.max < 0 ? "" : std::to_string(node.max)) + "}";
  }
  return text;
}

Language evaluate(const Node& node, const std::vector<Language>& rules) {
  Language all;
  switch (node.kind) {
    case Node::Kind::kLetter:
      return {{std::string(1, node.letter)}, {"", std::string(1, node.letter)}};
    case Node::Kind::kRule:
      return rules[node.rule];
    case Node::Kind::kSequence:
      all = kEmptyText;
      for (const Node& child : node.children) {
        all = concat(all, evaluate(child, rules));
      }
      return all;
    case Node::Kind::kChoice:
      for (const Node& child : node.children) {
        all = unite(all, evaluate(child, rules));
      }
      return all;
    case Node::Kind::kRepeat:
      break;
  }
  const Language part = evaluate(node.children[0], rules);
  Language rest = kEmptyText;
  if (node.max < 0) {
    for (Language more = unite(rest, concat(part, rest)); more != rest;
         more = unite(rest, concat(part, rest))) {
      rest = more;
    }
  }
  for (int i = node.min; i < node.max; ++i) {
    rest = unite(kEmptyText, concat(part, rest));
  }
  for (int i = 0; i < node.min; ++i) {
    rest = concat(part, rest);
  }
  return rest;
}

Language evaluate(const std::vector<Node>& rules) {
  std::vector<Language> languages(rules.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      const Language next = evaluate(rules[i], languages);
      changed = changed || next != languages[i];
      languages[i] = next;
    }
  }
  return languages[0];
}

Node random_node(std::mt19937& random, int size, size_t rules) {
  const auto draw = [&](size_t below) { return static_cast<size_t>(random() % below); };
  if (size <= 1) {
    if (draw(2) == 0) {
      return {.kind = Node::Kind::kRule, .rule = draw(rules), .children = {}};
    }
    return {.kind = Node::Kind::kLetter, .letter = "ab"[draw(2)], .children = {}};
  }
  const size_t form = draw(8);
  if (form == 0) {
    static const std::vector<std::pair<int, int>> kCounts = {{0, -1}, {1, -1}, {0, 1},
                                                             {2, -1}, {1, 3},  {2, 2}};
    const auto [min, max] = kCounts[draw(kCounts.size())];
    return {.kind = Node::Kind::kRepeat,
            .min = min,
            .max = max,
            .children = {random_node(random, size - 1, rules)}};
  }
  Node node = {.kind = form < 5 ? Node::Kind::kSequence : Node::Kind::kChoice, .children = {}};
  if (draw(8) == 0) {
    node.children.push_back({.children = {}});  // the empty text
  }
  while (size > 0) {
    const int part = 1 + static_cast<int>(draw(static_cast<size_t>(size)));
    node.children.push_back(random_node(random, part == size ? size - 1 : part, rules));
    size -= part;
  }
  return node;
}

std::string write(const std::vector<Node>& rules) {
  std::string text;
  for (size_t i = 0; i < rules.size(); ++i) {
    text += rule_name(i) + " ::= " + write(rules[i]) + "\n";
  }
  return text;
}

std::vector<std::string> short_texts() {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < kLength; ++i) {
    texts.push_back(texts[i] + "a");
    texts.push_back(texts[i] + "b");
  }
  return texts;
}

TEST(EarleyAutomatonTest, RandomGrammarsAreTheirDefinition) {
  std::mt19937 random(1);
  const std::vector<std::string> texts = short_texts();
  int with_texts = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<Node> rules(1 + random() % 4);
    for (Node& rule : rules) {
      rule = random_node(random, 1 + static_cast<int>(random() % 6), rules.size());
    }
    const std::string grammar = write(rules);
    const Language expected = evaluate(rules);
    RegexStore regexes;
    if (expected.prefixes.empty()) {
      ASSERT_THROW(make_gbnf_automaton(regexes, grammar, "test"), GrammarError) << grammar;
      continue;
    }
    ++with_texts;
    const auto automaton = make_gbnf_automaton(regexes, grammar, "test");
    for (const std::string& text : texts) {
      ASSERT_EQ(is_prefix(*automaton, text), expected.prefixes.count(text) > 0)
          << grammar << "prefix '" << text << "'";
      ASSERT_EQ(accepts(*automaton, text), expected.words.count(text) > 0)
          << grammar << "text '" << text << "'";
    }
  }
  EXPECT_GT(with_texts, 200);
}

std::string times(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += part;
  }
  return text;
}

TEST(EarleyAutomatonTest, ListsOfAnyLengthHaveFewStates) {
  const std::string item = "item ::= \"(\" list? \")\"\n";
  for (const std::string list :
       {"list ::= item | list \",\" item", "list ::= item | item \",\" list",
        "list ::= item (\",\" item)*", "list ::= (item \",\")* item", "list ::= item (\",\" list)?",
        "list ::= item (\",\" list){0,1}", "list ::= item tail \n tail ::= \"\" | \",\" list"}) {
    Gbnf grammar("root ::= \"[\" list \"]\"\n" + item + list);
    EXPECT_TRUE(grammar.accepts("[" + times("(),", 5) + "()]")) << list;
    const uint32_t states = grammar.earley().states();
    EXPECT_LT(states, 20) << list;
    EXPECT_TRUE(grammar.accepts("[" + times("(),", 5000) + "()]")) << list;
    EXPECT_FALSE(grammar.accepts("[" + times("(),", 5000) + "]")) << list;
    EXPECT_LE(grammar.earley().states(), states + 1) << list;
  }
}

TEST(EarleyAutomatonTest, EqualFuturesAreOneState) {
  Gbnf grammar("root ::= \"[\" (root (\",\" root)*)? \"]\"");
  EXPECT_EQ(grammar.walk("[[],[]"), grammar.walk("[[]"));
  EXPECT_EQ(grammar.walk("[[],[],["), grammar.walk("[[],["));
  EXPECT_NE(grammar.walk("[[["), grammar.walk("[["));
  EXPECT_EQ(grammar.walk("[[[]]"), grammar.walk("[[]"));
}

TEST(EarleyAutomatonTest, NestingCostsTheSameAtEachDepth) {
  Gbnf grammar("root ::= \"(\" root \")\" root | \"\"");
  EXPECT_TRUE(grammar.accepts(times("(", 3000) + times(")()", 3000)));
  EXPECT_FALSE(grammar.accepts(times("(", 3000) + times(")", 2999)));
  EXPECT_FALSE(grammar.is_prefix("())"));
  EXPECT_LT(grammar.earley().states(), 7000);
  EXPECT_LT(grammar.earley().return_sets(), 3100);
}

TEST(EarleyAutomatonTest, AmbiguityStaysSmall) {
  Gbnf grammar("root ::= root root root | root root | \"a\" | \"\"");
  EXPECT_TRUE(grammar.accepts(times("a", 60)));
  EXPECT_LE(grammar.earley().states(), 63);
  Gbnf dangling("root ::= \"i\" root \"e\" root | \"i\" root | \"x\"");
  EXPECT_TRUE(dangling.accepts(times("i", 100) + "x" + times("ex", 100)));
  EXPECT_FALSE(dangling.accepts(times("i", 100) + "x" + times("ex", 101)));
}

TEST(EarleyAutomatonTest, TooMuchAmbiguityIsAnError) {
  RegexStore regexes;
  const auto automaton =
      make_gbnf_automaton(regexes, "root ::= \"i\" root \"e\" root | \"i\" root | \"x\"", "test",
                          {.limits = {.max_state_items = 50}});
  EXPECT_THAT(grammar_error([&] { walk(*automaton, times("i", 100) + "x"); }),
              HasSubstr("max_state_items = 50"));
}

TEST(EarleyAutomatonTest, BytesOfCharactersAreExact) {
  Gbnf grammar("root ::= [à-ÿ中\\U0001F600-\\U0001F64F] root \"!\" | \"\"");
  EXPECT_TRUE(grammar.accepts("é中😀!!!"));
  EXPECT_FALSE(grammar.is_prefix("\xC2"));
  EXPECT_TRUE(grammar.is_prefix("\xC3"));
  EXPECT_FALSE(grammar.is_prefix("\xC3\x80"));  // À
  EXPECT_TRUE(grammar.is_prefix("\xE4\xB8"));
  EXPECT_FALSE(grammar.is_prefix("\xE4\xB9"));
  EXPECT_FALSE(grammar.is_prefix("\xE4\xB8\xAE"));
  EXPECT_TRUE(grammar.is_prefix("\xF0\x9F\x99"));
  EXPECT_FALSE(grammar.is_prefix("\xF0\x9F\x9A"));
  EXPECT_FALSE(grammar.is_prefix("\xF0\x9F\x99\x90"));
  EXPECT_FALSE(grammar->is_complete(grammar.walk("\xC3")));
}

TEST(EarleyAutomatonTest, OnlyUtf8IsText) {
  Gbnf grammar("root ::= . root? \"\"");
  for (const std::string_view text :
       {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(grammar.accepts(text));
  }
  for (const std::string_view text :
       {"\x80", "\xC0", "\xC1\x80", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90", "\xF5", "\xFF",
        "\xC3\x28", "\xE4\xB8\xC0"}) {
    EXPECT_FALSE(grammar.is_prefix(text)) << static_cast<int>(text[0]);
  }
}

TEST(EarleyAutomatonTest, AnyCharacterTakesFewStates) {
  Gbnf grammar("root ::= \"'\" [^']* \"'\" root | \"\"");
  const StateId inside = grammar.walk("'");
  EXPECT_EQ(grammar.walk("'\xE4"), grammar.walk("'\xE5"));
  EXPECT_EQ(grammar.walk("'\xE4\xB8\xAD"), inside);
  for (int point = 0x20; point < 0x20000; ++point) {
    if (point != '\'' && (point < 0xD800 || point > 0xDFFF)) {
      ASSERT_EQ(grammar.walk("'" + to_utf8(std::u32string(1, static_cast<char32_t>(point)))),
                inside);
    }
  }
  EXPECT_LT(grammar.earley().states(), 15);
}

TEST(EarleyAutomatonTest, RandomWalksFinish) {
  Gbnf grammar(
      "root ::= stmt+ \n stmt ::= name \" = \" sum \";\\n\" | \"{\" stmt* \"}\" \n"
      "sum ::= sum [+-] term | term \n term ::= term \"*\" atom | atom \n"
      "atom ::= name | [0-9]{1,3} | \"(\" sum \")\" | \"-\" atom \n name ::= [a-zé]+ [中-]?");
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const std::string text = random_text(*grammar, random, 1 + random() % 40);
    EXPECT_TRUE(can_finish(*grammar, grammar.walk(text))) << text;
  }
}

TEST(EarleyAutomatonTest, ExplainNamesTerminals) {
  Gbnf grammar(
      "root ::= \"{\" (pair (\",\" pair)*)? \"}\" \n pair ::= name \":\" root \n"
      "name ::= [a-z]+");
  EXPECT_THAT(grammar->explain(grammar->start()), HasSubstr("\"{\": '{'"));
  EXPECT_THAT(grammar->explain(grammar.walk("{")),
              AllOf(HasSubstr("name \":\": 'a'-'z'"), HasSubstr("\"}\": '}'")));
  EXPECT_THAT(grammar->explain(grammar.walk("{a")), HasSubstr("rest of name \":\": ':', 'a'-'z'"));
  EXPECT_THAT(grammar->explain(grammar.walk("{}")), HasSubstr("the end of the text"));
  EXPECT_THAT(grammar->explain(Automaton::kDead), HasSubstr("nothing"));
  Gbnf wide("root ::= [é中]");
  EXPECT_THAT(wide->explain(wide.walk("\xE4")), HasSubstr("2 more bytes of a character"));
}

TEST(RegexAutomatonTest, ReadsOneLanguage) {
  RegexStore regexes;
  const auto automaton = make_regex_automaton(regexes, parse_regex(regexes, "[a-c]{2,4}é?", false));
  EXPECT_TRUE(accepts(*automaton, "ab"));
  EXPECT_TRUE(accepts(*automaton, "abcaé"));
  EXPECT_FALSE(accepts(*automaton, "a"));
  EXPECT_TRUE(is_prefix(*automaton, "ab\xC3"));
  EXPECT_FALSE(is_prefix(*automaton, "abcab"));
  EXPECT_FALSE(is_prefix(*automaton, "a\xC3"));
  EXPECT_EQ(walk(*automaton, "ab"), walk(*automaton, "ca"));
}

TEST(RegexAutomatonTest, NothingIsDeadAtOnceAndEmptyIsComplete) {
  RegexStore regexes;
  EXPECT_EQ(make_regex_automaton(regexes, RegexStore::kNothing)->start(), Automaton::kDead);
  const auto empty = make_regex_automaton(regexes, RegexStore::kEmpty);
  EXPECT_TRUE(empty->is_complete(empty->start()));
  EXPECT_TRUE(alive_bytes(*empty, empty->start()).empty());
  const auto all = make_regex_automaton(regexes, RegexStore::kAll);
  EXPECT_TRUE(accepts(*all, "中 text"));
}

TEST(RegexAutomatonTest, WordsShareTheirEnds) {
  RegexStore regexes;
  std::vector<std::u32string> words;
  for (char32_t c = 0; c < 3000; ++c) {
    words.push_back(U"w" + std::u32string(1, 0x4E00 + c) + U"-end");
  }
  const auto automaton = make_regex_automaton(regexes, regexes.words(words));
  EXPECT_TRUE(accepts(*automaton, "w\xE4\xB8\x80-end"));
  EXPECT_EQ(walk(*automaton, "w\xE4\xB8\x80"), walk(*automaton, "w\xE4\xB8\x81"));
  EXPECT_FALSE(is_prefix(*automaton, "wa"));
}

}  // namespace
}  // namespace specdec
