// Completions of JSON texts that are not finished: JsonAutomaton::completion.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

Grammar compile_schema(const std::string& schema, const std::string& whitespace = "compact",
                       bool schema_order = true) {
  return compile_json_schema(empty_vocabulary(), schema, json_options(schema_order, whitespace));
}

/// The text with all of its completion; nothing when the grammar knows none, or it does not end.
std::optional<std::string> finished(const CompiledGrammar& grammar, std::string text) {
  StateId state = grammar.next(grammar.start(), text);
  for (int parts = 0; !grammar.is_complete(state); ++parts) {
    const auto way = grammar.completion(state);
    if (!way || way->empty() || parts == 1000) {
      return std::nullopt;
    }
    state = grammar.next(state, *way);
    text += *way;
  }
  return text;
}

std::string finished(const std::string& schema, const std::string& text,
                     const std::string& whitespace = "compact") {
  return finished(*compile_schema(schema, whitespace), text).value_or("none");
}

TEST(JsonCompletionTest, TakesWhatIsRequired) {
  const std::string schema = R"({"type": "object", "required": ["a", "b"], "properties":
      {"a": {"type": "integer", "minimum": 5}, "b": {"type": "array", "minItems": 2}}})";
  EXPECT_EQ(finished(schema, ""), R"({"a":5,"b":[0,0]})");
  EXPECT_EQ(finished(schema, R"({"a":7)"), R"({"a":7,"b":[0,0]})");
  EXPECT_EQ(finished(schema, R"({"a":7,"b":[0,0)"), R"({"a":7,"b":[0,0]})");
  EXPECT_EQ(finished(schema, R"({"a":7,"b":[0,0]})"), R"({"a":7,"b":[0,0]})");
}

TEST(JsonCompletionTest, NumbersThatAreToldApartEnd) {
  for (const char* begun :
       {"[-", "[1,", "[1,1", "[-1,-", "[1e", "[1,1.", "[0.5,0.5", "[[-", "{\"a\":-"}) {
    for (const char* schema :
         {R"({"uniqueItems": true, "items": {"uniqueItems": true}})",
          R"({"uniqueItems": true, "items": {"type": ["number", "array"]}})"}) {
      EXPECT_NE(finished(schema, begun), "none") << schema << begun;
    }
  }
}

TEST(JsonCompletionTest, OneDeepValueAmongManyNamesInAnyOrder) {
  std::string names = R"("z")";
  for (char name = 'a'; name < 'z'; ++name) {
    names += fmt::format(R"(, "{}")", name);
  }
  const auto grammar = compile_schema(R"({"type": "object", "required": [)" + names +
                                          R"(], "additionalProperties": {"const": 1}, "properties":
             {"z": {"type": "array", "minItems": 1, "items": {"const": [[[[]]]]}}}})",
                                      "compact", false);
  const auto whole = finished(*grammar, "");
  ASSERT_TRUE(whole);
  EXPECT_THAT(*whole, testing::HasSubstr(R"("z":[[[[[]]]]])"));
  EXPECT_TRUE(finished(*grammar, R"({"k":1)"));
}

TEST(JsonCompletionTest, FindsThePropertyThatMustExist) {
  const std::string some = R"({"type": "object", "not": {"patternProperties":
      {"c": {"not": {"type": "string", "pattern": "99"}}}}})";
  EXPECT_EQ(finished(some, ""), R"({"c":"99"})");
  EXPECT_EQ(finished(some, R"({"xcx":"9)"), R"({"xcx":"99"})");
  EXPECT_EQ(finished(some, R"({"x":"9)"), R"({"x":"9","c":"99"})");
}

TEST(JsonCompletionTest, CountsAndTellsItemsApart) {
  const std::string unique =
      R"({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": true, "minItems": 3})";
  for (const char* text : {"", "[", "[2", "[2,", "[2,1"}) {
    const std::string whole = finished(unique, text);
    EXPECT_EQ(whole.size(), 7U) << whole;
    EXPECT_TRUE(whole.starts_with(text)) << whole;
  }
  EXPECT_EQ(finished(R"({"type": "array", "items": {"type": "integer"}, "minContains": 2,
                         "contains": {"minimum": 10}})",
                     "[3,40"),
            "[3,40,10]");
}

TEST(JsonCompletionTest, EndsCharactersStringsAndNumbers) {
  EXPECT_EQ(finished(R"({"type": "string", "minLength": 3})", "\"x"), "\"x00\"");
  EXPECT_EQ(finished(R"({"type": "string", "pattern": "^é+$"})", "\"\xC3"), "\"é\"");
  EXPECT_EQ(finished(R"({"const": "\n"})", "\"\\u0"), "\"\\u000A\"");
  EXPECT_EQ(finished(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5})", "0."), "0.1");
  EXPECT_EQ(finished(R"({"type": "integer", "minimum": 125, "multipleOf": 10})", "1"), "130");
}

TEST(JsonCompletionTest, WritesTheWhiteSpaceOfItsStyle) {
  const std::string schema =
      R"({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "minItems": 2}}})";
  EXPECT_EQ(finished(schema, "", "spaced"), R"({"a": [0, 0]})");
  EXPECT_EQ(finished(schema, "", "indent:1"), "{\n \"a\": [\n  0,\n  0\n ]\n}");
}

/// Every text, cut anywhere, is finished, and satisfies the schema.
TEST(JsonCompletionTest, EveryTextThatHasBegunIsFinished) {
  int told = 0;
  for (const std::string& line : grammar_data("samples.jsonl")) {
    const JsonValue sample = parse_json(line, "samples.jsonl");
    const JsonValue& schema = *sample.find("schema");
    const bool order = told % 2 == 0;
    const Grammar grammar =
        compile_schema(to_json(schema), told % 3 == 0 ? "indent:2" : "compact", order);
    GrammarWalk walk(*grammar, to_json(schema), 7);
    for (size_t wild = 0; wild < 24; wild += 8) {
      const std::string text = walk.text(wild).value_or("");
      for (size_t size = 0; size <= text.size(); size += 1 + text.size() / 8) {
        const auto whole = finished(*grammar, text.substr(0, size));
        ASSERT_TRUE(whole) << to_json(schema) << " after " << text.substr(0, size);
        const JsonValue value = parse_json(*whole, "text");
        try {
          EXPECT_TRUE(NaiveValidator(schema).accepts(value)) << to_json(schema) << ": " << *whole;
          ++told;
        } catch (const std::invalid_argument&) {
          continue;  // a keyword that the validator does not know
        }
      }
    }
  }
  EXPECT_GT(told, 1000);
}

}  // namespace
}  // namespace specdec
