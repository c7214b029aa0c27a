#include "grammar/json/json_automaton.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"
#include "tests/support/random_schema.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using Type = JsonValue::Type;
using Grammar = std::shared_ptr<const CompiledGrammar>;

struct Sample {
  std::string name;
  JsonValue schema;
};

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const std::string& line : grammar_data("samples.jsonl")) {
    const JsonValue value = parse_json(line, "samples.jsonl");
    result.push_back({value.find("name")->text, *value.find("schema")});
  }
  return result;
}

Grammar compile(const JsonValue& schema, const JsonSchemaOptions& options,
                bool allow_empty = false) {
  return compile_json_schema(empty_vocabulary(), to_json(schema), options, {}, allow_empty);
}

/// What the validator says; nothing when it knows a keyword or a number not.
std::optional<bool> checked(const JsonValue& schema, const JsonValue& value) {
  try {
    return NaiveValidator(schema).accepts(value);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

const std::vector<JsonSchemaOptions> kWalkOptions = {
    json_options(false, "compact"), json_options(true, "compact", EscapeStyle::kMinimal),
    json_options(true, "spaced"),   json_options(false, "any"),
    json_options(true, "indent:2"), json_options(false, "indent:0", EscapeStyle::kMinimal)};

/// Every text that a random walk completes parses and satisfies the schema; none gets stuck.
void expect_sound_texts(const Sample& sample, const JsonSchemaOptions& options, int texts,
                        uint32_t seed) {
  const Grammar grammar = compile(sample.schema, options);
  GrammarWalk walk(*grammar, to_json(sample.schema), seed);
  for (int i = 0; i < texts; ++i) {
    const auto text = walk.text(static_cast<size_t>(i) * 3);
    ASSERT_TRUE(text) << sample.name << ", " << options.whitespace << ", order "
                      << options.schema_order << ": dead end after " << walk.begun();
    const JsonValue value = parse_json(*text, sample.name);
    EXPECT_TRUE(accepts(*grammar, *text)) << sample.name << ": " << *text;
    EXPECT_NE(checked(sample.schema, value), false) << sample.name << ": " << *text;
  }
}

TEST(JsonAutomatonTest, NoDeadEndsAndOnlyValidTexts) {
  for (const Sample& sample : samples()) {
    for (size_t i = 0; i < kWalkOptions.size(); ++i) {
      expect_sound_texts(sample, kWalkOptions[i], 12, static_cast<uint32_t>(i));
    }
  }
}

TEST(JsonAutomatonTest, SchemaOrderAcceptsLess) {
  for (const Sample& sample : samples()) {
    const Grammar ordered = compile(sample.schema, json_options(true, "compact"));
    const Grammar any = compile(sample.schema, json_options(false, "compact"));
    GrammarWalk walk(*ordered, to_json(sample.schema), 7);
    for (size_t i = 0; i < 12; ++i) {
      const auto text = walk.text(3 * i);
      ASSERT_TRUE(text) << sample.name;
      EXPECT_TRUE(accepts(*any, *text)) << sample.name << ": " << *text;
    }
  }
}

// ---- White space -------------------------------------------------------------------------------

struct Separators {
  std::string comma, colon;
  int indent = -1;  ///< -1: everything on one line
};

void write_separated(const JsonValue& value, const Separators& style, int depth, std::string& out) {
  const auto line = [&](int level) {
    if (style.indent >= 0) {
      out += '\n' + std::string(static_cast<size_t>(level * style.indent), ' ');
    }
  };
  if (!value.is(Type::kArray) && !value.is(Type::kObject)) {
    out += to_json(value);
    return;
  }
  out += value.is(Type::kArray) ? '[' : '{';
  const size_t size = value.items.size() + value.members.size();
  for (size_t i = 0; i < size; ++i) {
    out += i == 0 ? "" : style.comma;
    line(depth + 1);
    if (value.is(Type::kObject)) {
      out += to_json_string(value.members[i].name) + style.colon;
    }
    write_separated(value.is(Type::kArray) ? value.items[i] : value.members[i].value, style,
                    depth + 1, out);
  }
  if (size > 0) {
    line(depth);
  }
  out += value.is(Type::kArray) ? ']' : '}';
}

std::map<std::string, std::string> in_all_styles(const JsonValue& value) {
  const std::map<std::string, Separators> styles = {{"compact", {",", ":", -1}},
                                                    {"spaced", {", ", ": ", -1}},
                                                    {"indent:0", {",", ": ", 0}},
                                                    {"indent:2", {",", ": ", 2}},
                                                    {"indent:3", {",", ": ", 3}}};
  std::map<std::string, std::string> texts;
  for (const auto& [name, style] : styles) {
    write_separated(value, style, 0, texts[name]);
  }
  return texts;
}

/// A document in the style of each grammar is accepted by that one, and by others only where the
/// texts are equal; "any" takes all.
TEST(JsonAutomatonTest, WhitespaceStyles) {
  for (const Sample& sample : samples()) {
    std::map<std::string, Grammar> grammars;
    for (const char* style : {"compact", "spaced", "indent:0", "indent:2", "indent:3", "any"}) {
      JsonSchemaOptions options = json_options(false, style);
      options.max_whitespace = kRecordedWhitespace;  // deep ones are indented far
      grammars[style] = compile(sample.schema, options);
    }
    GrammarWalk walk(*grammars["compact"], to_json(sample.schema), 11);
    for (size_t i = 0; i < 6; ++i) {
      const auto text = walk.text(6 * i);
      ASSERT_TRUE(text) << sample.name;
      const auto texts = in_all_styles(parse_json(*text, sample.name));
      for (const auto& [style, styled] : texts) {
        EXPECT_TRUE(accepts(*grammars["any"], styled)) << sample.name << ": " << styled;
        for (const auto& [other, same] : texts) {
          EXPECT_EQ(accepts(*grammars[other], styled), same == styled)
              << sample.name << ", " << other << ": " << styled;
        }
      }
    }
  }
}

TEST(JsonAutomatonTest, AnyWhitespaceHasItsPlaces) {
  const Grammar grammar =
      compile(parse_json(R"({"type": "object", "additionalProperties": {"type": "array"}})", "s"),
              json_options(false, "any"));
  for (const char* text : {"{ }", "{\n}", "{ \t\"a\"\r\n: [ 1 , 2 ] }", "{\"a\":[]\n,\"b\":[ ]}"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text :
       {"{\"a\":[1 2]}", "{\"a\" \"b\":[]}", "{\"a\":[- 1]}", "{\"a\":[tr ue]}"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(JsonAutomatonTest, AnyWhitespaceIsBounded) {
  const JsonValue schema = parse_json(R"({"type": "array", "items": {"const": 1}})", "s");
  const auto is_prefix = [](const Grammar& grammar, const std::string& text) {
    return grammar->next(grammar->start(), text) != Automaton::kDead;
  };
  const std::string blanks(16, ' ');
  const Grammar usual = compile(schema, json_options(false, "any"));
  EXPECT_TRUE(accepts(*usual, "[" + blanks + "\n1\n" + blanks + ",\r\n\t1]"));
  EXPECT_TRUE(accepts(*usual, "[        \n        1" + blanks + "]"));
  EXPECT_FALSE(is_prefix(usual, "[" + blanks + " "));
  EXPECT_FALSE(is_prefix(usual, "[" + blanks + "\n "));
  EXPECT_FALSE(is_prefix(usual, "[\n\n"));
  EXPECT_FALSE(is_prefix(usual, "[\n \n"));
  JsonSchemaOptions options = json_options(false, "any");
  options.max_whitespace = kRecordedWhitespace;
  const Grammar more = compile(schema, options);
  EXPECT_TRUE(accepts(*more, "[" + std::string(64, '\n') + "1" + std::string(64, ' ') + "]"));
  EXPECT_FALSE(is_prefix(more, "[" + std::string(63, '\n') + "  "));
}

// ---- Escapes and names -------------------------------------------------------------------------

TEST(JsonAutomatonTest, EscapedNamesAreTheNames) {
  const JsonValue schema = parse_json(
      R"({"properties": {"ab": {"const": 1}, "é\"": {"const": 2}}, "additionalProperties": false})",
      "schema");
  const Grammar any = compile(schema, json_options(false, "compact"));
  EXPECT_TRUE(accepts(*any, R"({"a\u0062":1,"\u00e9\"":2})"));
  EXPECT_TRUE(accepts(*any, R"({"\u00E9\u0022":2})"));
  EXPECT_FALSE(accepts(*any, R"({"\u0061b":2})"));
  EXPECT_FALSE(accepts(*any, R"({"ab":1,"\u0061b":1})")) << "one name twice";
  const Grammar minimal = compile(schema, json_options(false, "compact", EscapeStyle::kMinimal));
  EXPECT_TRUE(accepts(*minimal, R"({"ab":1,"é\"":2})"));
  EXPECT_FALSE(accepts(*minimal, R"({"a\u0062":1})"));
  EXPECT_FALSE(accepts(*minimal, R"({"é\u0022":2})"));
}

TEST(JsonAutomatonTest, NoNameComesTwice) {
  const Grammar grammar = compile(parse_json("true", "schema"), json_options(false, "compact"));
  EXPECT_FALSE(accepts(*grammar, R"({"a":1,"a":2})"));
  EXPECT_FALSE(accepts(*grammar, R"({"a":1,"b":{"a":1},"\u0061":2})"));
  EXPECT_TRUE(accepts(*grammar, R"({"a":1,"b":{"a":1},"\u0062b":2})"));
}

TEST(JsonAutomatonTest, OrderOfNames) {
  const JsonValue schema = parse_json(
      R"({"properties": {"z": true, "a": true, "m": true}, "required": ["m"]})", "schema");
  const Grammar ordered = compile(schema, json_options(true, "compact"));
  EXPECT_TRUE(accepts(*ordered, R"({"z":1,"a":2,"m":3})"));
  EXPECT_TRUE(accepts(*ordered, R"({"z":1,"m":3})"));
  EXPECT_FALSE(accepts(*ordered, R"({"a":1,"z":2,"m":3})"));
  EXPECT_EQ(ordered->next(ordered->start(), R"({"a":1,"z)"), Automaton::kDead);
  EXPECT_TRUE(accepts(*compile(schema, json_options(false, "compact")), R"({"m":1,"a":2,"z":3})"));
}

// ---- Against a validator that reads the keywords word for word ---------------------------------

struct Tally {
  int schemas = 0, unsupported = 0, empty = 0, valid = 0, invalid = 0, lost = 0;
};

void expect_agreement(const CompiledGrammar& grammar, const JsonValue& schema,
                      const JsonValue& value, Tally& tally) {
  const std::optional<bool> valid = checked(schema, value);
  if (valid) {
    (*valid ? tally.valid : tally.invalid) += 1;
    EXPECT_EQ(accepts(grammar, to_json(value)), *valid) << to_json(schema) << "\n"
                                                        << to_json(value);
  }
}

void check_walks(const CompiledGrammar& grammar, const JsonValue& schema, uint32_t seed,
                 Tally& tally) {
  RandomSchema random(seed + 1);
  GrammarWalk walk(grammar, to_json(schema), seed);
  for (size_t i = 0; i < 6; ++i) {
    const auto text = walk.text(3 * i);
    if (walk.lost()) {
      ++tally.lost;
      continue;
    }
    ASSERT_TRUE(text) << to_json(schema) << "\ndead end after " << walk.begun();
    JsonValue value = parse_json(*text, "text");
    EXPECT_NE(checked(schema, value), false) << to_json(schema) << "\n" << *text;
    for (int changes = 0; changes < 3; ++changes) {
      value = random.mutated(std::move(value));
      expect_agreement(grammar, schema, value, tally);
    }
  }
}

void check_random_schema(uint32_t seed, Tally& tally) {
  RandomSchema random(seed);
  const JsonValue schema = random.schema(3);
  try {
    const Grammar grammar = compile(schema, json_options(false, "compact"), true);
    ++tally.schemas;
    for (int i = 0; i < 12; ++i) {
      expect_agreement(*grammar, schema, random.value(2), tally);
    }
    if (grammar->start() == Automaton::kDead) {
      ++tally.empty;
    } else {
      check_walks(*grammar, schema, seed, tally);
    }
  } catch (const GrammarError& error) {
    EXPECT_THAT(error.what(),
                ::testing::AnyOf(::testing::HasSubstr("`uniqueItems` together with a `not`"),
                                 ::testing::HasSubstr("10^500 ")))
        << to_json(schema);
    ++tally.unsupported;
  }
}

TEST(JsonAutomatonTest, ListsOfDifferentListsOfTheirKind) {
  const auto compiled = [](const char* type, int least) {
    return compile(parse_json(fmt::format(R"({{"type": [{}], "items": {{"$ref": "#"}},)"
                                          R"( "uniqueItems": true, "minItems": {}}})",
                                          type, least),
                              "schema"),
                   json_options(false, "compact"), true);
  };
  EXPECT_FALSE(accepts(*compiled(R"("array")", 1), "[]"));
  const Grammar one = compiled(R"("array", "null")", 1);
  for (const char* text : {"null", "[null]", "[[null],null]", "[[[null]],[null],null]"}) {
    EXPECT_TRUE(accepts(*one, text)) << text;
  }
  for (const char* text : {"[]", "[null,null]", "[[null],[null]]", "[[]]"}) {
    EXPECT_FALSE(accepts(*one, text)) << text;
  }
  const Grammar two = compiled(R"("array", "null")", 2);  // null is the only value
  EXPECT_TRUE(accepts(*two, "null"));
  EXPECT_EQ(two->next(two->start(), "["), Automaton::kDead);
  const Grammar booleans = compiled(R"("array", "boolean")", 2);
  EXPECT_TRUE(accepts(*booleans, "[[true,false],[false,true],true]"));
  EXPECT_FALSE(accepts(*booleans, "[[true,false],[true]]"));
}

TEST(JsonAutomatonTest, NamesOfItsOwnKind) {
  const Grammar grammar = compile(parse_json(R"({"anyOf": [{"type": "string", "pattern": "^a"},
                                       {"type": "object", "propertyNames": {"$ref": "#"}}]})",
                                             "schema"),
                                  json_options(false, "compact"));
  for (const char* text : {R"("a")", R"({"a":1,"ab":"b"})", "{}"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text : {R"("b")", R"({"b":1})", "1"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(JsonAutomatonTest, KeywordsOfWrongKindsAreRefused) {
  const auto error = [](const char* schema) {
    return error_message<GrammarError>(
        [&] { (void)compile(parse_json(schema, "schema"), json_options(false, "compact")); });
  };
  EXPECT_THAT(error(R"({"dependentRequired": {"a": [1]}})"), HasSubstr("must list names"));
  EXPECT_THAT(error(R"({"dependentRequired": {"a": {}}})"),
              HasSubstr("must be an object of lists"));
  EXPECT_THAT(error(R"({"dependentSchemas": {"a": ["b"]}})"),
              HasSubstr("must be an object of schemas"));
  EXPECT_THAT(error(R"({"format": 5})"), HasSubstr("#/format: must be a string"));
}

TEST(JsonAutomatonTest, TooManyWaysBelowUnevaluatedNameNoOption) {
  std::string parts;
  for (int i = 0; i < 14; ++i) {
    parts += fmt::format(
        R"({}{{"anyOf":[{{"required":["a{}"],"properties":{{"a{}":true}}}},{{"patternProperties":{{"b{}":true}}}}]}})",
        i == 0 ? "" : ",", i, i, i);
  }
  const std::string schema = R"({"unevaluatedProperties":false,"allOf":[)" + parts + "]}";
  const std::string error = error_message<GrammarError>(
      [&] { (void)compile(parse_json(schema, "schema"), json_options(false, "compact")); });
  EXPECT_THAT(error, HasSubstr("more than 4096 ways through anyOf"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("raise")));
}

TEST(JsonAutomatonTest, ContainsOfItsOwnKind) {
  // Whether a value exists hangs on itself in many ways at once.
  const Grammar grammar =
      compile(parse_json(R"({"prefixItems": [{}], "contains": {"$ref": "#"}, "maxContains": 1,
                     "unevaluatedItems": {"type": "object"}})",
                         "s"),
              json_options(false, "compact"));
  for (const char* text : {"1", "[1]", "[[],{}]", "[[1,2],[[],{}]]"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text : {"[]", "[[]]", "[1,{}]", "[1,[]]", "[[],1,2]"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(JsonAutomatonTest, ObjectsOfManyRequiredNames) {
  const auto object = [](int names, int last) {
    std::string text;
    for (int i = 0; i < names; ++i) {
      text += fmt::format("{}\"k{}\":{}", i == 0 ? "{" : ",", i, i + 1 < names ? i : last);
    }
    return text + "}";
  };
  const Grammar grammar = compile(parse_json(R"({"const": )" + object(300, 0) + "}", "s"),
                                  json_options(false, "compact"));
  EXPECT_TRUE(accepts(*grammar, object(300, 0)));
  EXPECT_FALSE(accepts(*grammar, object(300, 1)));
  EXPECT_FALSE(accepts(*grammar, object(299, 298)));
  EXPECT_FALSE(accepts(*grammar, object(301, 0)));
}

/// Whether a list can be finished is asked item by item: its length is no nesting.
TEST(JsonAutomatonTest, ListsOfManyGivenItems) {
  constexpr int kItems = 2'500;
  const auto list = [](int items, int last) {
    std::string text = "[";
    for (int i = 0; i < items; ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ",", i + 1 < items ? i : last);
    }
    return text + "]";
  };
  const Grammar grammar = compile(parse_json(R"({"const": )" + list(kItems, 0) + "}", "s"),
                                  json_options(false, "compact"));
  EXPECT_TRUE(accepts(*grammar, list(kItems, 0)));
  EXPECT_FALSE(accepts(*grammar, list(kItems, 1)));
  EXPECT_FALSE(accepts(*grammar, list(kItems - 1, kItems - 2)));
  EXPECT_FALSE(accepts(*grammar, list(kItems + 1, 0)));
  std::string schemas;
  for (int i = 0; i < kItems; ++i) {
    schemas += i == 0 ? "true" : i == 2'161 ? ", false" : ", true";
  }
  const JsonValue open = parse_json(
      R"({"type": "array", "prefixItems": [)" + schemas + R"(], "minItems": 2000})", "s");
  EXPECT_TRUE(accepts(*compile(open, json_options(false, "compact")), list(2'161, 0)));
  EXPECT_FALSE(accepts(*compile(open, json_options(false, "compact")), list(2'162, 0)));
  const JsonValue closed = parse_json(
      R"({"type": "array", "prefixItems": [)" + schemas + R"(], "minItems": 2250})", "s");
  EXPECT_THAT(error_message<GrammarError>([&] { compile(closed, json_options(false, "compact")); }),
              HasSubstr("no JSON value"));
}

/// Each of the others may be absent or of another type: told as one, or there were 2^59 ways.
TEST(JsonAutomatonTest, OneOfManyObjectsThatRequireAProperty) {
  std::string parts;
  for (int i = 0; i < 60; ++i) {
    parts += fmt::format(
        R"({}{{"type": "object", "properties": {{"p{}": {{"type": "integer"}}}}, "required": ["p{}"]}})",
        i == 0 ? "" : ", ", i, i);
  }
  const Grammar grammar =
      compile(parse_json(R"({"oneOf": [)" + parts + "]}", "s"), json_options(false, "compact"));
  for (const char* text :
       {R"({"p0":1})", R"({"a":1,"p59":2,"p58":"x"})", R"({"p1":null,"p2":3})"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text : {"{}", "1", R"({"p0":"x"})", R"({"p0":1,"p1":2})", R"({"p1":1.5})"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

/// Until 2019-09 a list of items is `items`, and `prefixItems` is no keyword.
TEST(JsonAutomatonTest, PrefixItemsIsAKeywordSince2020) {
  const auto accepts_list = [](const std::string& draft, const std::string& keywords,
                               std::string_view text) {
    const std::string schema =
        R"({"$schema": "https://json-schema.org/)" + draft + R"(/schema", "type": "array", )";
    return accepts(
        *compile(parse_json(schema + keywords + "}", "s"), json_options(false, "compact")), text);
  };
  const std::string prefix = R"("prefixItems": [{"const": 1}], "unevaluatedItems": {"const": 2})";
  const std::string list = R"("items": [{"const": 1}], "unevaluatedItems": {"const": 2})";
  EXPECT_TRUE(accepts_list("draft/2020-12", prefix, "[1,2]"));
  EXPECT_TRUE(accepts_list("draft/2019-09", prefix, "[2,2]"));
  EXPECT_FALSE(accepts_list("draft/2019-09", prefix, "[1,2]"));
  EXPECT_TRUE(accepts_list("draft/2019-09", list, "[1,2]"));
  EXPECT_FALSE(accepts_list("draft/2019-09", list, "[2,2]"));
}

/// Draft 4, section 3.5: "A JSON number without a fraction or exponent part".
TEST(JsonAutomatonTest, IntegersOfDraft4AreWrittenWithoutAPoint) {
  const auto grammar = [](const std::string& keywords, bool old = true) {
    const std::string draft = old ? "draft-04" : "draft-06";
    return compile(parse_json(R"({"$schema": "http://json-schema.org/)" + draft + R"(/schema#", )" +
                                  keywords + "}",
                              "s"),
                   json_options(false, "compact"));
  };
  const std::string integer = R"("type": "integer", "minimum": -5)";
  const std::string no_integer = R"("type": "number", "not": {"type": "integer"})";
  const std::string either = R"("oneOf": [{"type": "integer"}, {"type": "number", "maximum": 9}])";
  const std::string positive = R"("not": {"not": {"type": "integer"}}, "minimum": 1)";
  for (const auto& [keywords, yes, no] : {std::tuple(integer, "1", "1.0"),
                                          {integer, "100", "1e2"},
                                          {integer, "-0", "-0.0"},
                                          {no_integer, "1.0", "1"},
                                          {no_integer, "1e2", "100"},
                                          {no_integer, "1.5", "0"},
                                          {either, "5.0", "5"},
                                          {either, "10", "10.0"},
                                          {either, "5.5", "10.5"},
                                          {positive, "1", "1.0"},
                                          {positive, "20", "2e1"}}) {
    EXPECT_TRUE(accepts(*grammar(keywords), yes)) << keywords << yes;
    EXPECT_FALSE(accepts(*grammar(keywords), no)) << keywords << no;
  }
  EXPECT_TRUE(accepts(*grammar(integer, false), "1.0"));
  EXPECT_FALSE(accepts(*grammar(no_integer, false), "1.0"));
}

TEST(JsonAutomatonTest, AgreesWithAValidatorOnRandomSchemas) {
  Tally tally;
  for (uint32_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    check_random_schema(seed, tally);
  }
  EXPECT_GT(tally.valid, 1'500);
  EXPECT_GT(tally.invalid, 1'500);
  EXPECT_LT(tally.unsupported, 12);
  EXPECT_LT(tally.empty, 100);
  EXPECT_LT(tally.lost, 40);
}

TEST(JsonAutomatonTest, AgreesWithAValidatorOnTheSamples) {
  Tally tally;
  for (const Sample& sample : samples()) {
    const Grammar grammar = compile(sample.schema, json_options(false, "compact"));
    GrammarWalk walk(*grammar, to_json(sample.schema), 5);
    RandomSchema random(17);
    for (size_t i = 0; i < 10; ++i) {
      const auto text = walk.text(3 * i);
      ASSERT_TRUE(text) << sample.name;
      JsonValue value = parse_json(*text, sample.name);
      for (int changes = 0; changes < 3; ++changes) {
        expect_agreement(*grammar, sample.schema, value, tally);
        value = random.mutated(std::move(value));
      }
    }
  }
  EXPECT_GT(tally.valid, 800);
  EXPECT_GT(tally.invalid, 400);
}

}  // namespace
}  // namespace specdec
