// Objects with bounds of how many properties they have.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

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

std::string counted_objects(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  const auto value = [&] {
    static const Texts kValues = {"true", "false", R"({"const":1})", R"({"type":"integer"})"};
    return kValues[below(static_cast<uint32_t>(kValues.size()))];
  };
  std::string properties;
  std::string required;
  for (const char* name : {"a", "b", "c"}) {
    properties += fmt::format(R"({}"{}":{})", properties.empty() ? "" : ",", name, value());
    if (below(4) == 0) {
      required += fmt::format(R"({}"{}")", required.empty() ? "" : ",", name);
    }
  }
  std::string text = R"({"type":"object","properties":{)" + properties + R"(},"required":[)" +
                     required + fmt::format(R"(],"minProperties":{})", below(5));
  text += below(2) == 0 ? fmt::format(R"(,"maxProperties":{})", 1 + below(4)) : "";
  text += below(3) > 0 ? R"(,"additionalProperties":)" + value() : "";
  text += below(3) == 0 ? R"(,"patternProperties":{"^[ax]$":)" + value() + "}" : "";
  return text + "}";
}

/// Objects of some of the names, in this order.
Texts counted_texts() {
  const Texts names = {"a", "b", "c", "x", "y"};
  Texts begun = {""};
  for (const std::string& name : names) {
    Texts more = begun;
    for (const std::string& text : begun) {
      for (const char* value : {"1", "null"}) {
        more.push_back(fmt::format(R"({}{}"{}":{})", text, text.empty() ? "" : ",", name, value));
      }
    }
    begun = std::move(more);
  }
  for (std::string& text : begun) {
    text = "{" + text + "}";
  }
  return begun;
}

TEST(ObjectCountsTest, TextsAndMasks) {
  const Texts texts = counted_texts();
  const auto vocabulary = tiny_vocabulary(6, 150);
  int valid = 0;
  int alive = 0;
  for (uint32_t seed = 0; seed < 160; ++seed) {
    const std::string schema = counted_objects(seed);
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const JsonValue document = parse_json(schema, "schema");
    const NaiveValidator validator(document);
    const auto grammar =
        compile_json_schema(vocabulary, schema, json_options(seed % 2 == 0, "compact"), {}, true);
    ASSERT_NO_FATAL_FAILURE(expect_texts_are_valid(*grammar, validator, texts, valid));
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      ASSERT_EQ(find_dead_end(*grammar, 300), std::nullopt);
      ASSERT_NO_FATAL_FAILURE(expect_masks_are_steps(*grammar, seed));
    }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(alive, 80);
}

}  // namespace
}  // namespace specdec
