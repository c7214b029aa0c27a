// Tokens and JSON Schemas in grammars of GBNF and Lark, from their text to masks.
#include "grammar/cfg/rule_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "grammar/cfg/earley_automaton.h"
#include "grammar/cfg/lark.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/grammar/cfg/grammar_text.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

GrammarMatcher rules_matcher(GrammarKind kind, const std::string& text) {
  return GrammarMatcher(compile_grammar(control_vocabulary(), source_of_text(kind, text)));
}

GrammarMatcher lark_matcher(const std::string& text) {
  return rules_matcher(GrammarKind::kLark, text);
}

std::string rules_error(GrammarKind kind, const std::string& text) {
  return error_message<GrammarError>([&] { rules_matcher(kind, text); });
}

/// Bytes, and tokens by number: {"a", kCall}.
struct Piece {
  Piece(const char* bytes) : text(bytes) {}  // NOLINT(google-explicit-constructor)
  Piece(Token id) : token(id) {}             // NOLINT(google-explicit-constructor)
  std::string text;
  std::optional<Token> token;
};

bool takes(const GrammarMatcher& start, const std::vector<Piece>& pieces) {
  GrammarMatcher matcher = start;
  for (const Piece& piece : pieces) {
    if (!(piece.token ? matcher.accept(*piece.token) : matcher.accept_bytes(piece.text))) {
      return false;
    }
  }
  return matcher.is_complete();
}

/// Expects that, at random places, masks are what steps allow, and the completion leads to the end.
void expect_sound(const GrammarMatcher& start, uint32_t seed) {
  std::mt19937 random(seed);
  const CompiledGrammar& grammar = start.grammar();
  for (int round = 0; round < 25; ++round) {
    GrammarMatcher matcher = start;
    for (int step = 0; step < 25; ++step) {
      const TokenMask mask = matcher.mask();
      ASSERT_FALSE(mask.empty());
      for (Token token = 0; token < grammar.vocab_size(); ++token) {
        ASSERT_EQ(mask.allows(token), grammar.next(matcher.state(), token) != Automaton::kDead)
            << token << " at step " << step;
      }
      std::vector<Token> allowed = mask.tokens();
      std::erase_if(allowed, [&](Token token) { return grammar.is_end(token); });
      if (allowed.empty()) {
        break;
      }
      ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]));
    }
    for (int parts = 0; !matcher.is_complete(); ++parts) {
      ASSERT_LT(parts, 100);
      const auto token = grammar.completion_token(matcher.state());
      const auto bytes = grammar.completion(matcher.state());
      ASSERT_TRUE(token ? matcher.accept(*token) : matcher.accept_bytes(bytes.value_or("")));
      ASSERT_TRUE(token || !bytes.value_or("").empty());
    }
  }
}

TEST(RulePartsTest, TokensStandForThemselves) {
  for (const auto& [kind, text] : std::vector<std::pair<GrammarKind, std::string>>{
           {GrammarKind::kLark, "start: \"a\"* (<|call|> /[^;]*/ \";\")* <[3]>"},
           {GrammarKind::kLark,
            "start: \"a\"* one* END\none: CALL /[^;]*;/\nCALL: <|call|>\n"
            "END: </call>"},
           {GrammarKind::kGbnf, "root ::= \"a\"* (<|call|> [^;]* \";\")* </call>"},
           {GrammarKind::kGbnf, "root ::= \"a\"* one* <[3]>\none ::= <[2]> [^;]* \";\""}}) {
    const GrammarMatcher matcher = rules_matcher(kind, text);
    EXPECT_THAT(matcher.grammar().named_tokens(), ElementsAre(kCall, kEndOfCall)) << text;
    EXPECT_TRUE(takes(matcher, {kEndOfCall}));
    EXPECT_TRUE(takes(matcher, {"aa", kCall, "x</call>y;", kCall, ";", kEndOfCall}));
    EXPECT_FALSE(takes(matcher, {"aa", "</call>"}));
    EXPECT_FALSE(takes(matcher, {kCall, "x", kEndOfCall}));
    EXPECT_FALSE(takes(matcher, {kCall, kCall}));
    EXPECT_FALSE(takes(matcher, {"a"}));
    expect_sound(matcher, 1);
  }
}

TEST(RulePartsTest, SeveralTokensByNumber) {
  const GrammarMatcher matcher = lark_matcher("start: <[2-3,20]>~2");
  EXPECT_TRUE(takes(matcher, {kCall, 20}) && takes(matcher, {20, kEndOfCall}));
  EXPECT_FALSE(takes(matcher, {kCall, 21}) || takes(matcher, {kCall}));
  EXPECT_EQ(matcher.grammar().explain(matcher.state()),
            "the token <[2]>\nthe token <[3]>\nthe token <[20]>\n");
}

TEST(RulePartsTest, WhatIsIgnoredStandsBesideTokensAndSchemas) {
  const GrammarMatcher matcher =
      lark_matcher("start: <|call|> %json {\"type\": \"integer\"} \";\"\n%ignore \" \"");
  EXPECT_TRUE(takes(matcher, {" ", kCall, "  12 ;  "}));
  EXPECT_FALSE(takes(matcher, {kCall, "1 2;"}));
  expect_sound(matcher, 2);
}

TEST(RulePartsTest, AnEndTokenIsTheLast) {
  const std::string end = "<|turn_end|>";
  EXPECT_TRUE(takes(lark_matcher("start: \"a\" " + end + "\n%ignore \" \""), {"a ", kTurnEnd}));
  EXPECT_TRUE(takes(lark_matcher("start: \"(\" (start | " + end + "?)"), {"((", kTurnEnd}));
  for (const char* text :
       {"start: \"a\" END\nEND: <|turn_end|>\n%ignore \" \"",
        "%ignore \" \"\nEND: <|turn_end|>\nstart: pair{\"a\", END}\npair{x, y}: x y",
        "start: \"a\" <[2-4]>\n%ignore \" \""}) {
    EXPECT_TRUE(takes(lark_matcher(text), {"a ", kTurnEnd})) << text;
    EXPECT_FALSE(takes(lark_matcher(text), {"a", kTurnEnd, " "})) << text;
    expect_sound(lark_matcher(text), 6);
  }
  EXPECT_TRUE(takes(lark_matcher("start: \"a\" <[2-4]>\n%ignore \" \""), {"a ", kCall, " "}));
  for (const std::string rest : {" \"b\"", "+", " <|call|>?", " start?", " %json {}"}) {
    EXPECT_THAT(rules_error(GrammarKind::kLark, "start: \"a\"\n  | " + end + rest),
                AllOf(StartsWith("g:2:5: the token <|turn_end|> ends what is generated"),
                      HasSubstr("let it be the last")))
        << rest;
  }
  EXPECT_THAT(rules_error(GrammarKind::kGbnf, "root ::= x \"b\"\nx ::= <|turn_end|> | \"c\""),
              StartsWith("g:2:7: the token <|turn_end|>"));
  GrammarSource tags = source_of_text(GrammarKind::kTags, R"({"begin": "(", "end": "!", "content":
      {"type": "lark", "grammar": "start: <|turn_end|>"}})");
  EXPECT_THAT(error_message<GrammarError>([&] { compile_grammar(control_vocabulary(), tags); }),
              AllOf(HasSubstr("1:8: the token <|turn_end|>"), HasSubstr("as a tag's end")));
}

/// Rules that lead to one another in a long row; what is true of the last reaches the first. Slower
/// than linear, it would take minutes.
TEST(RulePartsTest, EndTokensAreFoundInLongGrammars) {
  std::string rows;
  constexpr int kRules = 40'000;
  for (int i = 0; i < kRules; ++i) {
    rows += fmt::format("r{}: r{} | r{} r{}\n", i, i + 1, i + 1, i + 1);
  }
  const auto last = fmt::format("r{}: \"a\"", kRules);
  EXPECT_THAT(rules_error(GrammarKind::kLark, "start: r0 | <|turn_end|>\n" + rows + last),
              HasSubstr("max_state_items"));  // which is looked at later
  EXPECT_THAT(rules_error(GrammarKind::kLark, "start: r0\n" + rows + last + " | <|turn_end|>"),
              HasSubstr("the token <|turn_end|> ends what is generated"));
}

TEST(RulePartsTest, AnEndTokenThatIsNamedEndsTheText) {
  for (const char* text : {"start: \"a\" <|turn_end|>", "start: \"a\" <|turn_end|>?"}) {
    GrammarMatcher matcher = lark_matcher(text);
    ASSERT_TRUE(matcher.accept_bytes("a") && matcher.accept(kTurnEnd)) << text;
    EXPECT_TRUE(matcher.is_ended() && matcher.is_complete()) << text;
    EXPECT_TRUE(matcher.mask().empty()) << text;
    EXPECT_FALSE(matcher.accept(kTurnEnd)) << text;
  }
}

TEST(RulePartsTest, WrongTokensAreErrorsWithTheirPlace) {
  using enum GrammarKind;
  EXPECT_THAT(rules_error(kLark, "start: \"a\"\n  | <|cal|>"),
              AllOf(StartsWith("g:2:5: the vocabulary of 266 tokens has no token '<|cal|>'"),
                    HasSubstr("near are: <|call|>")));
  EXPECT_THAT(rules_error(kGbnf, "root ::= <[266]>"), StartsWith("g:1:10: the vocabulary"));
  EXPECT_THAT(rules_error(kLark, "start: <[1-0]>"), HasSubstr("swap its ends"));
  EXPECT_THAT(rules_error(kLark, "start: <[1-2000000000]>"), HasSubstr("more than 1000 tokens"));
  EXPECT_THAT(rules_error(kLark, "start: <[1;2]>"), HasSubstr("expected ']>'"));
  EXPECT_THAT(rules_error(kLark, "start: <[*]>"), HasSubstr("'any token'"));
  EXPECT_THAT(rules_error(kGbnf, "root ::= <call\n>"), HasSubstr("not closed"));
  EXPECT_THAT(rules_error(kLark, "start: A\nA: \"a\" <|call|>"),
              AllOf(StartsWith("g:2:8:"), HasSubstr("tokens and %json cannot be a part")));
  EXPECT_THAT(rules_error(kLark, "start: A\nA: \"a\" B\nB: <|call|>"), StartsWith("g:2:8:"));
  EXPECT_THAT(rules_error(kLark, "start: a\na[lazy]: /x/ %json {}"), StartsWith("g:2:14:"));
  EXPECT_THAT(rules_error(kLark, "start: A\nA: /x*?y/ <|call|>"), StartsWith("g:2:11:"));
  for (const char* ignored : {"<|call|>", "%json {}", "CALL\nCALL: <|call|>"}) {
    EXPECT_THAT(rules_error(kLark, std::string("start: \"a\"\n%ignore ") + ignored),
                AllOf(StartsWith("g:2:9: tokens and %json cannot be ignored"),
                      Not(HasSubstr("make it a rule"))));
  }
  EXPECT_THAT(rules_error(kLark, "start: x\nx[suffix=<|call|>]: /a/"),
              StartsWith("g:2:10: tokens and %json cannot be lazy or a suffix"));
  EXPECT_THAT(rules_error(kLark, "start: x\nx[lazy]: %json {}"),
              StartsWith("g:2:10: tokens and %json cannot be lazy"));
  EXPECT_THAT(check_grammar(source_of_text(kLark, "start: <|any|> <[9999]>")),
              ElementsAre("<|any|>", "<[9999]>"));  // only a vocabulary knows
}

constexpr std::string_view kCallGrammar = R"lark(
start: TEXT | TEXT? call ("," call)*
call: "<f>" arguments "</f>"
arguments: %json {
  "type": "object",
  "properties": {"a{\"": {"type": "string"}, "n": {"type": "number"}},
  "required": ["n"], "additionalProperties": false
} | list
list: "[" ITEM ("," list)* "]"
ITEM: %json {"enum": ["x]", 1, null]}
TEXT: /[a-z {]+/
)lark";

TEST(RulePartsTest, JsonSchemasArePartsOfRules) {
  const GrammarMatcher matcher = lark_matcher(std::string(kCallGrammar));
  for (const char* text :
       {"text {", "<f>{\"n\":1}</f>", "a<f>{\"a{\\\"\":\"}</f>\",\"n\":-1.5}</f>",
        "<f>[1]</f>,<f>[\"x]\",[null]]</f>,<f>{\"n\":20}</f>"}) {
    EXPECT_TRUE(takes(matcher, {text})) << text;
  }
  for (const char* text : {"<f>{}</f>", "<f>{\"n\":1,\"m\":2}</f>", "<f>[2]</f>", "<f>[1 ]</f>",
                           "<f>{\"n\":1}</f>a", "<f>{\"n\":1.}</f>", ""}) {
    EXPECT_FALSE(takes(matcher, {text})) << text;
  }
  expect_sound(matcher, 3);
}

TEST(RulePartsTest, ManyMayBeginAtOnce) {
  const GrammarMatcher matcher = lark_matcher(
      "start: (%json {\"type\": \"integer\"} | /[0-9]+[a-z]/ | %json {\"enum\": [\"é\", 1.5, 12]} "
      "| /\"é?\"\"/)+");
  for (const char* text : {"1", "12", "12a1.5", "1.51", "\"é\"\"é\"\"", "\"\"\"\"é\"", "00z"}) {
    EXPECT_TRUE(takes(matcher, {text})) << text;
  }
  for (const char* text : {"1.", "a", "\"\"", "\"é", "1.5a"}) {
    EXPECT_FALSE(takes(matcher, {text})) << text;
  }
  EXPECT_FALSE(matcher.grammar().explain(matcher.state()).empty());
  expect_sound(matcher, 4);
}

TEST(RulePartsTest, ManyStringsMayBeginAtOnce) {
  const GrammarMatcher matcher = lark_matcher(
      "start: (%json {\"pattern\": \"^a*b\", \"type\": \"string\"} | "
      "%json {\"enum\": [\"ab\", \"c\", 1]} \"!\" | "
      "%json {\"type\": \"string\", \"maxLength\": 2} \"?\" | "
      "%json {\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}}})+");
  for (const char* text : {"\"ab\"", "\"ab\"!", "\"ab\"?", "\"c\"!\"c\"?{\"ab\":1}", "1!\"aab\""}) {
    EXPECT_TRUE(takes(matcher, {text})) << text;
  }
  for (const char* text : {"\"aab\"!", "\"c\"", "\"abc\"?", "\"\"!"}) {
    EXPECT_FALSE(takes(matcher, {text})) << text;
  }
  expect_sound(matcher, 6);
}

/// One language of them all: their masks take one walk, and no states of each of them.
TEST(RulePartsTest, StringsWithTheSameBehindThemAreOne) {
  SharedLanguages languages;
  RuleParts parts;
  parts.compile_schema = [&](const std::string& schema, const std::string& where) {
    return make_json_schema_automaton(languages, parse_json(schema, where), {}, {});
  };
  std::string text = "start: (";
  for (int i = 0; i < 50; ++i) {
    text += (i == 0 ? "" : " | ") +
            fmt::format("%json {{\"type\": \"string\", \"pattern\": \"^[a-z]*{}$\"}}", i);
  }
  const auto automaton = make_lark_automaton(languages.regexes, text + ") \"!\"", "g", parts);
  OpenString string;
  const StateId state = automaton->next(automaton->next(automaton->start(), '"'), 'a');
  ASSERT_TRUE(automaton->string_states()->describe(state, string));
  ASSERT_EQ(string.parts.size(), 1U);
  EXPECT_TRUE(languages.regexes.matches(string.parts[0].language, U"bc49"));
  EXPECT_FALSE(languages.regexes.matches(string.parts[0].language, U"bc50"));
  EXPECT_TRUE(automaton->is_complete(automaton->next(string.parts[0].closed, '!')));
}

TEST(RulePartsTest, SchemasAloneAreWhatTheyAreWithoutLark) {
  const std::string schema = R"({"type": "object", "properties": {"s": {"type": "string",
      "pattern": "^[a-é]{2,}$"}, "t": {"type": "array", "items": {"type": "string"},
      "uniqueItems": true}, "u": {"$ref": "#"}}, "required": ["s"]})";
  for (const std::string whitespace : {"compact", "spaced"}) {
    GrammarSource lark = source_of_text(GrammarKind::kLark, "start: %json " + schema);
    GrammarSource json = source_of_text(GrammarKind::kJsonSchema, schema);
    lark.schema.whitespace = json.schema.whitespace = whitespace;
    const auto vocabulary = tiny_vocabulary(3, 200);
    std::mt19937 random(5);
    for (int round = 0; round < 10; ++round) {
      GrammarMatcher inside(compile_grammar(vocabulary, lark));
      GrammarMatcher alone(compile_grammar(vocabulary, json));
      for (int step = 0; step < 40 && !alone.mask().tokens().empty(); ++step) {
        const std::vector<Token> allowed = alone.mask().tokens();
        ASSERT_EQ(inside.mask().tokens(), allowed);
        const Token token = allowed[random() % allowed.size()];
        ASSERT_TRUE(inside.accept(token) && alone.accept(token));
      }
    }
  }
}

TEST(RulePartsTest, SchemasInTemplatesAreReadOnce) {
  const GrammarMatcher matcher =
      lark_matcher("start: two{\"a\"} two{\"b\"}\ntwo{x}: x %json {\"type\": \"boolean\"} x");
  EXPECT_TRUE(takes(matcher, {"atrueabfalseb"}));
  EXPECT_FALSE(takes(matcher, {"atrueaatruea"}));
}

TEST(RulePartsTest, TooManyOpenSchemasAreALimit) {
  GrammarSource source = source_of_text(
      GrammarKind::kLark, "start: (\"[\" | %json {\"type\": \"array\"} | %json {\"enum\": [[]]})*");
  source.limits.max_state_items = 40;
  GrammarMatcher matcher(compile_grammar(control_vocabulary(), source));
  while (matcher.length() < 100 && matcher.accept_bytes("[")) {
  }
  EXPECT_GT(matcher.length(), 10);
  EXPECT_LT(matcher.length(), 40);
  EXPECT_FALSE(matcher.accept_bytes("["));
  EXPECT_THAT(matcher.limit().value_or(""), HasSubstr("max_state_items = 40"));
}

TEST(RulePartsTest, WaysOutShunSchemasThatKnowNone) {
  std::string schema = "{\"type\": \"integer\"}";
  for (int i = 0; i < 60; ++i) {
    schema = R"({"type": "object", "properties": {"a": )" + schema + R"(}, "required": ["a"]})";
  }
  const GrammarMatcher alone = lark_matcher("start: %json " + schema);
  ASSERT_EQ(alone.grammar().completion(alone.state()), std::nullopt);
  const GrammarMatcher matcher = lark_matcher("start: %json " + schema + " | \"abc\"~9");
  EXPECT_EQ(matcher.grammar().completion(matcher.state()), "abcabcabcabcabcabcabcabcabc");
}

TEST(RulePartsTest, SchemasCostTheirOwnTextAlone) {
  std::string text = "start: a0\n";
  constexpr int kSchemas = 200;
  for (int i = 0; i < kSchemas; ++i) {
    text += fmt::format("a{}: %json {{\"const\": 1}} a{}\n", i, i + 1);
  }
  RegexStore regexes;
  RuleParts parts;
  size_t bytes = 0;
  parts.compile_schema = [&](const std::string& schema, const std::string& /*where*/) {
    bytes += schema.size();
    return make_regex_automaton(regexes, regexes.literal(U"1"));
  };
  text += fmt::format("a{}: \"a\"", kSchemas);
  EXPECT_NE(make_lark_automaton(regexes, text, "g", parts), nullptr);
  EXPECT_LT(bytes, text.size());
}

TEST(RulePartsTest, WrongSchemasAreErrorsWithTheirPlace) {
  const auto error = [](const std::string& body) {
    return rules_error(GrammarKind::kLark, "start: \"é\" %json" + body);
  };
  EXPECT_THAT(error(" {\"type\":\n  \"array\",,}"), StartsWith("g:2:11: "));
  EXPECT_THAT(error(" {\"a\": x}"), StartsWith("g:1:24: "));
  EXPECT_THAT(error(" {\"items\": {\"type\": \"float\"}}"),
              AllOf(StartsWith("g:1:18: "), HasSubstr("#/items")));
  EXPECT_THAT(error(" {\"type\": \"string\", \"enum\": [1]}"),
              AllOf(StartsWith("g:1:18: "), HasSubstr("no JSON value satisfies")));
  EXPECT_THAT(error(" {\"a\": {}"), AllOf(StartsWith("g:1:18: "), HasSubstr("not closed")));
  EXPECT_THAT(error(" {\"a\": \"}"), HasSubstr("not closed"));
  EXPECT_THAT(error(R"( {"items": {"$ref": "#/definitions/x"}})"),
              StartsWith("g:1:18: #/items: $ref: '#/definitions/x' names nothing"));
  EXPECT_THAT(error(" true"), HasSubstr("begins with '{', found 't'"));
  EXPECT_THAT(error(" {\"x-guidance\": {}}"), HasSubstr("'x-guidance' is not read"));
}

}  // namespace
}  // namespace specdec
