// What the marked rules of Lark grammars match, name[capture].
#include "grammar/cfg/captures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "grammar/cfg/lark.h"
#include "grammar/engine.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/grammar/cfg/grammar_text.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {

void PrintTo(const Capture& capture, std::ostream* out) {
  *out << capture.name << ": '" << capture.bytes << "'";
}

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Captures = std::vector<Capture>;

GrammarSource capture_source(const std::string& text) {
  return source_of_text(GrammarKind::kLark, text);
}

GrammarMatcher capture_matcher(const std::string& lark) {
  return GrammarMatcher(compile_grammar(control_vocabulary(), capture_source(lark)));
}

Captures captures_of(const std::string& lark, const std::string& text) {
  GrammarMatcher matcher = capture_matcher(lark);
  EXPECT_TRUE(matcher.accept_bytes(text)) << text;
  return matcher.captures();
}

std::string capture_error(const std::string& lark) {
  return grammar_error([&] { check_grammar(capture_source(lark)); });
}

auto capture_of(const std::string& name, const std::string& bytes) { return Capture{name, bytes}; }

TEST(CapturesTest, RulesThatAreMarkedInTheOrderOfTheText) {
  const std::string pairs =
      "start: pair (\";\" pair)*\npair[capture]: key \"=\" value\nkey[capture=\"a key\"]: "
      "/[a-z]+/\n"
      "value[capture]: /[0-9]+/ | \"(\" value \")\"\n";
  EXPECT_THAT(
      captures_of(pairs, "a=1;bc=(23)"),
      ElementsAre(capture_of("pair", "a=1"), capture_of("a key", "a"), capture_of("value", "1"),
                  capture_of("pair", "bc=(23)"), capture_of("a key", "bc"),
                  capture_of("value", "(23)"), capture_of("value", "23")));
  EXPECT_THAT(captures_of("start: \"a\" b?\nb[capture]: \"b\"", "a"), IsEmpty());
  EXPECT_THAT(captures_of("start: b b\nb[capture]: /é*/", "éé"),
              ElementsAre(capture_of("b", "éé"), capture_of("b", "")));
  EXPECT_THAT(captures_of("start: \"a\"", "a"), IsEmpty());
}

TEST(CapturesTest, WhatIsIgnoredAtTheEndIsNoPart) {
  const std::string sum =
      "start: sum\nsum[capture]: n (\"+\" n)*\nn[capture]: /[0-9]+/ | \"(\" n \")\"\n%ignore \" \"";
  EXPECT_THAT(captures_of(sum, " 1 +  (2 ) "),
              ElementsAre(capture_of("sum", "1 +  (2 )"), capture_of("n", "1"),
                          capture_of("n", "(2 )"), capture_of("n", "2")));
  EXPECT_THAT(
      captures_of("start: a b\na[capture]: \"x\"?\nb[capture]: \"y\"\n%ignore \" \"", " y "),
      ElementsAre(capture_of("a", ""), capture_of("b", "y")));
}

TEST(CapturesTest, SuffixesAndStopsAreNoPart) {
  for (const std::string ending : {"stop=\"<e>\"", "suffix=/<e>/", "suffix=E", "suffix=/(<e>)+/"}) {
    const std::string grammar = "start: whole \"x\"\nwhole[capture]: text\ntext[capture, " +
                                ending + "]: /.*/\nE: \"<e>\"\n%ignore \" \"";
    EXPECT_THAT(captures_of(grammar, "a<b<e> x"),
                ElementsAre(capture_of("whole", "a<b<e>"), capture_of("text", "a<b")))
        << ending;
  }
  EXPECT_THAT(captures_of("start: t\nt[lazy, capture]: /.*<e>/", "a<e>"),
              ElementsAre(capture_of("t", "a<e>")));
  EXPECT_THAT(captures_of("start: t \"b\"\nt[stop=/b+/, capture]: /[ab]*/", "bb"),
              ElementsAre(capture_of("t", "")));
}

TEST(CapturesTest, EachPartIsAsLongAsItCanBe) {
  EXPECT_THAT(captures_of("start: a b\na[capture]: \"x\"*\nb[capture]: \"x\"*", "xxx"),
              ElementsAre(capture_of("a", "xxx"), capture_of("b", "")));
  EXPECT_THAT(captures_of("start: a b\na[capture]: \"x\"*\nb[capture]: \"x\"+", "xxx"),
              ElementsAre(capture_of("a", "xx"), capture_of("b", "x")));
  for (const std::string list :
       {"start: a*", "start: a+", "start: l?\nl: a l?", "start: l\nl: a | a l"}) {
    EXPECT_THAT(captures_of(list + "\na[capture]: /x|xx|xxx/", "xxxxx"),
                ElementsAre(capture_of("a", "xxx"), capture_of("a", "xx")))
        << list;
  }
  EXPECT_THAT(captures_of("start: l\nl: a | l a\na[capture]: /x|xx|xxx/", "xxxxx"),
              ElementsAre(capture_of("a", "xxx"), capture_of("a", "x"), capture_of("a", "x")))
      << "the list is the first part, and as long as it can be";
  EXPECT_THAT(
      captures_of("start: (a | b)+ \"y\"\na[capture]: \"xx\"\nb[capture]: \"xxx\"", "xxxxy"),
      ElementsAre(capture_of("a", "xx"), capture_of("a", "xx")));
  EXPECT_THAT(
      captures_of("start: (a | b)+ \"y\"\na[capture]: \"xx\"\nb[capture]: \"xxx\"", "xxxxxy"),
      ElementsAre(capture_of("b", "xxx"), capture_of("a", "xx")));
  EXPECT_THAT(captures_of("start: a~2..3\na[capture]: /x{1,3}/", "xxxxx"),
              ElementsAre(capture_of("a", "xxx"), capture_of("a", "xx")));
}

/// Words that make up a text, each as long as it can be; false when none do.
bool cut(const std::set<std::string>& words, std::string_view text,
         std::vector<std::string>& into) {
  for (size_t length = text.size(); length > 0; --length) {
    const std::string word(text.substr(0, length));
    if (words.contains(word)) {
      into.push_back(word);
      if (cut(words, text.substr(length), into)) {
        return true;
      }
      into.pop_back();
    }
  }
  return text.empty();
}

TEST(CapturesTest, RepetitionsAreCutAsTheDefinitionSays) {
  std::mt19937 random(4);
  const auto text_of = [&](uint32_t length) {
    std::string text;
    for (; length > 0; --length) {
      text += "xy"[random() % 2];
    }
    return text;
  };
  int complete = 0;
  for (int i = 0; i < 200; ++i) {
    std::set<std::string> words;
    std::string alternatives;
    for (int k = 0; k < 4; ++k) {
      words.insert(text_of(1 + random() % 4));
    }
    for (const std::string& word : words) {
      alternatives += (alternatives.empty() ? "\"" : " | \"") + word + "\"";
    }
    const std::string repeat = std::vector<std::string>{"w*", "w+", "(w | w w)*", "w{,20}"}[i % 4];
    const GrammarMatcher start =
        capture_matcher("start: " + repeat + "\nw[capture]: " + alternatives);
    for (int k = 0; k < 20; ++k) {
      const std::string text = text_of(1 + random() % 9);
      std::vector<std::string> expected;
      GrammarMatcher matcher = start;
      const bool fits = matcher.accept_bytes(text) && matcher.is_complete();
      ASSERT_EQ(fits, cut(words, text, expected)) << text;
      complete += fits ? 1 : 0;
      std::vector<std::string> found;
      for (const Capture& capture : fits ? matcher.captures() : Captures()) {
        found.push_back(capture.bytes);
      }
      if (repeat != "(w | w w)*") {
        EXPECT_EQ(found, expected) << repeat << " of " << alternatives;
      } else if (fits) {  // two words at once may be longer than one
        EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::string()), text);
      }
    }
  }
  EXPECT_GT(complete, 400);
}

TEST(CapturesTest, RulesThatAreAllOfEachOther) {
  EXPECT_THAT(captures_of("start: a\na[capture]: b | \"x\"\nb[capture]: a | \"y\"", "x"),
              ElementsAre(capture_of("a", "x")));
  EXPECT_THAT(captures_of("start: a\na[capture]: a a | \"x\" | ()", "xx"), testing::Not(IsEmpty()));
  EXPECT_THAT(captures_of("start: (a*)*\na[capture]: \"x\"?", "xx"),
              ElementsAre(capture_of("a", "x"), capture_of("a", "x")));
  EXPECT_THAT(captures_of("start: (a*)+\na: (b*)+\nb[capture]: \"x\"", "xxx"),
              ElementsAre(capture_of("b", "x"), capture_of("b", "x"), capture_of("b", "x")));
}

TEST(CapturesTest, OfABeginningThoseThatHaveEndedInItsShortestContinuation) {
  const std::string pairs =
      "start: \"{\" pair (\";\" pair)* \"}\"\npair[capture]: key \"=\" value\n"
      "key[capture]: /[a-zé]+/\nvalue[capture]: \"(\" /[0-9]+/ \")\"";
  EXPECT_THAT(captures_of(pairs, "{"), IsEmpty());
  EXPECT_THAT(captures_of(pairs, "{ab"), ElementsAre(capture_of("key", "ab")));
  EXPECT_THAT(captures_of(pairs, "{ab\xC3"), IsEmpty());
  EXPECT_THAT(captures_of(pairs, "{ab=(1"), ElementsAre(capture_of("key", "ab")));
  EXPECT_THAT(captures_of(pairs, "{ab=(1);c="),
              ElementsAre(capture_of("pair", "ab=(1)"), capture_of("key", "ab"),
                          capture_of("value", "(1)"), capture_of("key", "c")));
}

TEST(CapturesTest, TokensSchemasAndCounts) {
  GrammarMatcher matcher = capture_matcher(
      "start: text call </call> <|turn_end|>?\ntext[capture, max_tokens=2]: /.*/\n"
      "call[capture]: <|call|> json\njson[capture]: %json {\"type\": \"integer\"}");
  const auto byte = [](char c) { return static_cast<Token>(10 + static_cast<uint8_t>(c)); };
  for (const Token token : {byte('a'), byte('b'), kCall, byte('1'), byte('2'), kEndOfCall}) {
    ASSERT_TRUE(matcher.accept(token));
  }
  const Captures all = {capture_of("text", "ab"), capture_of("call", "12"),
                        capture_of("json", "12")};
  EXPECT_EQ(matcher.captures(), all);
  ASSERT_TRUE(matcher.accept(kTurnEnd));
  EXPECT_EQ(matcher.captures(), all);
  matcher.rollback(3);
  EXPECT_EQ(matcher.captures(),
            (Captures{capture_of("text", "ab"), capture_of("call", "1"), capture_of("json", "1")}));
  GrammarMatcher counted =
      capture_matcher("start: a b\na[capture, max_tokens=2]: /.*/\nb[capture]: /.*/");
  for (const char c : std::string("wxyz")) {
    ASSERT_TRUE(counted.accept(byte(c)));
  }
  EXPECT_EQ(counted.captures(), (Captures{capture_of("a", "wx"), capture_of("b", "yz")}));
}

TEST(CapturesTest, LongTextsAreFoundOrRefused) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    lines += "a line\n";
  }
  const std::string grammar = "start: line*\nline[capture]: TEXT \"\\n\"\nTEXT: /[^\\n]*/";
  EXPECT_EQ(captures_of(grammar, lines).size(), 3000);
  GrammarMatcher matcher =
      capture_matcher("start: a*\na[capture]: b+\nb: \"x\" | \"xx\" | \"xxx\" b");
  ASSERT_TRUE(matcher.accept_bytes(std::string(20'000, 'x')));
  EXPECT_THAT(grammar_error([&] { (void)matcher.captures(); }),
              AllOf(HasSubstr("20000 bytes"), HasSubstr("shorter texts")));
}

TEST(CapturesTest, RightRecursionTakesMoreSteps) {
  const std::string recursive = "start: e\ne[capture]: \"x\" e | \"x\"";
  EXPECT_EQ(captures_of(recursive, std::string(1000, 'x')).size(), 1000);
  GrammarMatcher matcher = capture_matcher(recursive);
  ASSERT_TRUE(matcher.accept_bytes(std::string(2500, 'x')));
  EXPECT_THAT(grammar_error([&] { (void)matcher.captures(); }),
              HasSubstr("'*' instead of rules that contain themselves"));
  for (const std::string rule : {"e: x*", "e: e x | x"}) {
    const std::string grammar = "start: e\n" + rule + "\nx[capture]: \"x\"";
    EXPECT_EQ(captures_of(grammar, std::string(20'000, 'x')).size(), 20'000) << rule;
  }
}

TEST(CapturesTest, BytesOfRulesWithinRulesAreBounded) {
  GrammarMatcher matcher = capture_matcher("start: e\ne[capture]: e \"x\" | \"x\"");
  ASSERT_TRUE(matcher.accept_bytes(std::string(2000, 'x')));
  EXPECT_EQ(matcher.captures().size(), 2000);
  ASSERT_TRUE(matcher.accept_bytes(std::string(98'000, 'x')));
  EXPECT_THAT(grammar_error([&] { (void)matcher.captures(); }), HasSubstr("100000 bytes"));
}

TEST(CapturesTest, AreAReadingOfTheText) {
  const std::string grammar =
      "start: item*\nitem: a | b | \"(\" start \")\" | a b\na[capture]: /x+y?/\nb[capture]: "
      "/y*x/\n";
  RegexStore regexes;
  const auto automaton = make_lark_automaton(regexes, grammar, "g");
  std::mt19937 random(1);
  const GrammarMatcher start = capture_matcher(grammar);
  for (int i = 0; i < 300; ++i) {
    std::string text = random_text(*automaton, random, 12);
    GrammarMatcher matcher = start;
    ASSERT_TRUE(matcher.accept_bytes(text));
    if (!matcher.is_complete()) {
      continue;
    }
    std::string joined;
    for (const Capture& capture : matcher.captures()) {
      joined += capture.bytes;
    }
    std::erase_if(text, [](char c) { return c == '(' || c == ')'; });
    EXPECT_EQ(joined, text);
  }
}

TEST(CapturesTest, MarksChangeNoText) {
  const std::string grammar =
      "start: sum\nsum#: product (\"+\" product)*\nproduct#: atom | atom \"*\" product\n"
      "atom#: N | \"(\" sum \")\"\nN: /[0-9]+/\n%ignore \" \"\n%ignore /#[a-z]*;/";
  RegexStore regexes;
  std::vector<std::unique_ptr<Automaton>> automata;
  for (const std::string mark : {"", "[capture]"}) {
    std::string text = grammar;
    for (size_t at = text.find("#:"); at != text.npos; at = text.find("#:")) {
      text.replace(at, 1, mark);
    }
    automata.push_back(make_lark_automaton(regexes, text, "g"));
  }
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_text(*automata[i % 2], random, 20);
    const StateId one = walk(*automata[0], text);
    const StateId other = walk(*automata[1], text);
    EXPECT_EQ(alive_bytes(*automata[0], one), alive_bytes(*automata[1], other)) << text;
    EXPECT_EQ(automata[0]->is_complete(one), automata[1]->is_complete(other)) << text;
  }
}

TEST(CapturesTest, ThroughTheEngine) {
  EngineOptions options;
  options.end_tokens = std::vector<Token>{0};
  const auto engine =
      std::make_shared<GrammarEngine>(std::vector<std::string>{"", "a", "b", "ab"}, options);
  CheckedMatcher matcher(engine,
                         engine->compile(capture_source("start: x \"b\"\nx[capture]: /a*/")));
  EXPECT_THAT(matcher.captures(), ElementsAre(capture_of("x", "")));
  ASSERT_TRUE(matcher.accept(1) && matcher.accept(3) && matcher.accept(0));
  EXPECT_THAT(matcher.captures(), ElementsAre(capture_of("x", "aa")));
}

TEST(CapturesTest, WhatCannotBeCapturedIsRefused) {
  EXPECT_THAT(capture_error("start: A\nA[capture]: /a/"),
              AllOf(StartsWith("g:2:2: "), HasSubstr("name[capture]: A")));
  EXPECT_THAT(capture_error("start: a\na[capture=b]: /a/"), HasSubstr("name in quotes"));
  EXPECT_THAT(capture_error("start: a\na[capture=\"\"]: /a/"), HasSubstr("is empty"));
  GrammarSource tags;
  tags.kind = GrammarKind::kTags;
  tags.text = R"({"type": "lark", "grammar": "start: a\na[capture]: /a/"})";
  EXPECT_THAT(grammar_error([&] { check_grammar(tags); }),
              HasSubstr("a part of a structured text: leave capture out"));
}

}  // namespace
}  // namespace specdec
