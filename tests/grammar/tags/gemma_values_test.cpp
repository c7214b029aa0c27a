// Arguments of Gemma 4 that no fixed order of parts describes: every keyword, by the values of the
// schema written in the notation.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"
#include "tests/support/random_schema.h"

namespace specdec {
namespace {

using GemmaGrammar = std::shared_ptr<const CompiledGrammar>;
using ::testing::HasSubstr;

constexpr std::string_view kQuoteText = "<|\"|>";
constexpr std::string_view kCallBegin = "<|tool_call>call:f";

/// The grammar of one call of f.
GemmaGrammar compile_call(const std::string& parameters,
                          const std::shared_ptr<GrammarVocabulary>& vocabulary = empty_vocabulary(),
                          uint64_t max_states = GrammarLimits().max_states) {
  GrammarSource source;
  source.limits.max_states = max_states;
  source.kind = GrammarKind::kToolCalls;
  source.schema.schema_order = false;  // numbers in every spelling
  source.text = R"({"style": "gemma4", "tool_choice": "required", "parallel_tool_calls": false,
                    "tools": [{"type": "function", "function": {"name": "f", "parameters": )" +
                parameters + "}}]}";
  return compile_grammar(vocabulary, source);
}

bool takes(const GemmaGrammar& grammar, const std::string& arguments) {
  return accepts(*grammar, std::string(kCallBegin) + arguments + "<tool_call|>");
}

/// A value as the chat template writes it: names sorted, small and capital letters alike.
std::string gemma_text(const JsonValue& value) {
  using Type = JsonValue::Type;
  std::vector<std::string> parts;
  if (value.is(Type::kString)) {
    return fmt::format("{0}{1}{0}", kQuoteText, value.text);
  }
  if (value.is(Type::kArray)) {
    for (const JsonValue& item : value.items) {
      parts.push_back(gemma_text(item));
    }
    return fmt::format("[{}]", fmt::join(parts, ","));
  }
  if (!value.is(Type::kObject)) {
    return to_json(value);
  }
  std::vector<const JsonMember*> members;
  for (const JsonMember& member : value.members) {
    members.push_back(&member);
  }
  std::ranges::stable_sort(members, {}, [](const JsonMember* member) {
    std::string low = member->name;
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
    return low;
  });
  for (const JsonMember* member : members) {
    parts.push_back(member->name + ":" + gemma_text(member->value));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ","));
}

std::string gemma_text(const std::string& json) { return gemma_text(parse_json(json, "value")); }

struct KeywordCase {
  const char* name;
  const char* schema;
  std::vector<const char*> valid, invalid;  ///< as JSON
};

const std::vector<KeywordCase>& keyword_cases() {
  static const std::vector<KeywordCase> cases = {
      {"recursion",
       R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
           "v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"},
           "all": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
           "required": ["v"], "additionalProperties": false}}})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})",
        R"({"v":1,"all":[{"v":2,"all":[]},{"v":3}]})"},
       {"{}", R"({"v":1,"next":{}})", R"({"v":1,"all":[{"v":"a"}]})", R"({"v":1,"w":2})"}},
      {"a root of draft 7",
       R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/A",
           "definitions": {"A": {"type": "object", "additionalProperties": {"type": "string"}}}})",
       {"{}", R"({"a":"x"})"},
       {R"({"a,b":"x"})", R"({"":"x"})", R"({"a":"<tool_call|>"})", "[]"}},
      {"uniqueItems",
       R"({"properties": {"a": {"type": "array", "items": {"type": ["string", "integer"]},
           "uniqueItems": true}}, "required": ["a"], "additionalProperties": false})",
       {R"({"a":[]})", R"({"a":["x","y",1,2]})", R"({"a":["1",1]})"},
       {R"({"a":["x","x"]})", R"({"a":[1,2,1]})", "{}"}},
      {"prefixItems",
       R"({"properties": {"a": {"type": "array", "prefixItems": [{"type": "string"},
           {"type": "integer"}], "items": false, "minItems": 1}}, "additionalProperties": false})",
       {R"({"a":["x"]})", R"({"a":["x",1]})", "{}"},
       {R"({"a":[]})", R"({"a":[1]})", R"({"a":["x",1,2]})"}},
      {"a map",
       R"({"properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}})",
       {R"({"m":{}})", R"({"m":{"b":1,"A":2,"é-1":3}})"},
       {R"({"m":{"b":"x"}})", R"({"m":[]})"}},
      {"patternProperties",
       R"({"properties": {"k": {"type": "null"}}, "patternProperties": {"^x-": {"type": "string"}},
           "additionalProperties": false, "maxProperties": 2})",
       {"{}", R"({"x-a":"1","k":null})", R"({"x-":"{a:1}"})"},
       {R"({"x-a":1})", R"({"y":"1"})", R"({"x-a":"","x-b":"","k":null})"}}};
  return cases;
}

TEST(GemmaValuesTest, KeywordsThatNoFixedOrderEnforces) {
  for (const KeywordCase& test : keyword_cases()) {
    const GemmaGrammar grammar = compile_call(test.schema);
    for (const char* json : test.valid) {
      EXPECT_TRUE(takes(grammar, gemma_text(json))) << test.name << " " << json;
    }
    for (const char* json : test.invalid) {
      EXPECT_FALSE(takes(grammar, gemma_text(json))) << test.name << " " << json;
    }
  }
}

TEST(GemmaValuesTest, TheNotationIsItsOwn) {
  const GemmaGrammar grammar = compile_call(
      R"({"type": "object", "additionalProperties": {"type": ["string", "integer", "array"],
          "items": {"type": "string"}, "maxLength": 4}})");
  for (const char* arguments :
       {R"({a:<|"|>"\<|"|>})", R"({a:<|"|><|"|>})", R"({a:<|"|><|<|"|>})", R"({a:<|"|><<<<|"|>})",
        "{a:<|\"|>\n\t<|\"|>}", R"({b:1,a:2})", R"({a"b\:[<|"|>x<|"|>]})", "{}"}) {
    EXPECT_TRUE(takes(grammar, arguments)) << arguments;
  }
  for (const char* arguments :
       {R"({"a":1})", R"({a:"x"})", R"({a:<|"|>x})", R"({a:<|"|>abcde<|"|>})", R"({a:x})",
        R"({a:[x]})", R"({a: 1})", R"({a:1,})", R"({a:1,a:2})", R"({:1})", R"({a:<|"x<|"|>})",
        R"({a:<|"|>x<|"|>1})", R"({a:[<|"|>x<|"|>:1]})", R"({a,b:1})", R"({a:<|"|>\n<|"|>1})"}) {
    EXPECT_FALSE(takes(grammar, arguments)) << arguments;
  }
  for (const std::string text : {"<|\"|>", "<tool_call|>", "<|tool_call>"}) {
    const GemmaGrammar free = compile_call(R"({"additionalProperties": {"type": "string"}})");
    EXPECT_TRUE(takes(free, "{a:<|\"|>" + text.substr(1) + "<|\"|>}"));
    EXPECT_FALSE(takes(free, "{a:<|\"|>b" + text + "c<|\"|>}")) << text;
  }
}

TEST(GemmaValuesTest, WhatCannotBeWrittenIsAnError) {
  const auto error = [](const std::string& parameters) {
    return error_message<GrammarError>([&] { compile_call(parameters); });
  };
  const std::string unique = R"(, "l": {"type": "array", "items": {}, "uniqueItems": true})";
  EXPECT_THAT(error(R"({"properties": {"a:b": {})" + unique + "}}"),
              HasSubstr("('f'): #/properties: the name 'a:b' cannot be written in the style"));
  EXPECT_THAT(error(R"({"required": [""], "properties": {"a": {})" + unique + "}}"),
              HasSubstr("#/required: the name '' cannot be written"));
  EXPECT_THAT(error(R"({"properties": {"a": {"enum": [{"x,": 1}]}}})"),
              HasSubstr("#/properties/a/enum: the name 'x,' cannot be written"));
  EXPECT_THAT(error(R"({"properties": {"a": {"const": ["<|\"|>"]}}})"), HasSubstr("<|\"|>"));
  EXPECT_THAT(error(R"({"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs":
                    {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
                           "type": "object"}}})"),
              HasSubstr("no JSON value satisfies"));
  EXPECT_THAT(error(R"({"properties": {"a": {"$ref": "#/$defs/none"}}})"), HasSubstr("none"));
}

/// Objects that list no properties have any, at the root and below; where one is listed, or an
/// empty list is given, the tool has these.
TEST(GemmaValuesTest, ObjectsWithoutPropertiesAreFree) {
  const std::vector<const char*> objects = {
      R"({"type": "object"})",
      R"({"type": "object", "additionalProperties": true})",
      R"({"type": "object", "title": "x", "default": {}, "maxLength": 3})",
      R"({"type": ["null", "object"]})",
      R"({"allOf": [{"type": "object"}, {"type": "object", "required": []}]})",
      R"({"$ref": "#/$defs/map"})"};
  for (const std::string object : objects) {
    const std::string definitions = R"(, "$defs": {"map": {"type": "object"}}})";
    const GemmaGrammar below =
        compile_call(R"({"type": "object", "properties": {"b": {"type": "integer"}, "o": )" +
                     object + R"(, "z": {"type": "null"}}, "required": ["o"])" + definitions);
    const GemmaGrammar root = compile_call(object.substr(0, object.size() - 1) + definitions);
    for (const char* json :
         {"{}", R"({"x":1})", R"({"y":"a}","A b":[1,{"q":"<"},[]],"x":{"n":null}})"}) {
      const std::string text = gemma_text(json);
      EXPECT_TRUE(takes(root, text)) << object << " " << text;
      EXPECT_TRUE(takes(below, "{b:1,o:" + text + ",z:null}")) << object << " " << text;
      EXPECT_TRUE(takes(below, "{o:" + text + "}")) << object << " " << text;
    }
    for (const std::string text :
         {R"({x})", R"({:1})", R"({x:1)", R"({"x":1})", R"({x:<|"|><tool_call|><|"|>})",
          R"({x:1,x:2})", R"([1])", R"({x:y})", R"({x:1,})"}) {
      EXPECT_FALSE(takes(root, text)) << object << " " << text;
      EXPECT_FALSE(takes(below, "{o:" + text + "}")) << object << " " << text;
    }
    EXPECT_FALSE(takes(below, "{o:{},x:1}") || takes(below, "{o:{},b:1}"));
  }
  for (const char* none :
       {R"({"type": "object", "properties": {}})",
        R"({"type": "object", "additionalProperties": false})",
        R"({"allOf": [{"type": "object", "properties": {}}, {"type": "object"}]})"}) {
    EXPECT_TRUE(takes(compile_call(none), "{}"));
    EXPECT_FALSE(takes(compile_call(none), "{x:1}")) << none;
  }
}

/// An object that may be null is written as one that may not: of the names that are listed.
TEST(GemmaValuesTest, ObjectsThatMayBeNullListTheirProperties) {
  const GemmaGrammar grammar = compile_call(
      R"({"type": "object", "properties": {"o": {"type": ["object", "null"], "properties":
          {"y": {"type": "integer"}, "x": {"type": "null"}}, "required": ["y"]}}})");
  for (const char* text : {"{}", "{o:null}", "{o:{y:1}}", "{o:{x:null,y:1}}"}) {
    EXPECT_TRUE(takes(grammar, text)) << text;
  }
  for (const char* text : {"{o:{}}", "{o:{y:1,z:1}}", "{z:1}", "{o:[]}", "{o:{y:1,x:null}}"}) {
    EXPECT_FALSE(takes(grammar, text)) << text;
  }
}

/// Only names that arguments have need be written: those of definitions and patterns, of
/// properties that are never there, and in what is no keyword, are not.
TEST(GemmaValuesTest, NamesThatAreNotWrittenMayBeAnything) {
  const GemmaGrammar grammar = compile_call(
      R"({"properties": {"a": {"$ref": "#/$defs/pair%5Bint%2Cint%5D"}, "c:d": false},
          "patternProperties": {"^[x:]+$": {"type": "string"}, "required": {"type": "integer"}},
          "dependentSchemas": {"e,f": {"required": ["a"]}}, "additionalProperties": {"type": "null"},
          "dependentRequired": {"e,f": ["g:h"]}, "x-ui": {"properties": {"{}": {}}},
          "$defs": {"pair[int,int]": {"type": "array", "prefixItems": [{"type": "integer"}]},
                    "required": {"enum": ["{}"]}, "properties": {"minProperties": 1},
                    "const": {"a:b": {}}}})");
  for (const char* text : {"{}", "{a:[1]}", R"({x:<|"|>y<|"|>})", "{required:1}", "{b:null}"}) {
    EXPECT_TRUE(takes(grammar, text)) << text;
  }
  for (const char* text :
       {R"({x:1})", R"({required:<|"|>y<|"|>})", "{c:d:null}", R"({a:[<|"|>y<|"|>]})"}) {
    EXPECT_FALSE(takes(grammar, text)) << text;
  }
}

/// Values of random schemas of all keywords, and values with one part changed.
TEST(GemmaValuesTest, TakesWhatRandomSchemasAllow) {
  size_t valid = 0, invalid = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    RandomSchema random(seed);
    JsonValue schema = random.schema(2);
    if (!schema.is(JsonValue::Type::kObject)) {
      continue;
    }
    JsonValue both = parse_json(R"({"type": "object", "minProperties": 0, "allOf": []})", "schema");
    std::ranges::find(both.members, "allOf", &JsonMember::name)->value.items.push_back(schema);
    if (const JsonValue* definitions = schema.find("$defs")) {
      both.members.push_back({"$defs", *definitions});
    }
    GemmaGrammar grammar;
    try {
      grammar = compile_call(to_json(both));
    } catch (const GrammarError&) {  // unsatisfiable, or more than the engine tells apart
      continue;
    }
    const NaiveValidator validator(both);
    JsonValue value = random.value(3);
    for (int i = 0; i < 40; ++i) {
      value = i % 4 == 0 ? random.value(3) : random.mutated(value);
      if (!value.is(JsonValue::Type::kObject)) {
        continue;
      }
      const bool allowed = validator.accepts(value);
      ASSERT_EQ(takes(grammar, gemma_text(value)), allowed) << seed << " " << to_json(both) << "\n"
                                                            << to_json(value);
      ++(allowed ? valid : invalid);
    }
  }
  EXPECT_GT(valid, 300);
  EXPECT_GT(invalid, 300);
}

/// Bytes, pieces of the notation, its tokens where `with_tokens`, and numbered words.
std::shared_ptr<GrammarVocabulary> notation_vocabulary(bool with_tokens, int words = 0) {
  std::vector<std::string> pieces = {"", ""};
  if (with_tokens) {
    pieces.insert(pieces.end(), {"<|\"|>", "<|tool_call>", "<tool_call|>"});
  }
  pieces.insert(pieces.end(),
                {"<|",  "\"|", "|>",  "<|\"", "a<|\"|", ":1", "{a", ":[", "],", "x-",
                 "\"a", "a:",  ",x-", "}<",   "]}",     "é",  "ab", "1,", "{}", "null"});
  for (int byte = 0; byte < 256; ++byte) {
    pieces.emplace_back(1, static_cast<char>(byte));
  }
  for (int word = 0; word < words; ++word) {
    pieces.push_back(fmt::format("w{}", word));
  }
  return std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(pieces.begin(), pieces.end()), std::vector{kTinyEnd});
}

/// Every token of the masks, and no other, leads on; and each state has a way to the end.
void expect_steps(const CompiledGrammar& grammar, uint32_t seed, size_t steps) {
  std::mt19937 random(seed);
  StateId state = grammar.next(grammar.start(), Token{3});
  state = state == Automaton::kDead ? grammar.next(grammar.start(), "<|tool_call>") : state;
  state = grammar.next(state, "call:f");
  for (size_t step = 0; step < steps && state != Automaton::kDead; ++step) {
    const TokenMask mask = grammar.mask(state);
    std::vector<StateId> next;
    for (Token token = 2; token < grammar.vocab_size(); ++token) {
      const StateId after = grammar.next(state, token);
      ASSERT_EQ(mask.allows(token), after != Automaton::kDead) << "token " << token;
      if (after != Automaton::kDead) {
        next.push_back(after);
      }
    }
    ASSERT_TRUE(!next.empty() || grammar.is_complete(state)) << grammar.explain(state);
    state = next.empty() ? Automaton::kDead : next[random() % next.size()];
  }
}

TEST(GemmaValuesTest, MasksAreWhatTokensDo) {
  for (const bool with_tokens : {false, true}) {
    const auto vocabulary = notation_vocabulary(with_tokens);
    for (const KeywordCase& test : keyword_cases()) {
      const GemmaGrammar grammar = compile_call(test.schema, vocabulary);
      for (uint32_t seed = 0; seed < 12; ++seed) {
        expect_steps(*grammar, seed, 25);
      }
    }
  }
}

TEST(GemmaValuesTest, MasksOfATokenizer) {
  const auto vocabulary =
      make_grammar_vocabulary(*load_tokenizer(SPECDEC_SOURCE_DIR "/models/target"));
  for (const KeywordCase& test : keyword_cases()) {
    const GemmaGrammar grammar = compile_call(test.schema, vocabulary);
    expect_steps(*grammar, 1, 20);
  }
}

/// Names and items that are told apart are states of their own: no mask makes one for each token.
TEST(GemmaValuesTest, MasksMakeFewStates) {
  constexpr int kWords = 20'000;
  for (const bool with_tokens : {false, true}) {
    const auto vocabulary = notation_vocabulary(with_tokens, kWords);
    const GemmaGrammar grammar = compile_call(
        R"({"properties": {"a": {"type": "array", "items": {"type": "string"},
            "uniqueItems": true}}, "additionalProperties": {"type": "string"}})",
        vocabulary, 2'000);
    const auto quote = [&](StateId state) {
      return with_tokens ? grammar->next(state, Token{2}) : grammar->next(state, kQuoteText);
    };
    StateId state = with_tokens ? grammar->next(grammar->start(), Token{3})
                                : grammar->next(grammar->start(), "<|tool_call>");
    state = grammar->next(state, "call:f{");
    EXPECT_GT(grammar->mask(state).tokens().size(), kWords);
    state = grammar->next(state, "bw1");
    EXPECT_GT(grammar->mask(state).tokens().size(), kWords);
    state = quote(grammar->next(state, ":"));
    EXPECT_GT(grammar->mask(state).tokens().size(), kWords);
    state = quote(grammar->next(quote(state), ",a:["));
    state = grammar->next(quote(grammar->next(quote(grammar->next(state, "w1")), ",")), "w");
    const TokenMask mask = grammar->mask(state);
    EXPECT_GT(mask.tokens().size(), kWords);
    EXPECT_EQ(grammar->limit(state), std::nullopt);
    EXPECT_EQ(quote(grammar->next(state, "1")), Automaton::kDead);  // the item before
    EXPECT_NE(quote(grammar->next(state, "2")), Automaton::kDead);
  }
}

/// An object that needs more properties than a completion lists: no way is claimed, none is wrong,
/// and masks go on as without.
TEST(GemmaValuesTest, NoWayOutOfAnObjectThatNeedsTooMuch) {
  for (const bool with_tokens : {false, true}) {
    const auto within_call = [&](const GemmaGrammar& grammar) {
      const StateId begun = with_tokens ? grammar->next(grammar->start(), Token{3})
                                        : grammar->next(grammar->start(), "<|tool_call>");
      return grammar->next(begun, "call:f{");
    };
    const GemmaGrammar grammar =
        compile_call(R"({"minProperties": 2010, "additionalProperties": {"type": "string"}})",
                     notation_vocabulary(with_tokens));
    const StateId state = within_call(grammar);
    const auto quote = [&](StateId at) {
      return with_tokens ? grammar->next(at, Token{2}) : grammar->next(at, kQuoteText);
    };
    const StateId within = quote(grammar->next(state, "a:"));
    for (const StateId at : {state, grammar->next(state, "a"), grammar->next(state, "a:"), within,
                             quote(within), grammar->next(quote(within), ",")}) {
      ASSERT_NE(at, Automaton::kDead);
      EXPECT_EQ(grammar->completion(at), std::nullopt);
      EXPECT_EQ(grammar->completion_token(at), std::nullopt);
      EXPECT_FALSE(grammar->is_complete(at));
      EXPECT_FALSE(grammar->mask(at).tokens().empty());
    }
    const GemmaGrammar fewer =
        compile_call(R"({"minProperties": 2000, "additionalProperties": {"type": "null"}})",
                     notation_vocabulary(with_tokens));
    const StateId first = within_call(fewer);
    EXPECT_TRUE(fewer->completion(first) || fewer->completion_token(first));
  }
}

/// Of formats that are as near, the one whose grammar knows a way out gives it.
TEST(GemmaValuesTest, AWayOutIsOfTheFormatThatHasOne) {
  const std::string none = R"({"type": "json_schema", "json_schema":
      {"minProperties": 2010, "additionalProperties": {"type": "string"}}})";
  const std::string any = R"({"type": "json_schema", "json_schema": {"type": "object"}})";
  for (const auto& [first, second] : {std::pair(none, any), {any, none}}) {
    GrammarSource source;
    source.kind = GrammarKind::kTags;
    source.text = R"({"type": "or", "elements": [)" + first + ", " + second + "]}";
    const auto grammar = compile_grammar(empty_vocabulary(), source);
    EXPECT_EQ(grammar->completion(grammar->next(grammar->start(), "{")), "}");
  }
}

/// The short ways out of random places end in texts of the grammar.
TEST(GemmaValuesTest, EveryPlaceHasAWayOut) {
  for (const bool with_tokens : {false, true}) {
    const auto vocabulary = notation_vocabulary(with_tokens);
    for (const KeywordCase& test : keyword_cases()) {
      const GemmaGrammar grammar = compile_call(test.schema, vocabulary);
      for (uint32_t seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        StateId state = grammar->start();
        for (uint32_t step = 0; step < seed; ++step) {
          const std::vector<Token> tokens = grammar->mask(state).tokens();
          const Token token = tokens[random() % tokens.size()];
          state = token == kTinyEnd ? state : grammar->next(state, token);
        }
        for (int rest = 0; rest < 200 && !grammar->is_complete(state); ++rest) {
          const std::optional<Token> token = grammar->completion_token(state);
          const std::optional<std::string> bytes = grammar->completion(state);
          ASSERT_TRUE(token || (bytes && !bytes->empty())) << test.name << " " << seed;
          state = token ? grammar->next(state, *token) : grammar->next(state, *bytes);
          ASSERT_NE(state, Automaton::kDead) << test.name << " " << seed << bytes.value_or("");
        }
        EXPECT_TRUE(grammar->is_complete(state)) << test.name << " " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace specdec
