#include "grammar/compiled_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "grammar/schema/json_value.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using Grammar = std::shared_ptr<const CompiledGrammar>;

std::string schema_error(const std::string& schema, const JsonSchemaOptions& options = {}) {
  return error_message<GrammarError>(
      [&] { compile_json_schema(empty_vocabulary(), schema, options); });
}

TEST(CompiledGrammarTest, ErrorsNameKeywordAndPlace) {
  EXPECT_THAT(schema_error("{"), HasSubstr("schema:1:2"));
  EXPECT_THAT(schema_error("3"), HasSubstr("a schema must be an object or a boolean"));
  EXPECT_THAT(schema_error(R"({"properties": {"a": {"type": "text"}}})"),
              HasSubstr("#/properties/a/type: \"text\" is no type; known: null"));
  EXPECT_THAT(schema_error(R"({"items": {"multipleOf": 0}})"), HasSubstr("#/items/multipleOf"));
  EXPECT_THAT(schema_error(R"({"pattern": "("})"), HasSubstr("#/pattern"));
  EXPECT_THAT(schema_error(R"({"enum": 1})"), HasSubstr("#/enum: must be a list"));
  EXPECT_THAT(schema_error(R"({"required": "a"})"), HasSubstr("#/required"));
  EXPECT_THAT(schema_error(R"({"minimum": "1"})"), HasSubstr("#/minimum: must be a number"));
  EXPECT_THAT(schema_error(R"({"minimum": 1e501})"), HasSubstr("#/minimum: numbers beyond 10^500"));
  EXPECT_THAT(schema_error(R"({"not": {"enum": [1, [{"a": 1e-501}]]}})"),
              HasSubstr("#/not/enum: numbers beyond 10^500"));
  EXPECT_THAT(schema_error(R"({"uniqueItems": 1})"), HasSubstr("#/uniqueItems"));
  EXPECT_THAT(schema_error(R"({"minLength": -1})"), HasSubstr("#/minLength"));
  EXPECT_THAT(schema_error(R"({"properties": []})"), HasSubstr("#/properties: must be an object"));
  EXPECT_THAT(schema_error(R"({"allOf": {}})"), HasSubstr("#/allOf: must be a list"));
  EXPECT_THAT(schema_error(R"({"$ref": "#/$defs/x"})"), HasSubstr("names nothing"));
  EXPECT_THAT(schema_error(R"({"items": {"const": [")" + std::string(4'000'001, 'a') + R"("]}})"),
              HasSubstr("#/items/const: its strings have 4000001 bytes; at most 4000000"));
}

/// Names that come last in their object need not be told apart.
TEST(CompiledGrammarTest, LastNamesAreForgotten) {
  for (const char* schema :
       {R"({"type": "object", "maxProperties": 1})",
        R"({"type": "object", "maxProperties": 2, "properties": {"b": true}, "required": ["b"],
            "additionalProperties": {"type": "array"}})"}) {
    JsonSchemaOptions options;
    options.schema_order = false;
    const Grammar grammar = compile_json_schema(empty_vocabulary(), schema, options);
    const std::string before =
        std::string(schema).find("required") == std::string::npos ? "{" : "{\"b\":1,";
    const auto after = [&](const std::string& text) {
      return grammar->next(grammar->start(), before + text);
    };
    EXPECT_NE(after("\"xy"), Automaton::kDead);
    EXPECT_EQ(after("\"xy"), after("\"zyx"));
    EXPECT_EQ(after("\"xy\":["), after("\"zyx\":["));
  }
}

TEST(CompiledGrammarTest, StatesAreLimited) {
  const Grammar grammar =
      compile_json_schema(empty_vocabulary(), R"({"type": "object"})", {}, {.max_states = 1'000});
  StateId state = grammar->next(grammar->start(), "{\"");
  for (int i = 0; i < 1'000; ++i) {
    const StateId next = grammar->next(state, "a");
    ASSERT_EQ(next == Automaton::kDead, grammar->limit(state).has_value()) << i;
    if (next == Automaton::kDead) {
      break;
    }
    state = next;
  }
  EXPECT_THAT(grammar->limit(state).value_or(""),
              HasSubstr("more than 1000 states; raise max_states"));
  EXPECT_EQ(grammar->mask(state).count(), 0);
  EXPECT_THAT(grammar->explain(state), HasSubstr("raise max_states"));
  EXPECT_FALSE(grammar->limit(grammar->start()));
  EXPECT_NE(grammar->next(grammar->start(), "{\"aaa"), Automaton::kDead);
  EXPECT_TRUE(grammar->is_used_up());
}

TEST(CompiledGrammarTest, HalfOfTheStatesAreLeftForATextThatBegins) {
  const Grammar grammar =
      compile_json_schema(empty_vocabulary(), R"({"type": "object"})", {}, {.max_states = 1'000});
  (void)grammar->next(grammar->start(), "{\"" + std::string(450, 'a'));
  EXPECT_FALSE(grammar->is_used_up());
  (void)grammar->next(grammar->start(), "{\"" + std::string(550, 'a'));
  EXPECT_TRUE(grammar->is_used_up());
}

TEST(CompiledGrammarTest, WhatNothingSatisfies) {
  for (const char* schema :
       {"false", R"({"type": "integer", "minimum": 2, "maximum": 1})", R"({"enum": []})",
        R"({"type": "object", "required": ["a"], "properties": {"a": false}})",
        R"({"type": "array", "items": false, "minItems": 1})",
        R"({"type": "string", "minLength": 3, "maxLength": 2})",
        R"({"type": "string", "pattern": "^a$", "minLength": 2})",
        R"({"const": 1, "not": {"const": 1.0}})",
        R"({"type": "array", "uniqueItems": true, "items": {"enum": [1, 1.0]}, "minItems": 2})",
        R"({"type": "integer", "multipleOf": 10, "minimum": 1, "maximum": 9})",
        R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["n"],
            "properties": {"n": {"$ref": "#/$defs/n"}}}}})"}) {
    EXPECT_THAT(schema_error(schema), HasSubstr("no JSON value satisfies this schema")) << schema;
    const Grammar grammar = compile_json_schema(empty_vocabulary(), schema, {}, {}, true);
    EXPECT_EQ(grammar->start(), Automaton::kDead);
    EXPECT_EQ(grammar->mask(grammar->start()).count(), 0);
    EXPECT_FALSE(grammar->is_complete(grammar->start()));
    EXPECT_EQ(grammar->forced_bytes(grammar->start()), "");
  }
}

TEST(CompiledGrammarTest, UnknownWhitespace) {
  for (const char* style : {"tabs", "indent:", "indent:-1", "indent:17", "indent:2x", ""}) {
    JsonSchemaOptions options;
    options.whitespace = style;
    EXPECT_THAT(schema_error("true", options), HasSubstr("compact, spaced, any, indent:N"))
        << style;
  }
}

TEST(CompiledGrammarTest, RegistryAndFormats) {
  JsonSchemaOptions options;
  options.registry = {{"http://x/date", R"({"type": "string", "format": "date"})"}};
  const auto accepts = [&](std::string_view text) {
    const Grammar grammar =
        compile_json_schema(empty_vocabulary(), R"({"$ref": "http://x/date"})", options);
    return grammar->is_complete(grammar->next(grammar->start(), text));
  };
  EXPECT_TRUE(accepts("\"2024-02-29\""));
  EXPECT_FALSE(accepts("\"2023-02-29\""));
  options.assert_formats = false;
  EXPECT_TRUE(accepts("\"2023-02-29\""));
}

TEST(CompiledGrammarTest, ForcedBytes) {
  const Grammar grammar = compile_json_schema(
      empty_vocabulary(), R"({"type": "object", "properties": {"name": {"enum": ["foobar", "foo"]},
      "n": {"const": null}}, "required": ["name", "n"], "additionalProperties": false})",
      {.escapes = EscapeStyle::kMinimal, .registry = {}});
  EXPECT_EQ(grammar->forced_bytes(grammar->start()), "{\"name\":\"foo");
  const StateId foo = grammar->next(grammar->start(), "{\"name\":\"foo\"");
  EXPECT_EQ(grammar->forced_bytes(foo), ",\"n\":null}");
  EXPECT_EQ(grammar->forced_bytes(grammar->next(foo, ",\"n\":null}")), "");
}

/// Whatever the text, what is forced comes next; and no less is forced than has one way on.
TEST(CompiledGrammarTest, ForcedBytesBeginEveryCompletion) {
  for (const std::string& line : grammar_data("samples.jsonl")) {
    const JsonValue sample = parse_json(line, "samples.jsonl");
    const std::string schema = to_json(*sample.find("schema"));
    const Grammar grammar = compile_json_schema(empty_vocabulary(), schema,
                                                {.escapes = EscapeStyle::kMinimal, .registry = {}});
    GrammarWalk walk(*grammar, schema, 1);
    for (size_t texts = 0; texts < 3; ++texts) {
      const auto text = walk.text(6 * texts);
      ASSERT_TRUE(text) << sample.find("name")->text;
      StateId state = grammar->start();
      for (size_t i = 0; i <= text->size(); ++i) {
        const std::string forced = grammar->forced_bytes(state);
        EXPECT_EQ(text->substr(i, forced.size()), forced) << sample.find("name")->text;
        EXPECT_TRUE(forced.empty() || !grammar->is_complete(state));
        state = grammar->next(state, std::string_view(*text).substr(i, 1));
      }
    }
  }
}

TEST(CompiledGrammarTest, TokensAndBytesLeadToTheSameState) {
  const auto vocabulary = tiny_vocabulary(1, 300);
  const Grammar grammar = compile_json_schema(vocabulary, "true");
  EXPECT_EQ(grammar->vocab_size(), vocabulary->vocab_size());
  EXPECT_TRUE(grammar->is_end(kTinyEnd));
  EXPECT_EQ(grammar->next(grammar->start(), kTinyEnd), Automaton::kDead);
  EXPECT_EQ(grammar->next(grammar->start(), Token{0}), Automaton::kDead);
  EXPECT_EQ(grammar->next(grammar->start(), Token{-1}), Automaton::kDead);
  for (Token token = 2; token < grammar->vocab_size(); ++token) {
    EXPECT_EQ(grammar->next(grammar->start(), token),
              grammar->next(grammar->start(), vocabulary->bytes(token)));
  }
}

/// Grammars of one vocabulary may be asked from several threads at once.
TEST(CompiledGrammarTest, Threads) {
  const auto vocabulary = tiny_vocabulary(1, 300);
  const std::vector<std::string> schemas = {
      R"({"type": "string", "pattern": "^a+b*$"})", R"({"type": "string", "maxLength": 9})",
      R"({"type": "object", "additionalProperties": {"type": "string", "format": "date"}})",
      "true"};
  std::vector<Grammar> grammars;
  for (const std::string& schema : schemas) {
    grammars.push_back(compile_json_schema(vocabulary, schema));
  }
  const auto walk = [&](uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<Token>> masks;
    for (const Grammar& grammar : grammars) {
      StateId state = grammar->start();
      for (int steps = 0; steps < 6 && state != CompiledGrammar::kEnded; ++steps) {
        masks.push_back(grammar->mask(state).tokens());
        state = grammar->next(state, masks.back()[random() % masks.back().size()]);
      }
    }
    return masks;
  };
  std::vector<std::vector<std::vector<Token>>> found(4);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { found[i] = walk(i); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i], walk(i));
  }
}

}  // namespace
}  // namespace specdec
