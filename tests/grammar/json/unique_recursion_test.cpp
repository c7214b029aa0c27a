// Arrays of different items some of which are such arrays again, by a reference to the schema.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/grammar/dead_end.h"
#include "tests/grammar/mask_steps.h"
#include "tests/grammar/validated_texts.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using Texts = std::vector<std::string>;
using Grammar = std::shared_ptr<const CompiledGrammar>;

class RecursiveArrays {
 public:
  explicit RecursiveArrays(uint32_t seed) : random_(seed) {}

  std::string array(int depth) {
    std::string text = R"({"type":"array")";
    text += below(6) > 0 ? R"(,"uniqueItems":true)" : "";
    text += below(6) == 0 ? R"(,"prefixItems":[)" + item(depth) + "]" : "";
    text += R"(,"items":)" + item(depth);
    if (below(4) == 0) {
      text += R"(,"contains":)" + item(depth);
      text += below(3) == 0 ? fmt::format(R"(,"minContains":{})", below(3)) : "";
      text += below(3) == 0 ? fmt::format(R"(,"maxContains":{})", 1 + below(2)) : "";
    }
    text += below(3) > 0 ? fmt::format(R"(,"minItems":{})", below(4)) : "";
    text += below(3) == 0 ? fmt::format(R"(,"maxItems":{})", 1 + below(3)) : "";
    return text + "}";
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }

  std::string item(int depth) {
    static const Texts kLeaves = {R"({"const":1})", R"({"const":2})", R"({"enum":[1,2]})",
                                  R"({"type":"boolean"})", R"({"const":[1]})"};
    const uint32_t kind = below(8);
    if (kind < 3) {
      return R"({"$ref":"#"})";
    }
    if (depth > 0 && kind < 6) {
      return R"({"anyOf":[)" + item(depth - 1) + "," + item(depth - 1) + "]}";
    }
    if (depth > 0 && kind == 6) {
      return below(2) == 0 ? array(depth - 1)
                           : R"({"type":"object","required":["a"],"properties":{"a":)" +
                                 item(depth - 1) + R"(},"additionalProperties":false})";
    }
    return kLeaves[below(static_cast<uint32_t>(kLeaves.size()))];
  }

  std::mt19937 random_;
};

void add_lists(const Texts& values, size_t most, Texts& lists) {
  Texts begun = {""};
  for (size_t size = 0; size <= most; ++size) {
    Texts longer;
    for (const std::string& text : begun) {
      lists.push_back("[" + text + "]");
      for (const std::string& value : values) {
        longer.push_back(text + (size == 0 ? "" : ",") + value);
      }
    }
    begun = std::move(longer);
  }
}

/// The texts that are tried with every schema.
Texts recursive_texts() {
  Texts texts;
  add_lists({"1", "2", "true", "[]", "[1]", "[1,2]", "[2,1]", "[[],1]"}, 3, texts);
  Texts deep = {"1", "2", R"({"a":[1]})", R"({"a":1})"};
  add_lists({"1", "2", "[]"}, 2, deep);
  add_lists(deep, 2, texts);
  Texts deeper = {"1"};
  add_lists({"[]", "[1]", "[[1]]", "[1,2]"}, 2, deeper);
  add_lists(deeper, 2, texts);
  return texts;
}

void expect_decided(const std::string& schema, const Texts& valid, const Texts& dead) {
  const Grammar grammar =
      compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"));
  for (const std::string& text : valid) {
    EXPECT_TRUE(accepts(*grammar, text)) << schema << " " << text;
  }
  for (const std::string& text : dead) {
    EXPECT_EQ(grammar->next(grammar->start(), text), Automaton::kDead) << schema << " " << text;
  }
}

/// To tell their values apart is to tell the values of theirs apart.
TEST(UniqueRecursionTest, ArraysOfTheirKind) {
  expect_decided(
      R"({"type":"array","uniqueItems":true,"minItems":2,
          "items":{"anyOf":[{"const":1},{"$ref":"#"},{"const":2}]}})",
      {"[1,2]", "[2,1,[1,2]]", "[[1,2],[2,1],[1,[2,1]]]", "[1,[[1,2],2]]"},
      {"[1]", "[1,1", "[[1,2],[1,2]", "[1,[1]", "[[]"});
  expect_decided(
      R"({"type":"array","uniqueItems":true,"items":{"type":"array","contains":{"$ref":"#"},
          "maxItems":2,"uniqueItems":true}})",
      {"[]", "[[[]]]", "[[[]],[[],1]]"}, {"[[]]", "[[1]", "[[[]],[[]]]", "[[[],1,"});
  expect_decided(
      R"({"type":"array","uniqueItems":true,"minItems":1,
          "items":{"type":"array","uniqueItems":true,"items":{"$ref":"#"}}})",
      {"[[]]", "[[[[]]],[]]", "[[],[[[]]]]"}, {"[]", "[[],[]]", "[[[]"});
}

/// Values that would have to be in themselves do not exist.
TEST(UniqueRecursionTest, ArraysOfTooFewOfTheirKind) {
  for (const char* schema :
       {R"({"type":"array","uniqueItems":true,"minItems":2,
            "items":{"anyOf":[{"const":1},{"$ref":"#"}]}})",
        R"({"type":"array","uniqueItems":true,"minItems":3,
            "items":{"anyOf":[{"enum":[1,2]},{"type":"array","minItems":1,"items":{"$ref":"#"}}]}})",
        R"({"type":"array","uniqueItems":true,"minItems":1,"items":{"$ref":"#"}})"}) {
    const Grammar grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"), {}, true);
    EXPECT_EQ(grammar->start(), Automaton::kDead) << schema;
  }
}

TEST(UniqueRecursionTest, TextsAndMasks) {
  const Texts texts = recursive_texts();
  const auto vocabulary = tiny_vocabulary(4, 150);
  int valid = 0;
  int alive = 0;
  int refused = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const std::string schema = RecursiveArrays(seed).array(2);
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const JsonValue document = parse_json(schema, "schema");
    const NaiveValidator validator(document);
    Grammar grammar;
    try {
      grammar =
          compile_json_schema(vocabulary, schema, json_options(seed % 2 == 0, "compact"), {}, true);
    } catch (const GrammarError& error) {  // a documented exception
      ASSERT_THAT(error.what(), testing::HasSubstr("a `not` over the `items` after others"));
      ++refused;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_texts_are_valid(*grammar, validator, texts, valid));
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      EXPECT_EQ(find_dead_end(*grammar, 300), std::nullopt);
      ASSERT_NO_FATAL_FAILURE(expect_masks_are_steps(*grammar, seed));
    }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(alive, 40);
  EXPECT_LT(refused, 6);
}

/// Lists of two records, in all of which but one the first record is followed by another one: the
/// last list has one record left, whichever it is and in whatever order its names come.
TEST(UniqueRecursionTest, TheLastRecordMayBeginWithEitherName) {
  const Grammar grammar = compile_json_schema(
      empty_vocabulary(),
      R"({"type":"array","uniqueItems":true,"items":{"type":"array","uniqueItems":true,
          "minItems":2,"maxItems":2,"items":{"type":"object","required":["c"],"properties":{
          "b":{"type":["null","boolean"]},"c":{"type":"boolean"}},
          "additionalProperties":false}}})",
      json_options(false, "compact"));
  Texts records = {R"({"c":false})", R"({"c":true})"};
  for (const char* b : {"null", "false", "true"}) {
    for (const char* c : {"false", "true"}) {
      records.push_back(fmt::format(R"({{"b":{},"c":{}}})", b, c));
    }
  }
  for (const std::string& last : records) {
    std::string before = "[";
    for (const std::string& record : records) {
      before +=
          record == last || record == records[2] ? "" : fmt::format("[{},{}],", records[2], record);
    }
    const bool is_first = last == records[2];
    const size_t comma = last.find(',');
    const std::string turned = comma == std::string::npos
                                   ? last
                                   : "{" + last.substr(comma + 1, last.size() - comma - 2) + "," +
                                         last.substr(1, comma - 1) + "}";
    for (const std::string& text : {last, turned}) {
      EXPECT_EQ(accepts(*grammar, before + "[" + records[2] + "," + text + "]]"), !is_first)
          << text;
    }
  }
}

}  // namespace
}  // namespace specdec
