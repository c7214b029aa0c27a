#include "grammar/tags/trigger_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/utf8.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/gbnf.h"
#include "grammar/regex/regex_parser.h"
#include "tests/grammar/automaton_checks.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Tag {
  std::string begin;
  std::string pattern;  ///< of the text between the tags
  std::string end;
};

class Trigger {
 public:
  explicit Trigger(const std::vector<Tag>& tags) {
    std::vector<TriggerRule> rules;
    for (const Tag& tag : tags) {
      rules.push_back({tag.begin,
                       make_regex_automaton(regexes_, parse_regex(regexes_, tag.pattern, false)),
                       tag.end});
    }
    automaton_ = make_trigger_automaton(std::move(rules));
  }
  bool accepts(std::string_view text) { return specdec::accepts(*automaton_, text); }
  bool is_prefix(std::string_view text) { return specdec::is_prefix(*automaton_, text); }
  StateId walk(std::string_view text) { return specdec::walk(*automaton_, text); }
  Automaton& automaton() { return *automaton_; }

 private:
  RegexStore regexes_;
  std::unique_ptr<Automaton> automaton_;
};

TEST(TriggerAutomatonTest, TextIsFreeUpToATag) {
  Trigger trigger({{"<call>", "[a-c]+", "</call>"}});
  EXPECT_TRUE(trigger.accepts(""));
  EXPECT_TRUE(trigger.accepts("Some text, é中😀 < <call <cal"));
  EXPECT_FALSE(trigger.accepts("x<call>"));
  EXPECT_TRUE(trigger.is_prefix("x<call>"));
  EXPECT_FALSE(trigger.is_prefix("x<call>d"));
  EXPECT_FALSE(trigger.accepts("x<call>ab</call"));
  EXPECT_TRUE(trigger.accepts("x<call>ab</call>"));
  EXPECT_TRUE(trigger.accepts("x<call>ab</call> then <call>c</call></call><ca"));
  EXPECT_FALSE(trigger.is_prefix("x<call></call>"));
}

TEST(TriggerAutomatonTest, PartialMatchesOverlap) {
  Trigger trigger({{"aab", "1", "2"}});
  EXPECT_TRUE(trigger.accepts("aaaab12"));
  EXPECT_FALSE(trigger.is_prefix("aaaabx"));
  EXPECT_EQ(trigger.walk("aaaaaaaa"), trigger.walk("aa"));
  EXPECT_EQ(trigger.walk("ab aab12"), trigger.walk(""));
  Trigger nested({{"<<a>", "1", ""}, {"<b>", "2", ""}});
  EXPECT_FALSE(nested.is_prefix("<<b>1"));
  EXPECT_TRUE(nested.accepts("<<b>2<<<a>1"));
}

TEST(TriggerAutomatonTest, TheLongestOfTagsThatEndTogetherCounts) {
  Trigger trigger({{"b>", "1", ""}, {"<ab>", "2", ""}});
  EXPECT_TRUE(trigger.accepts("<ab>2"));
  EXPECT_FALSE(trigger.is_prefix("<ab>1"));
  EXPECT_TRUE(trigger.accepts("<b>1"));
}

TEST(TriggerAutomatonTest, EndTagsMayLookLikeTheInnerText) {
  Trigger trigger({{"[", "(ab|b)*a?", "abb]"}});
  EXPECT_TRUE(trigger.accepts("[abb]"));
  EXPECT_TRUE(trigger.accepts("[abababb]"));
  EXPECT_TRUE(trigger.accepts("[aabb]"));
  EXPECT_TRUE(trigger.is_prefix("[bbabb"));
  EXPECT_FALSE(trigger.is_prefix("[bb]"));
  Trigger repeated({{"[", "a*", "aab"}});
  EXPECT_TRUE(repeated.accepts("[aaaaab"));
  EXPECT_FALSE(repeated.is_prefix("[ab"));
}

TEST(TriggerAutomatonTest, WithoutAnEndTagTheGrammarGoesOnAsLongAsItCan) {
  Trigger trigger({{"#", "[0-9]+", ""}});
  EXPECT_TRUE(trigger.accepts("#12"));
  EXPECT_TRUE(trigger.accepts("#12 and #3"));
  EXPECT_TRUE(trigger.accepts("#1#2"));
  EXPECT_FALSE(trigger.is_prefix("##"));
  EXPECT_FALSE(trigger.is_prefix("#12\xFF"));
}

TEST(TriggerAutomatonTest, FreeTextIsUtf8) {
  Trigger trigger({{"→", "x", "é"}});
  EXPECT_TRUE(trigger.accepts("\xE2\x86\x91 →xé\xC3\xA9"));
  EXPECT_FALSE(trigger.accepts("\xE2\x86"));
  EXPECT_TRUE(trigger.is_prefix("\xE2\x86"));
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    static constexpr std::string_view kBytes =
        "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
    std::string text;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      text += kBytes[random() % kBytes.size()];
    }
    ASSERT_EQ(trigger.accepts(text), is_utf8(text));
    const Utf8Scan scan = scan_utf8(text);
    ASSERT_TRUE(scan.valid || scan.prefix || !trigger.is_prefix(text));
  }
}

TEST(TriggerAutomatonTest, RandomTextsFinish) {
  RegexStore regexes;
  std::vector<TriggerRule> rules;
  rules.push_back({"<", make_gbnf_automaton(regexes, "root ::= \"(\" root* \")\"", "test"), ">"});
  rules.push_back({"$", make_gbnf_automaton(regexes, "root ::= [0-9] root | \"é\"", "test"), ""});
  const auto automaton = make_trigger_automaton(std::move(rules));
  std::mt19937 random(9);
  for (int round = 0; round < 30; ++round) {
    std::string text;
    StateId state = automaton->start();
    for (int i = 0; i < 40; ++i) {
      const auto byte = static_cast<uint8_t>("<()>$0\xC3\xA9 "[random() % 9]);
      const StateId there = automaton->next(state, byte);
      state = there == Automaton::kDead ? state : there;
    }
    EXPECT_TRUE(can_finish(*automaton, state));
  }
}

TEST(TriggerAutomatonTest, Explains) {
  Trigger trigger({{"<a>", "x", "</a>"}});
  const auto explain = [&](std::string_view text) {
    return trigger.automaton().explain(trigger.walk(text));
  };
  EXPECT_THAT(explain(""), AllOf(HasSubstr("any text"), HasSubstr("after '<a>'")));
  EXPECT_THAT(explain("<a"), HasSubstr("2 bytes of a tag"));
  EXPECT_THAT(explain("<a>"), HasSubstr("'x'"));
  EXPECT_THAT(explain("<a>x"), HasSubstr("the text '</a>'"));
  EXPECT_THAT(explain("<a>x<"), HasSubstr("rest of the text: '/a>'"));
}

TEST(TriggerAutomatonTest, TagsThatCannotWorkAreErrors) {
  const auto error = [](const std::vector<Tag>& tags) {
    return grammar_error([&] { Trigger trigger(tags); });
  };
  EXPECT_THAT(error({{"", "x", ""}}), HasSubstr("must not be empty"));
  EXPECT_THAT(error({{"a\xFF", "x", ""}}), HasSubstr("UTF-8"));
  EXPECT_THAT(error({{"<a", "x", ""}, {"<ab>", "x", ""}}), HasSubstr("'<ab>'"));
  EXPECT_THAT(error({{"<a>", "x", ""}, {"<a>", "y", ""}}), HasSubstr("there are two of it"));
  EXPECT_THAT(error({{"<a>", "[^\\s\\S]", ""}}), HasSubstr("has no text"));
  EXPECT_EQ(error({{"a>", "x", ""}, {"<a>", "x", ""}}), "no error");
}

}  // namespace
}  // namespace specdec
