// Small arrays of all kinds: every text and every mask is what trying out all texts says.
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

/// Arrays, many with `uniqueItems`, of few values, in each other.
class SmallArrays {
 public:
  explicit SmallArrays(uint32_t seed) : random_(seed) {}

  std::string array(int depth) {
    std::string text = R"({"type":"array")";
    text += below(5) > 0 ? R"(,"uniqueItems":true)" : "";
    if (below(4) == 0) {
      text += R"(,"prefixItems":[)" + item(depth) + (below(2) == 0 ? "," + item(depth) : "") + "]";
    }
    text += below(12) == 0 ? R"(,"items":false)" : R"(,"items":)" + item(depth);
    if (below(3) == 0) {
      text += R"(,"contains":)" + item(depth);
      text += below(2) == 0 ? fmt::format(R"(,"minContains":{})", below(3)) : "";
      text += below(2) == 0 ? fmt::format(R"(,"maxContains":{})", 1 + below(2)) : "";
    }
    text += below(2) == 0 ? fmt::format(R"(,"minItems":{})", below(3)) : "";
    text += below(2) == 0 ? fmt::format(R"(,"maxItems":{})", 1 + below(3)) : "";
    return text + "}";
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }

  std::string item(int depth) {
    static const Texts kLeaves = {R"({"enum":[1,2]})",
                                  R"({"enum":[1,"a",[1],[2,1]]})",
                                  R"({"const":1})",
                                  R"({"const":[1,2]})",
                                  R"({"type":"boolean"})",
                                  R"({"type":"integer","minimum":1,"maximum":3})",
                                  R"({"type":"integer","minimum":1,"maximum":2})",
                                  R"({"enum":[{"a":1},{"a":2,"b":1},true]})"};
    const uint32_t kind = below(10);
    if (depth > 0 && kind < 5) {
      return array(depth - 1);
    }
    if (depth > 0 && kind == 5) {
      return R"({"type":"object","properties":{"a":)" + item(depth - 1) + R"(,"b":)" +
             item(depth - 1) + R"(},"required":["a"],"additionalProperties":false})";
    }
    if (depth > 0 && kind == 6) {
      return R"({"anyOf":[)" + item(depth - 1) + "," + item(depth - 1) + "]}";
    }
    return kLeaves[below(static_cast<uint32_t>(kLeaves.size()))];
  }

  std::mt19937 random_;
};

/// All lists of at most `most` of the values.
Texts lists_of(const Texts& values, size_t most) {
  Texts begun = {""};
  Texts lists;
  for (size_t size = 0;; ++size) {
    for (const std::string& text : begun) {
      lists.push_back("[" + text + "]");
    }
    if (size == most) {
      return lists;
    }
    Texts longer;
    for (const std::string& text : begun) {
      for (const std::string& value : values) {
        longer.push_back(text + (size == 0 ? "" : ",") + value);
      }
    }
    begun = std::move(longer);
  }
}

/// The texts that are tried with every schema: of two and of three levels.
Texts all_texts() {
  const Texts scalars = {"1", "2", "3", "true", "\"a\""};
  Texts texts = lists_of(scalars, 4);
  Texts items = lists_of({"1", "2", "3"}, 3);
  items.insert(items.end(), {"1", "true", R"({"a":1})", R"({"a":2,"b":1})", R"({"a":[1,2]})"});
  const Texts pairs = lists_of(items, 2);
  texts.insert(texts.end(), pairs.begin(), pairs.end());
  Texts few = lists_of({"1", "2"}, 2);
  few.insert(few.end(), {"1", "[[1]]", "[[1,2]]", "[[2,1],[1]]", "[[1],[2]]", "[[true]]"});
  const Texts triples = lists_of(few, 3);
  texts.insert(texts.end(), triples.begin(), triples.end());
  return texts;
}

TEST(UniqueBruteForceTest, TextsAndMasks) {
  const Texts texts = all_texts();
  const auto vocabulary = tiny_vocabulary(4, 150);
  int valid = 0;
  int alive = 0;
  int refused = 0;
  for (uint32_t seed = 0; seed < 70; ++seed) {
    const std::string schema = SmallArrays(seed).array(seed % 4 == 0 ? 2 : 1);
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    std::shared_ptr<const CompiledGrammar> grammar;
    try {
      grammar =
          compile_json_schema(vocabulary, schema, json_options(seed % 2 == 0, "compact"), {}, true);
    } catch (const GrammarError& error) {  // a documented exception
      ASSERT_THAT(error.what(), testing::HasSubstr("a `not` over the `items` after others"));
      ++refused;
      continue;
    }
    const JsonValue document = parse_json(schema, "schema");
    ASSERT_NO_FATAL_FAILURE(
        expect_texts_are_valid(*grammar, NaiveValidator(document), texts, valid));
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      ASSERT_EQ(find_dead_end(*grammar, 300), std::nullopt);
      ASSERT_NO_FATAL_FAILURE(expect_masks_are_steps(*grammar, seed));
    }
  }
  EXPECT_GT(valid, 600);
  EXPECT_GT(alive, 35);
  EXPECT_LT(refused, 6);
}

/// Several `contains` that overlap, each with bounds of its own, with and without a prefix.
std::string many_contains(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  const auto some = [&] {
    static const Texts kItems = {R"({"enum":[1,2]})",     R"({"enum":[2,3]})",
                                 R"({"const":3})",        R"({"enum":[1,"a",true]})",
                                 R"({"minimum":2})",      R"({"type":["integer","boolean"]})",
                                 R"({"not":{"const":1}})"};
    return kItems[below(static_cast<uint32_t>(kItems.size()))];
  };
  std::string parts;
  for (uint32_t i = 0; i < 2 + below(3); ++i) {
    parts += fmt::format(R"({}{{"contains":{},"minContains":{}{}}})", i == 0 ? "" : ",", some(),
                         below(3), below(3) == 0 ? R"(,"maxContains":2)" : "");
  }
  return fmt::format(
      R"({{"type":"array","uniqueItems":{},"minItems":{}{}{},"items":{},"allOf":[{}]}})",
      below(4) > 0, below(5), below(3) == 0 ? R"(,"maxItems":4)" : "",
      below(3) == 0 ? R"(,"prefixItems":[)" + some() + "]" : "",
      below(2) == 0 ? "true" : R"({"enum":[1,2,3,"a",true]})", parts);
}

TEST(UniqueBruteForceTest, ManyContains) {
  const Texts texts = lists_of({"1", "2", "3", "true", "\"a\""}, 4);
  const auto vocabulary = tiny_vocabulary(4, 150);
  int valid = 0;
  int alive = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::string schema = many_contains(seed);
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const auto grammar =
        compile_json_schema(vocabulary, schema, json_options(seed % 2 == 0, "compact"), {}, true);
    const JsonValue document = parse_json(schema, "schema");
    ASSERT_NO_FATAL_FAILURE(
        expect_texts_are_valid(*grammar, NaiveValidator(document), texts, valid));
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      ASSERT_EQ(find_dead_end(*grammar, 200), std::nullopt);
      ASSERT_NO_FATAL_FAILURE(expect_masks_are_steps(*grammar, seed));
    }
  }
  EXPECT_GT(valid, 500);
  EXPECT_GT(alive, 20);
}

/// Which items count towards which `contains` is not tried out in all combinations.
TEST(UniqueBruteForceTest, FourContainsTakeFewSteps) {
  GrammarLimits limits;
  limits.max_steps = 30'000;
  const auto grammar = compile_json_schema(
      tiny_vocabulary(4, 150),
      R"({"type":"array","uniqueItems":true,"minItems":12,"items":{"type":"integer"},"allOf":[
        {"contains":{"const":1}},{"contains":{"const":2}},{"contains":{"minimum":20,"maximum":25}},
        {"contains":{"multipleOf":7},"minContains":2}]})",
      json_options(true, "compact"), limits);
  StateId state = grammar->next(grammar->start(), std::string_view("[100"));
  for (const char* item :
       {",101", ",102", ",103", ",104", ",105", ",21", ",1", ",106", ",107", ",2"}) {
    EXPECT_GT(grammar->mask(state).count(), 0);
    EXPECT_FALSE(grammar->is_complete(state));
    state = grammar->next(state, std::string_view(item));
    ASSERT_NE(state, Automaton::kDead) << grammar->limit(state).value_or("");
  }
  EXPECT_EQ(grammar->next(state, std::string_view("]")), Automaton::kDead);
  EXPECT_EQ(grammar->next(state, std::string_view(",2]")), Automaton::kDead);
  EXPECT_TRUE(grammar->is_complete(grammar->next(state, std::string_view(",3]"))));
}

}  // namespace
}  // namespace specdec
