#include "grammar/grammar_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = GrammarKind;

GrammarSource source_of(Kind kind, const std::string& text) {
  GrammarSource source;
  source.kind = kind;
  source.text = text;
  return source;
}

GrammarSource choice_of(std::vector<std::string> choices) {
  GrammarSource source;
  source.kind = Kind::kChoice;
  source.choices = std::move(choices);
  return source;
}

GrammarSource trigger_of(std::vector<GrammarSource::Trigger> triggers) {
  GrammarSource source;
  source.kind = Kind::kTrigger;
  source.triggers = std::move(triggers);
  return source;
}

/// Walks each text in the longest tokens that fit, each of which the mask must allow.
class Matches {
 public:
  explicit Matches(const GrammarSource& source)
      : grammar_(compile_grammar(tiny_vocabulary(1, 100), source)) {}

  bool operator()(std::string_view text) const {
    GrammarMatcher matcher(grammar_);
    while (!text.empty()) {
      const Token token = longest(text);
      const bool allowed = matcher.mask().allows(token);
      EXPECT_EQ(matcher.accept(token), allowed) << text;
      if (!allowed) {
        return false;
      }
      text.remove_prefix(grammar_->vocabulary().bytes(token).size());
    }
    EXPECT_EQ(matcher.mask().allows(kTinyEnd), matcher.is_complete());
    return matcher.is_complete();
  }

  const CompiledGrammar& grammar() const { return *grammar_; }

 private:
  Token longest(std::string_view text) const {
    const GrammarVocabulary& vocabulary = grammar_->vocabulary();
    Token best = 0;
    for (Token token = 2; token < vocabulary.vocab_size(); ++token) {
      if (text.starts_with(vocabulary.bytes(token)) &&
          vocabulary.bytes(token).size() > vocabulary.bytes(best).size()) {
        best = token;
      }
    }
    return best;
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
};

std::string source_error(const GrammarSource& source) {
  const auto checked = error_message<GrammarError>([&] { check_grammar(source); });
  EXPECT_EQ(error_message<GrammarError>([&] { compile_grammar(empty_vocabulary(), source); }),
            checked);
  return checked;
}

TEST(GrammarSourceTest, KindsHaveNames) {
  EXPECT_THAT(grammar_kind_names(), ElementsAre("json_schema", "regex", "gbnf", "lark", "choice",
                                                "trigger", "tags", "tool_calls"));
  EXPECT_EQ(grammar_kind_name(Kind::kTrigger), "trigger");
  EXPECT_EQ(parse_grammar_kind("lark"), Kind::kLark);
  EXPECT_EQ(parse_grammar_kind("Lark"), std::nullopt);
  EXPECT_EQ(parse_grammar_kind(""), std::nullopt);
}

TEST(GrammarSourceTest, JsonSchemas) {
  GrammarSource source = source_of(Kind::kJsonSchema, R"({"type": "array", "minItems": 1})");
  EXPECT_TRUE(Matches(source)(R"([{"a":"foo"},10])"));
  EXPECT_FALSE(Matches(source)("[]"));
  EXPECT_FALSE(Matches(source)("[1, 0]"));
  source.schema.whitespace = "spaced";
  EXPECT_TRUE(Matches(source)("[1, 0]"));
}

/// What is wrong with a source whose white space is bounded.
std::string bound_error(GrammarSource source) {
  source.schema.max_whitespace = 3;
  try {
    (void)check_grammar(source);
    return "";
  } catch (const GrammarError& error) {
    return error.what();
  }
}

std::string calls_with(const std::string& keys) {
  return R"({"style": "llama3", "tools": [{"type": "function", "function": {"name": "f"}}])" +
         keys + "}";
}

TEST(GrammarSourceTest, BoundsOfWhiteSpaceThatBoundNothingAreRefused) {
  const std::string schema = R"({"type": "json_schema", "json_schema": {"type": "array"})";
  const auto unused =
      HasSubstr("max_whitespace is 3, but no schema in it has the whitespace 'any'");
  EXPECT_THAT(bound_error(source_of(Kind::kTags, schema + "}")), unused);
  EXPECT_THAT(bound_error(source_of(Kind::kTags, R"({"type": "regex", "pattern": "a"})")), unused);
  EXPECT_THAT(bound_error(source_of(Kind::kToolCalls, calls_with(""))), unused);
  EXPECT_THAT(bound_error(source_of(Kind::kRegex, "a")), unused);
  EXPECT_THAT(bound_error(source_of(Kind::kLark, "start: %json {\"type\": \"array\"}")), unused);
  GrammarSource calls = source_of(Kind::kToolCalls, calls_with(""));
  calls.schema.whitespace = "any";  // the style has its own
  EXPECT_THAT(bound_error(calls), unused);
  GrammarSource triggers = source_of(Kind::kTrigger, "");
  GrammarSource part = source_of(Kind::kJsonSchema, "{}");
  part.schema.whitespace = "any";
  triggers.triggers = {{"<a>", part, "</a>"}};
  EXPECT_THAT(bound_error(triggers), unused) << "parts of triggers have options of their own";
  triggers.triggers[0].grammar.schema.max_whitespace = 3;
  EXPECT_NO_THROW((void)check_grammar(triggers));
  triggers.triggers[0].grammar.schema.whitespace = "compact";
  EXPECT_THROW((void)check_grammar(triggers), GrammarError);

  GrammarSource usual = source_of(Kind::kTags, schema + "}");
  usual.schema.usual_max_whitespace = 3;
  EXPECT_NO_THROW((void)check_grammar(usual)) << "nobody asked for that bound";
}

TEST(GrammarSourceTest, BoundsOfWhiteSpaceHoldInTagsCallsAndRules) {
  const std::string schema =
      R"({"type": "json_schema", "whitespace": "any", "json_schema": {"type": "array"}})";
  GrammarSource tags = source_of(Kind::kTags, schema);
  EXPECT_FALSE(Matches(tags)("[\n\n\n]"));
  tags.schema.max_whitespace = 3;
  EXPECT_TRUE(Matches(tags)("[\n\n\n]"));
  EXPECT_FALSE(Matches(tags)("[\n\n\n\n]"));
  GrammarSource lark = source_of(Kind::kLark, "start: %json {\"type\": \"array\"}");
  lark.schema.whitespace = "any";
  lark.schema.max_whitespace = 3;
  EXPECT_TRUE(Matches(lark)("[\n\n\n]"));
  EXPECT_FALSE(Matches(lark)("[\n\n\n\n]"));
  EXPECT_EQ(bound_error(source_of(Kind::kToolCalls, calls_with(R"(, "whitespace": "any")"))), "");
}

TEST(GrammarSourceTest, RegularExpressionsMatchWholeTexts) {
  const Matches matches(source_of(Kind::kRegex, "(foo|aa){2}é?"));
  EXPECT_TRUE(matches("fooaa"));
  EXPECT_TRUE(matches("aafooé"));
  EXPECT_FALSE(matches("foo"));
  EXPECT_FALSE(matches("fooaafoo"));
  EXPECT_FALSE(matches("bfooaa"));
}

TEST(GrammarSourceTest, Gbnf) {
  GrammarSource source =
      source_of(Kind::kGbnf, "root ::= \"a\" list\nlist ::= \"(\" root* \")\" | \"1\"\n");
  const Matches matches(source);
  EXPECT_TRUE(matches("a1"));
  EXPECT_TRUE(matches("a(a1a())"));
  EXPECT_FALSE(matches("a(a1"));
  const CompiledGrammar& grammar = matches.grammar();
  const StateId one = grammar.next(grammar.start(), "a1");
  EXPECT_EQ(grammar.completion(grammar.next(grammar.start(), "a(a")), "1)");
  EXPECT_EQ(grammar.completion(one), "");
  EXPECT_EQ(grammar.completion(grammar.next(one, kTinyEnd)), "");
  EXPECT_FALSE(matches("1"));
  source.start = "list";
  EXPECT_TRUE(Matches(source)("1"));
  EXPECT_TRUE(Matches(source)("(a1)"));
  EXPECT_FALSE(Matches(source)("a1"));
}

TEST(GrammarSourceTest, Lark) {
  GrammarSource source = source_of(
      Kind::kLark,
      "start: item (\",\" item)*\nitem: NAME | \"[\" start \"]\"\nNAME: /[a-c]+/\n%ignore \" \"\n");
  const Matches matches(source);
  EXPECT_TRUE(matches("abc, [aa,[b]] "));
  EXPECT_TRUE(matches(" a"));
  EXPECT_FALSE(matches("abc,"));
  EXPECT_FALSE(matches("[a"));
  source.start = "item";
  EXPECT_TRUE(Matches(source)(" [a, b]"));
  EXPECT_FALSE(Matches(source)("a, b"));
}

TEST(GrammarSourceTest, Choices) {
  const Matches matches(choice_of({"foo", "foobar", "日本", "a\"b", "foo"}));
  EXPECT_TRUE(matches("foo"));
  EXPECT_TRUE(matches("foobar"));
  EXPECT_TRUE(matches("日本"));
  EXPECT_TRUE(matches("a\"b"));
  EXPECT_FALSE(matches("bar"));
  EXPECT_FALSE(matches("日"));
  EXPECT_FALSE(matches(""));
  EXPECT_EQ(Matches(choice_of({"foobar", "foo"}))
                .grammar()
                .forced_bytes(Matches(choice_of({"foobar", "foo"})).grammar().start()),
            "foo");
  EXPECT_TRUE(Matches(choice_of({""}))(""));
  EXPECT_FALSE(Matches(choice_of({""}))("a"));
}

TEST(GrammarSourceTest, TriggersTakeEveryKind) {
  const Matches matches(
      trigger_of({{"<j>", source_of(Kind::kJsonSchema, "{\"const\": 10}"), "</j>"},
                  {"<c>", choice_of({"aa", "b"}), ""},
                  {"<g>", source_of(Kind::kGbnf, "root ::= \"0\"+"), "!"}}));
  EXPECT_TRUE(matches("free text"));
  EXPECT_TRUE(matches("a <j>10</j> b <c>aa, <g>000! "));
  EXPECT_FALSE(matches("<j>1</j>"));
  EXPECT_FALSE(matches("<c>c"));
  EXPECT_FALSE(matches("<g>0"));
}

TEST(GrammarSourceTest, ErrorsBeginWithNameAndPlace) {
  const auto named = [](GrammarSource source, const std::string& name) {
    source.name = name;
    return source_error(source);
  };
  EXPECT_THAT(named(source_of(Kind::kJsonSchema, "{\n\"type\": }"), "a.json"),
              HasSubstr("a.json:2:9: this is no JSON value"));
  EXPECT_THAT(named(source_of(Kind::kJsonSchema, R"({"items": {"type": "x"}})"), "a.json"),
              HasSubstr("a.json: #/items/type: "));
  EXPECT_THAT(named(source_of(Kind::kRegex, "a(b"), "a.regex"),
              HasSubstr("a.regex: pattern 'a(b', character "));
  EXPECT_THAT(named(source_of(Kind::kGbnf, "root ::= \"a\"\n  )"), "a.gbnf"),
              HasSubstr("a.gbnf:2:3: expected another part of the rule 'root'"));
  EXPECT_THAT(named(source_of(Kind::kLark, "start: \"a\"\nb: x\n"), "a.lark"),
              HasSubstr("a.lark:2:4: 'x' used but not defined"));
  EXPECT_THAT(source_error(source_of(Kind::kGbnf, "root ::= )")), HasSubstr("gbnf:1:10: "));
  EXPECT_THAT(source_error(source_of(Kind::kJsonSchema, "{")), HasSubstr("json_schema:1:2: "));
  EXPECT_THAT(named(choice_of({"\xFF"}), "choices"), HasSubstr("choices: "));
  EXPECT_THAT(named(trigger_of({{"<a>", source_of(Kind::kLark, "start: x"), ""}}), "grammar"),
              HasSubstr("grammar: lark:1:8: 'x' used but not defined"));
  EXPECT_THAT(named(trigger_of({{"", source_of(Kind::kRegex, "a"), ""}}), "grammar"),
              HasSubstr("grammar: trigger 1: the begin tag must not be empty"));
}

TEST(GrammarSourceTest, StartRulesAreNeeded) {
  GrammarSource source = source_of(Kind::kGbnf, "a ::= \"a\"");
  EXPECT_THAT(source_error(source), HasSubstr("gbnf:1:1: there is no rule 'root'"));
  source.start = "b";
  EXPECT_THAT(source_error(source), HasSubstr("there is no rule 'b'"));
  source = source_of(Kind::kLark, "a: \"a\"");
  EXPECT_THAT(source_error(source), HasSubstr("lark:1:1: there is no rule 'start'"));
}

TEST(GrammarSourceTest, LimitsHold) {
  GrammarSource source = source_of(Kind::kGbnf, "root ::= (\"(\" root? \")\"){20}");
  EXPECT_EQ(source_error(source), "no error");
  source.limits.max_unrolled = 10;
  EXPECT_THAT(source_error(source), HasSubstr("max_unrolled = 10"));
  source = source_of(Kind::kJsonSchema, R"({"anyOf": [{"multipleOf": 2}, {"multipleOf": 3}]})");
  source.limits.max_alternatives = 1;
  EXPECT_THAT(source_error(source),
              HasSubstr("json_schema: #: a value has more than 1 alternatives"));
  source = source_of(Kind::kJsonSchema,
                     R"({"properties": {"a": {"oneOf": [{"multipleOf": 2}, {"minimum": 3}]}}})");
  source.limits.max_steps = 20;
  EXPECT_THAT(source_error(source), HasSubstr("json_schema: #/properties/a: the schema's comb"));
}

TEST(GrammarSourceTest, GrammarsWithoutTextsAreErrors) {
  EXPECT_THAT(source_error(source_of(Kind::kJsonSchema, "false")),
              HasSubstr("json_schema: no JSON value satisfies this schema"));
  EXPECT_THAT(source_error(source_of(Kind::kRegex, "[^\\s\\S]")),
              HasSubstr("regex: no text matches"));
  EXPECT_THAT(source_error(source_of(Kind::kGbnf, "root ::= \"a\" root")),
              HasSubstr("gbnf:1:1: no text matches the rule 'root'"));
  EXPECT_THAT(source_error(choice_of({})), HasSubstr("choice: there is no choice"));
  EXPECT_THAT(source_error(trigger_of({})), HasSubstr("trigger: there is no trigger"));
  EXPECT_THAT(source_error(trigger_of({{"<a>", choice_of({}), ""}})),
              HasSubstr("trigger: choice: there is no choice"));
}

}  // namespace
}  // namespace specdec
