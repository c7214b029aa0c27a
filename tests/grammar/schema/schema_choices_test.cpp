#include "grammar/schema/schema_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/interruption.h"
#include "grammar/regex/regex.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_formulas.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using ChoiceGrammar = std::shared_ptr<const CompiledGrammar>;

constexpr size_t kManyConstants = 12'000;

std::string constant_text(size_t i) { return fmt::format("\"w{}\"", i * 7919 % 1'000'003); }
std::string constant_number(size_t i) { return fmt::format("{}", i * 7919 % 1'000'003); }

/// `format` has {} for the constant.
template <class Constant>
std::string many_constants(const std::string& format, const Constant& constant) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kManyConstants; ++i) {
    parts.push_back(fmt::format(fmt::runtime(format), constant(i)));
  }
  return fmt::format("[{}]", fmt::join(parts, ","));
}

/// Compiles with as much work as one enum takes: neither an alternative for each branch nor steps
/// that grow with their square.
ChoiceGrammar compile_as_one_list(const std::string& schema) {
  return compile_json_schema(empty_vocabulary(), schema, json_options(true, "compact"),
                             {.max_alternatives = 4, .max_steps = 2'000, .max_states = 2'000});
}

TEST(SchemaChoicesTest, ManyConstantsAreOneList) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    for (const char* branch :
         {R"({{"const":{}}})", R"({{"enum":[{}],"title":"x"}})", R"({{"const":{},"x-y":1}})"}) {
      const auto schema = [&](const auto& constant) {
        return fmt::format(R"({{"{}":{}}})", keyword, many_constants(branch, constant));
      };
      const ChoiceGrammar texts = compile_as_one_list(schema(constant_text));
      EXPECT_TRUE(accepts(*texts, constant_text(0))) << keyword << branch;
      EXPECT_TRUE(accepts(*texts, constant_text(kManyConstants - 1))) << keyword << branch;
      EXPECT_FALSE(accepts(*texts, "\"w\"")) << keyword << branch;
      const ChoiceGrammar numbers = compile_as_one_list(schema(constant_number));
      EXPECT_TRUE(accepts(*numbers, constant_number(7))) << keyword << branch;
      EXPECT_TRUE(accepts(*numbers, constant_number(kManyConstants - 1))) << keyword << branch;
      EXPECT_FALSE(accepts(*numbers, "1000004")) << keyword << branch;
    }
  }
}

TEST(SchemaChoicesTest, ManyConstantsAreExcludedAsOneList) {
  const std::string texts = many_constants(R"({{"const":{}}})", constant_text);
  const ChoiceGrammar none =
      compile_as_one_list(fmt::format(R"({{"type":"string","not":{{"anyOf":{}}}}})", texts));
  EXPECT_FALSE(accepts(*none, constant_text(3)));
  EXPECT_TRUE(accepts(*none, "\"w\""));
  const std::string numbers = many_constants(R"({{"const":{}}})", constant_number);
  const ChoiceGrammar other = compile_as_one_list(fmt::format(
      R"({{"type":"integer","minimum":0,"maximum":99999,"not":{{"anyOf":{}}}}})", numbers));
  EXPECT_FALSE(accepts(*other, constant_number(3)));
  EXPECT_TRUE(accepts(*other, "1"));
}

/// Lists beside other alternatives, with values in two of them, with types, and by references.
TEST(SchemaChoicesTest, ListsMeanWhatEachOfThemSays) {
  const std::vector<std::string> schemas = {
      R"({"anyOf":[{"const":1},{"const":"a"},{"enum":[2,"b",null]}]})",
      R"({"oneOf":[{"const":1},{"const":1.0},{"const":2},{"const":"a"}]})",
      R"({"oneOf":[{"enum":[1,2]},{"enum":[2,3]},{"const":"a"},{"const":"b"}]})",
      R"({"oneOf":[{"const":"a"},{"const":"b"},{"type":"string","minLength":2},{"const":"bb"}]})",
      R"({"anyOf":[{"const":"a","type":"string"},{"const":1,"type":"string"},{"const":true}]})",
      R"({"anyOf":[{"const":1.5,"type":"integer"},{"const":1.0,"type":"integer"},{"const":3}]})",
      R"({"anyOf":[{"enum":[1,"a",null],"type":["string","null"]},{"const":2}]})",
      R"({"anyOf":[{"enum":[1,"a"],"const":1},{"const":"b"}]})",
      R"({"anyOf":[{"const":"a","minLength":2},{"const":"bb","minLength":2},{"const":1}]})",
      R"({"anyOf":[{"enum":[]},{"const":1},{"const":2}]})",
      R"({"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"},{"const":3}],
          "$defs":{"a":{"const":"a"},"b":{"$ref":"#/$defs/c"},"c":{"enum":["b",1]}}})",
      R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a","type":"string"},{"const":3}],
          "$defs":{"a":{"enum":["a",1]}}})",
      R"({"not":{"oneOf":[{"const":1},{"const":1},{"const":2},{"const":"a"}]}})",
      R"({"anyOf":[{"const":[1]},{"const":{"a":1}},{"const":"a"},{"type":"null"}]})"};
  for (const std::string& schema : schemas) {
    const ChoiceGrammar grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"));
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    for (const char* text : {"0", "1", "1.0", "1.5", "2", "3", "\"a\"", "\"b\"", "\"bb\"", "\"cc\"",
                             "null", "true", "false", "[1]", "[]", R"({"a":1})", "{}"}) {
      EXPECT_EQ(accepts(*grammar, text), validator.accepts(parse_json(text, "value")))
          << schema << " " << text;
    }
  }
}

/// What expanding the root of a schema, and the property `p` of each number below `properties`,
/// copies.
uint64_t referred_bytes(const std::string& schema, size_t properties) {
  SchemaDocument document(parse_json(schema, "schema"), SchemaRegistry());
  RegexStore regexes;
  FormulaStore formulas(regexes);
  SchemaFormulas reader(document, formulas, {});
  (void)reader.expand(formulas.atom_of(reader.root()));
  const SchemaNode all = document.root();
  for (size_t i = 0; i < properties; ++i) {
    const JsonMember& member = document.value(all).find("properties")->members[i];
    (void)reader.expand(
        {.kind = AtomKind::kSchema, .a = document.child(all, "properties", member)});
  }
  return reader.referred_bytes();
}

std::string long_enum(size_t size) {
  std::vector<std::string> values;
  for (size_t i = 0; i < size; ++i) {
    values.push_back(constant_number(i));
  }
  return fmt::format(R"("$defs":{{"e":{{"enum":[{0}]}},"f":{{"$ref":"#/$defs/e"}}}})",
                     fmt::join(values, ","));
}

TEST(SchemaChoicesTest, ManyReferencesToOneListCopyItOnce) {
  const std::string list = long_enum(2'000);
  std::string parts = R"({"const":"a"})";
  for (size_t i = 0; i < 2'000; ++i) {
    parts += fmt::format(R"(,{{"$ref":"#/$defs/{}"}})", i % 2 == 0 ? "e" : "f");
  }
  const std::string schema = fmt::format(R"({{"anyOf":[{}],{}}})", parts, list);
  EXPECT_GT(referred_bytes(schema, 0), 2'000);
  EXPECT_LT(referred_bytes(schema, 0), 2 * list.size());
  const ChoiceGrammar grammar = compile_as_one_list(schema);
  EXPECT_TRUE(accepts(*grammar, constant_number(1'999)));
  EXPECT_TRUE(accepts(*grammar, "\"a\""));
  EXPECT_FALSE(accepts(*grammar, constant_number(2'000)));
}

/// Choices that each have one constant more than a shared list: lists that are not copied any more
/// are alternatives, which say the same.
TEST(SchemaChoicesTest, WhatReferencesCopyIsBounded) {
  constexpr size_t kChoices = 300;
  const std::string list = long_enum(4'000);
  std::string parts;
  for (size_t i = 0; i < kChoices; ++i) {
    parts += fmt::format(R"({}"p{}":{{"anyOf":[{{"const":"c{}"}},{{"$ref":"#/$defs/f"}}]}})",
                         i == 0 ? "" : ",", i, i);
  }
  const std::string schema = fmt::format(R"({{"properties":{{{}}},{}}})", parts, list);
  EXPECT_LT(referred_bytes(schema, kChoices), 5'000'000);
  EXPECT_GT(kChoices * list.size(), 6'000'000);
  const ChoiceGrammar grammar =
      compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"));
  for (const size_t i : {size_t{0}, kChoices - 1}) {
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"p{0}":"c{0}"}})", i)));
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"p{}":{}}})", i, constant_number(3'999))));
    EXPECT_FALSE(accepts(*grammar, fmt::format(R"({{"p{}":{}}})", i, constant_number(4'000))));
    EXPECT_FALSE(accepts(*grammar, fmt::format(R"({{"p{}":"c"}})", i)));
  }
}

TEST(SchemaChoicesTest, ReadingListsIsInterrupted) {
  const std::atomic<bool> cancelled = true;
  const std::string list = long_enum(2'000);
  const std::string schema = fmt::format(R"({{"anyOf":[{{"$ref":"#/$defs/e"}}],{}}})", list);
  const Interruption interruption(std::numeric_limits<double>::infinity(), &cancelled);
  EXPECT_THROW((void)referred_bytes(schema, 0), GrammarInterrupted);
}

/// Until draft 6 there is no `const`, and whole numbers are told by how they are written.
TEST(SchemaChoicesTest, ListsOfOlderDrafts) {
  const std::string draft4 = R"({"$schema":"http://json-schema.org/draft-04/schema#",)";
  const auto compile = [&](const std::string& rest) {
    return compile_json_schema(empty_vocabulary(), draft4 + rest, json_options(false, "compact"));
  };
  EXPECT_TRUE(accepts(*compile(R"("anyOf":[{"const":1},{"enum":[2]}]})"), "3"));
  const ChoiceGrammar whole =
      compile(R"("anyOf":[{"enum":[1.0,2],"type":"integer"},{"enum":["a"]}]})");
  EXPECT_TRUE(accepts(*whole, "1"));
  EXPECT_FALSE(accepts(*whole, "1.0"));
  const ChoiceGrammar integers =
      compile(R"("anyOf":[{"enum":[1,2],"type":"integer"},{"enum":["a"]}]})");
  EXPECT_TRUE(accepts(*integers, "1") && accepts(*integers, "\"a\""));
  EXPECT_FALSE(accepts(*integers, "1.0"));
}

// Up to draft 7 what stands beside a $ref says nothing: both parts take the same.
TEST(SchemaChoicesTest, AConstantBesideARefOfOldTellsNoPartsApart) {
  const auto part = [](int constant) {
    return fmt::format(R"({{"type":"object","allOf":[{{"required":["k"]}},{{"properties":{{"k":)"
                       R"({{"$ref":"#/definitions/s","const":{}}}}}}}]}})",
                       constant);
  };
  const auto compile = [&](const std::string& draft) {
    return compile_json_schema(
        empty_vocabulary(),
        fmt::format(
            R"({{"$schema":"{}","definitions":{{"s":{{"type":"integer"}}}},"oneOf":[{},{}]}})",
            draft, part(1), part(2)),
        json_options(false, "compact"));
  };
  const ChoiceGrammar apart = compile("https://json-schema.org/draft/2020-12/schema");
  EXPECT_TRUE(accepts(*apart, R"({"k":1})"));
  EXPECT_FALSE(accepts(*apart, R"({"k":5})"));
  EXPECT_THROW(
      EXPECT_FALSE(accepts(*compile("http://json-schema.org/draft-07/schema#"), R"({"k":5})")),
      GrammarError)
      << "nothing is valid";
}

TEST(SchemaChoicesTest, BranchesWithADiscriminator) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < 300; ++i) {
      parts.push_back(fmt::format(
          R"({{"type":"object","properties":{{"kind":{{"const":{}}},"p{}":{{"type":"integer"}}}},
              "required":["kind"]}})",
          constant_text(i), i));
    }
    const ChoiceGrammar grammar = compile_json_schema(
        empty_vocabulary(), fmt::format(R"({{"{}":[{}]}})", keyword, fmt::join(parts, ",")),
        json_options(true, "compact"), {.max_steps = 200'000, .max_states = 20'000});
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"kind":{},"p299":1}})", constant_text(299))));
    EXPECT_FALSE(accepts(*grammar, fmt::format(R"({{"kind":{},"p299":""}})", constant_text(299))));
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"kind":{},"p298":""}})", constant_text(299))));
  }
}

/// As OpenAPI writes discriminated objects: a base requires the property, each branch has its
/// constant.
std::string branches_of_a_base(size_t count, const std::string& keyword) {
  std::vector<std::string> parts,
      definitions = {
          R"("base":{"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"]})"};
  for (size_t i = 0; i < count; ++i) {
    parts.push_back(fmt::format(R"({{"$ref":"#/$defs/b{}"}})", i));
    definitions.push_back(fmt::format(
        R"("b{}":{{"allOf":[{{"$ref":"#/$defs/base"}},{{"type":"object","properties":
           {{"kind":{{"const":{}}},"p{}":{{"type":"integer"}}}}}}]}})",
        i, constant_text(i), i));
  }
  return fmt::format(R"({{"{}":[{}],"$defs":{{{}}}}})", keyword, fmt::join(parts, ","),
                     fmt::join(definitions, ","));
}

TEST(SchemaChoicesTest, BranchesWhoseBaseRequiresTheDiscriminator) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const ChoiceGrammar grammar = compile_json_schema(
        empty_vocabulary(), branches_of_a_base(1'000, keyword), json_options(true, "compact"),
        {.max_regex_states = 20'000, .max_steps = 300'000});
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"kind":{},"p9":1}})", constant_text(9))));
    EXPECT_FALSE(accepts(*grammar, fmt::format(R"({{"kind":{},"p9":""}})", constant_text(9))));
    EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"kind":{},"p9":""}})", constant_text(8))));
    EXPECT_FALSE(accepts(*grammar, R"({"kind":"none"})"));
  }
}

/// Constants of properties that are required in the same part, in another, in none, or below.
TEST(SchemaChoicesTest, ConstantsThatOtherPartsRequire) {
  std::mt19937 random(5);
  const auto below = [&](size_t count) { return random() % count; };
  const std::vector<std::string> requires_some = {
      R"("required":["k"])", R"("required":["l"])",
      R"("properties":{"o":{"type":"object","required":["k"]}},"required":["o"])",
      R"("properties":{"o":{"type":"object"}})", R"("type":"object")"};
  const auto constant = [&] {
    const size_t value = below(3);
    const std::string only =
        below(2) == 0 ? fmt::format(R"("const":{})", value) : fmt::format(R"("enum":[{}])", value);
    const std::string whole =
        fmt::format(R"("properties":{{"{}":{{{}}}}})", below(2) == 0 ? "k" : "l", only);
    return below(3) > 0 ? whole
                        : fmt::format(R"("properties":{{"o":{{"type":"object",{}}}}})", whole);
  };
  std::vector<std::string> texts = {"{}", "1"};
  for (const char* pair :
       {R"("k":0)", R"("k":1)", R"("l":1)", R"("k":1,"l":0)", R"("k":2,"l":2)"}) {
    for (const char* more : {"", R"(,"o":{})", R"(,"o":{"k":1})", R"(,"o":{"k":0,"l":1})"}) {
      texts.push_back(fmt::format("{{{}{}}}", pair, more));
      texts.push_back(fmt::format("{{{}}}", *more == 0 ? more : more + 1));
    }
  }
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> parts;
    for (size_t part = 2 + below(3); part > 0; --part) {
      parts.push_back(fmt::format(R"({{"type":"object","allOf":[{{{}}},{{{}}},{{{}}}]}})",
                                  requires_some[below(5)], constant(), requires_some[below(5)]));
    }
    const std::string schema = fmt::format(R"({{"oneOf":[{}]}})", fmt::join(parts, ","));
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const ChoiceGrammar grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"), {}, true);
    for (const std::string& text : texts) {
      ASSERT_EQ(accepts(*grammar, text), validator.accepts(parse_json(text, "value")))
          << schema << " " << text;
    }
  }
}

}  // namespace
}  // namespace specdec
