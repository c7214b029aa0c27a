#include "grammar/tags/tag_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "grammar/cfg/earley_automaton.h"
#include "grammar/regex/regex_parser.h"
#include "tests/grammar/automaton_checks.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A format whose grammars are regular expressions. In its texts, a token is written as its name.
class Tags {
 public:
  explicit Tags(const std::string& json, std::map<std::string, Token> tokens = {})
      : tokens_(std::move(tokens)) {
    TagCompiler compiler;
    compiler.compile = [&](const TagContent& content) {
      return make_regex_automaton(regexes_, parse_regex(regexes_, content.text, false));
    };
    compiler.require_token = [&](const std::string& name) { return tokens_.at(name); };
    compiler.find_token = [&](const std::string& name) {
      const auto found = tokens_.find(name);
      return found == tokens_.end() ? std::nullopt : std::optional(found->second);
    };
    automaton_ =
        make_tag_automaton(make_tag_program(parse_tag_format(parse_json(json, "test")), compiler));
  }

  StateId walk(std::string_view text) {
    StateId state = automaton_->start();
    while (!text.empty() && state != Automaton::kDead) {
      const auto token = std::ranges::find_if(
          tokens_, [&](const auto& entry) { return text.starts_with(entry.first); });
      if (token != tokens_.end()) {
        state = automaton_->next_token(state, token->second);
        text.remove_prefix(token->first.size());
      } else {
        state = automaton_->next(state, static_cast<uint8_t>(text.front()));
        text.remove_prefix(1);
      }
    }
    return state;
  }
  bool accepts(std::string_view text) {
    const StateId state = walk(text);
    return state != Automaton::kDead && automaton_->is_complete(state);
  }
  bool is_prefix(std::string_view text) { return walk(text) != Automaton::kDead; }
  Automaton& automaton() { return *automaton_; }

 private:
  RegexStore regexes_;
  std::map<std::string, Token> tokens_;
  std::unique_ptr<Automaton> automaton_;
};

std::string tag(const std::string& begin, const std::string& pattern, const std::string& end) {
  return R"({"type": "tag", "begin": ")" + begin +
         R"(", "content": {"type": "regex", "pattern": ")" + pattern + R"("}, "end": ")" + end +
         "\"}";
}

std::string triggered(const std::string& more) {
  return R"({"type": "triggered_tags", "tags": [)" + tag("<a>", "[0-9]+", "</a>") + "," +
         tag("<b>", "[x-z]*", "</b>") + "]" + more + "}";
}

TEST(TagAutomatonTest, TagsInFreeText) {
  Tags tags(triggered(""));
  EXPECT_TRUE(tags.accepts(""));
  EXPECT_TRUE(tags.accepts("one <a>1</a> two <b></b> < <a"));
  EXPECT_FALSE(tags.accepts("<a>1</a"));
  EXPECT_FALSE(tags.is_prefix("<a>x"));
}

TEST(TagAutomatonTest, AtLeastOne) {
  Tags tags(triggered(R"(, "at_least_one": true)"));
  EXPECT_FALSE(tags.accepts(""));
  EXPECT_FALSE(tags.accepts("text"));
  EXPECT_TRUE(tags.accepts("text <a>1</a>"));
  EXPECT_TRUE(tags.accepts("<b>x</b> more <a>1</a> text"));
}

TEST(TagAutomatonTest, StopAfterTheFirst) {
  Tags tags(triggered(R"(, "stop_after_first": true)"));
  EXPECT_TRUE(tags.accepts("text"));
  EXPECT_TRUE(tags.accepts("text <a>1</a>"));
  EXPECT_FALSE(tags.is_prefix("text <a>1</a> "));
  Tags both(triggered(R"(, "stop_after_first": true, "at_least_one": true)"));
  EXPECT_FALSE(both.accepts("text"));
  EXPECT_TRUE(both.accepts("text <b>z</b>"));
  EXPECT_FALSE(both.is_prefix("<b>z</b>x"));
}

TEST(TagAutomatonTest, AfterATriggerATagMustCome) {
  Tags tags(triggered(R"(, "triggers": ["<"])"));
  EXPECT_TRUE(tags.is_prefix("a <"));
  EXPECT_FALSE(tags.accepts("a <"));
  EXPECT_FALSE(tags.is_prefix("a <c"));
  EXPECT_FALSE(tags.is_prefix("a < "));
  EXPECT_TRUE(tags.accepts("a <b>x</b>"));
}

TEST(TagAutomatonTest, ExcludedTextsDoNotStandBetweenTags) {
  Tags tags(triggered(R"(, "excludes": ["no", "née", "</c>"])"));
  EXPECT_TRUE(tags.accepts("n n e <a>1</a> ne </a>"));
  EXPECT_FALSE(tags.is_prefix("a no"));
  EXPECT_TRUE(tags.is_prefix("a né"));
  EXPECT_FALSE(tags.is_prefix("a née"));
  EXPECT_FALSE(tags.is_prefix("<a>1</a></c>"));
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(tags.automaton(), random, 20);
    EXPECT_TRUE(can_finish(tags.automaton(), tags.walk(text))) << text;
  }
}

TEST(TagAutomatonTest, ExclusionsNeverLeaveACharacterWithoutAnEnd) {
  std::string all;  // of the characters C3 80 to C3 BF
  for (int last = 0x80; last < 0xC0; ++last) {
    all += std::string(all.empty() ? "\"" : ", \"") + "\xC3" + static_cast<char>(last) + "\"";
  }
  Tags tags(R"({"type": "any_text", "excludes": [)" + all + "]}");
  EXPECT_FALSE(tags.is_prefix("\xC3"));
  EXPECT_TRUE(tags.accepts("\xC4\x80"));
}

TEST(TagAutomatonTest, TagsWithASeparator) {
  const std::string list =
      R"({"type": "tags_with_separator", "separator": ", ", "tags": [)" + tag("(", "a+", ")") + "]";
  Tags any(list + "}");
  EXPECT_TRUE(any.accepts(""));
  EXPECT_TRUE(any.accepts("(a)"));
  EXPECT_TRUE(any.accepts("(a), (aa)"));
  EXPECT_FALSE(any.accepts("(a), "));
  EXPECT_FALSE(any.is_prefix("x"));
  Tags some(list + R"(, "at_least_one": true})");
  EXPECT_FALSE(some.accepts(""));
  EXPECT_TRUE(some.accepts("(a), (a), (a)"));
  Tags one(list + R"(, "stop_after_first": true})");
  EXPECT_TRUE(one.accepts(""));
  EXPECT_TRUE(one.accepts("(a)"));
  EXPECT_FALSE(one.is_prefix("(a),"));
}

TEST(TagAutomatonTest, SequencesAndRepetitions) {
  Tags tags(R"({"type": "sequence", "elements": [
      {"type": "optional", "content": {"type": "tag", "begin": "<think>",
        "content": {"type": "any_text"}, "end": ["</think>", "</thought>"]}},
      {"type": "or", "elements": [{"type": "const_string", "value": "yes"},
        {"type": "repeat", "min": 1, "max": 2, "content": {"type": "regex", "pattern": "[0-9];"}}]},
      {"type": "star", "content": {"type": "const_string", "value": "!"}}]})");
  EXPECT_TRUE(tags.accepts("yes"));
  EXPECT_TRUE(tags.accepts("<think>yes no</thought>1;!!"));
  EXPECT_TRUE(tags.accepts("1;2;"));
  EXPECT_FALSE(tags.is_prefix("1;2;3"));
  EXPECT_FALSE(tags.accepts("<think>a</think>"));
  EXPECT_FALSE(tags.is_prefix("<think>a</think>b"));  // the first end counts
}

TEST(TagAutomatonTest, RepetitionsCountTheirCopies) {
  const auto repeat = [](const std::string& counts, const std::string& content) {
    return R"({"type": "repeat", )" + counts + R"(, "content": )" + content + "}";
  };
  const std::string a = R"({"type": "const_string", "value": "a"})";
  const std::string maybe_a = R"({"type": "regex", "pattern": "a?"})";
  const auto accepted = [](Tags tags) {
    std::vector<size_t> lengths;
    for (size_t length = 0; length < 6; ++length) {
      if (tags.accepts(std::string(length, 'a'))) {
        lengths.push_back(length);
      }
    }
    return lengths;
  };
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 2, "max": 4)", a))), ElementsAre(2, 3, 4));
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 3)", a))), ElementsAre(3, 4, 5));
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 3, "max": 3)", a))), ElementsAre(3));
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 0, "max": 0)", a))), ElementsAre(0));
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 2, "max": 4)", maybe_a))), ElementsAre(0, 1, 2, 3, 4));
  const std::string two = R"({"type": "sequence", "elements": [)" + maybe_a + "," + maybe_a + "]}";
  EXPECT_THAT(accepted(Tags(repeat(R"("min": 2, "max": 2)", two))), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TagAutomatonTest, CopiesOfWhatMayBeEmptyMerge) {
  Tags tags(R"({"type": "sequence", "elements": [{"type": "const_string", "value": "("},
      {"type": "repeat", "min": 10000, "max": 10000,
       "content": {"type": "regex", "pattern": "[a-z]*;?"}},
      {"type": "const_string", "value": "]"}]
})");
  std::string text = "(";
  for (int i = 0; i < 2'000; ++i) {
    text += "ab;;";
  }
  EXPECT_TRUE(tags.accepts(text + "]"));
  EXPECT_FALSE(tags.is_prefix(text + "A"));
  EXPECT_THAT(grammar_error([] {
                Tags(R"({"type": "repeat", "max": 300, "content": {"type": "sequence", "elements": [
                    {"type": "regex", "pattern": "a*"}, {"type": "regex", "pattern": "b*"}]}})");
              }),
              HasSubstr("repeated up to 300 times what may be empty"));
}

TEST(TagAutomatonTest, TheEndCountsAtTheFirstPlace) {
  Tags tags(R"({"type": "sequence", "elements": [)" + tag("[", "[a-z;]*", ";") +
            R"(, {"type": "const_string", "value": "1"}]})");
  EXPECT_TRUE(tags.accepts("[abc;1"));
  EXPECT_FALSE(tags.is_prefix("[abc;d"));
}

TEST(TagAutomatonTest, TokensAreNotTheirBytes) {
  const std::string json = R"({"type": "triggered_tags", "tags": [{"begin":
      {"type": "sequence", "elements": [{"type": "token", "token": "<call>"},
                                        {"type": "const_string", "value": "f:"}]},
      "content": {"type": "regex", "pattern": "[0-9]+"}, "end": {"type": "token", "token": "<end>"}}]})";
  Tags tags(json, {{"<call>", 7}, {"<end>", 9}});
  Automaton& automaton = tags.automaton();
  EXPECT_THAT(automaton.named_tokens(), ElementsAre(7, 9));
  EXPECT_THAT(automaton.tokens(automaton.start()), ElementsAre(7));
  EXPECT_TRUE(tags.accepts("text <call>f:12<end> text <call>f:3<end>"));
  EXPECT_FALSE(tags.accepts("<call>"));
  EXPECT_FALSE(tags.is_prefix("<call>x"));
  EXPECT_FALSE(tags.is_prefix("<end>"));
  EXPECT_FALSE(tags.is_prefix("<call>f:<end>"));
  EXPECT_THAT(automaton.tokens(tags.walk("<call>f:1")), ElementsAre(9));
  EXPECT_THAT(automaton.tokens(tags.walk("<call>f:")), IsEmpty());
  EXPECT_THAT(automaton.tokens(walk(automaton, "\xC3")), IsEmpty());  // within a character
  EXPECT_TRUE(is_prefix(automaton, "<call>x"));                       // spelled: free text
}

TEST(TagAutomatonTest, WaysOutLeadToTheEnd) {
  const std::string json = R"({"type": "triggered_tags", "at_least_one": true, "tags": [{"begin":
      [{"type": "token", "token": "<call>"}, "<long-begin>"],
      "content": {"type": "regex", "pattern": "[0-9]{3}"}, "end": "</call>"}]})";
  Tags tags(json, {{"<call>", 7}});
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    StateId state = tags.walk(random_text(tags.automaton(), random, round % 30));
    for (int steps = 0; !tags.automaton().is_complete(state); ++steps) {
      ASSERT_LT(steps, 10);
      if (const auto token = tags.automaton().completion_token(state)) {
        EXPECT_EQ(tags.automaton().completion(state), std::nullopt);
        state = tags.automaton().next_token(state, *token);
      } else {
        const auto way = tags.automaton().completion(state).value_or("");
        for (const char byte : way.empty() ? std::string("0") : way) {  // of a regex none is known
          state = tags.automaton().next(state, static_cast<uint8_t>(byte));
        }
      }
      ASSERT_NE(state, Automaton::kDead);
    }
  }
}

TEST(TagAutomatonTest, ManyTagsShareTheirBeginnings) {
  std::string json = R"({"type": "triggered_tags", "triggers": ["<f="], "tags": [)";
  for (int i = 0; i < 300; ++i) {
    json += (i == 0 ? "" : ",") + tag("<f=tool_" + std::to_string(i) + ">", "a", "</f>");
  }
  Tags tags(json + "]}");
  EXPECT_TRUE(tags.accepts("text <f=tool_299>a</f><f=tool_0>a</f>"));
  EXPECT_FALSE(tags.is_prefix("text <f=tool_300"));
  EXPECT_THAT(tags.automaton().explain(tags.walk("<f=tool_")), HasSubstr("and 292 more texts"));
}

/// <a and <ab
TEST(TagAutomatonTest, TagsThatBeginAlikeNeedATrigger) {
  const auto tags = [](const std::string& more, const std::string& longer) {
    return R"({"type": "triggered_tags", "tags": [
        {"begin": "<a", "content": {"type": "regex", "pattern": "b*1"}, "end": ">"},
        {"begin": ")" +
           longer + R"(", "content": {"type": "regex", "pattern": "2"}, "end": ">"}])" + more + "}";
  };
  const auto error = [](const std::string& json) { return grammar_error([&] { Tags all(json); }); };
  EXPECT_THAT(error(tags("", "<ab")),
              HasSubstr("the tag '<ab' is found before it is whole: '<a' is found in it; give the "
                        "trigger '<a', after which either tag may come"));
  EXPECT_THAT(error(tags("", "x<ay")), HasSubstr("'<a' is found in it; remove one of them"));
  Tags both(tags(R"(, "triggers": ["<a"])", "<ab"));
  EXPECT_TRUE(both.accepts("<<a1> <ab1>x<ab2><abb1>"));
  EXPECT_FALSE(both.is_prefix("<a2") || both.is_prefix("<abb2") || both.is_prefix("<ax"));
}

TEST(TagAutomatonTest, FormatsThatCannotWorkAreErrors) {
  const auto error = [](const std::string& json) {
    return grammar_error([&] { Tags tags(json); });
  };
  EXPECT_THAT(error(R"({"type": "tags"})"), HasSubstr("#/type: there is no format of the type"));
  EXPECT_THAT(error(R"({"type": "any_tex"})"), HasSubstr("did you mean 'any_text'?"));
  EXPECT_THAT(error(R"({"type": "any_text", "exclude": []})"),
              HasSubstr("the key 'exclude' is unknown; did you mean 'excludes'?"));
  EXPECT_THAT(error(R"({"type": "const_string", "value": "a", "foo": 1})"),
              HasSubstr("the key 'foo' is unknown; known: type, value"));
  EXPECT_THAT(error(R"({"type": "or", "elements": []})"),
              HasSubstr("#/elements: the list is empty"));
  EXPECT_THAT(error(R"({"type": "or", "elements": [{"type": "tag", "begin": "a"}]})"),
              HasSubstr("#/elements/0: the key 'content' is missing"));
  EXPECT_THAT(error(R"({"type": "or", "elements": [3]})"), HasSubstr("#/elements/0: a format is"));
  EXPECT_THAT(error(triggered(R"(, "triggers": ["<", "<a"])")),
              HasSubstr("after the beginning of the trigger '<a' a tag must come"));
  EXPECT_THAT(error(triggered(R"(, "triggers": ["<c"])")),
              HasSubstr("no tag begins with the trigger '<c'"));
  EXPECT_THAT(error(triggered(R"(, "excludes": ["<"])")),
              HasSubstr("is found before it is whole: '<'"));
  EXPECT_THAT(error(triggered(R"(, "excludes": ["<a>"])")), HasSubstr("is what a tag begins with"));
  EXPECT_THAT(error(triggered(R"(, "excludes": [""])")), HasSubstr("must not be empty"));
  EXPECT_THAT(error(R"({"type": "sequence", "elements": [{"type": "any_text"},
                        {"type": "regex", "pattern": "a"}]})"),
              HasSubstr("#/elements/0: free text must end before a text or a token"));
  EXPECT_THAT(error(R"({"type": "repeat", "min": 3, "max": 2,
                        "content": {"type": "const_string", "value": "a"}})"),
              HasSubstr("repeated from 3 to 2 times"));
  EXPECT_THAT(error(R"({"type": "structural_tag", "format": {"type": "token"}})"),
              HasSubstr("#/format: the key 'token' is missing"));
}

}  // namespace
}  // namespace specdec
