// Many applicators below unevaluatedProperties: each property is looked at by itself.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/grammar/dead_end.h"
#include "tests/grammar/validated_texts.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

TEST(SchemaUnevaluatedTest, ManyKindsThatAllowTheirOwnProperties) {
  for (const int count : {13, 64, 200}) {
    std::string all;
    for (int i = 0; i < count; ++i) {
      all += fmt::format(
          R"({0}{{"if":{{"properties":{{"kind":{{"const":"k{1}"}}}},"required":["kind"]}},"then":{{"properties":{{"a{1}":{{"type":"integer"}},"b{2}":true}},"required":["a{1}"]}}}})",
          i == 0 ? "" : ",", i, i % 3);
    }
    const std::string schema = fmt::format(
        R"({{"type":"object","properties":{{"kind":{{"type":"string"}}}},"patternProperties":{{"^x":true}},"allOf":[{}],"unevaluatedProperties":{{"type":"null"}}}})",
        all);
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const auto grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"));
    for (const char* text :
         {R"({"kind":"k3","a3":1,"b0":"x"})", R"({"b0":"x","a3":1,"kind":"k3"})",
          R"({"kind":"k3","a3":1,"b1":"x"})", R"({"kind":"k3","a3":1,"a4":1})",
          R"({"kind":"k3","a3":1,"a4":null,"c":null})", R"({"kind":"k3","a3":1,"c":2})",
          R"({"kind":"k3","x1":1})", R"({"kind":"other","x1":1})", R"({"kind":"other","b1":1})",
          R"({"x":1,"c":null})", R"({"kind":null})", R"({})"}) {
      EXPECT_EQ(accepts(*grammar, text), validator.accepts(parse_json(text, "text")))
          << count << text;
    }
  }
}

/// Items, and properties that patterns name, are told by the ways alone.
TEST(SchemaUnevaluatedTest, TooManyWaysAreRefused) {
  for (
      const char* part :
      {R"({{"anyOf":[{{"required":["a{0}"],"patternProperties":{{"^a{0}":true}}}},{{"properties":{{"b{0}":true}}}}]}})",
       R"({{"if":{{"minItems":{0}}},"then":{{"prefixItems":[true]}}}})"}) {
    std::string all;
    for (int i = 0; i < 20; ++i) {
      all += (i == 0 ? "" : ",") + fmt::format(fmt::runtime(part), i);
    }
    const char* keyword = part[3] == 'a' ? "unevaluatedProperties" : "unevaluatedItems";
    const std::string error = error_message<GrammarError>([&] {
      (void)compile_json_schema(empty_vocabulary(),
                                fmt::format(R"({{"allOf":[{}],"{}":false}})", all, keyword),
                                json_options(false, "compact"));
    });
    EXPECT_THAT(error, ::testing::HasSubstr("more than 4096 ways through anyOf"));
  }
}

/// Random applicators, so many that the ways through them are too many.
class RandomApplicators {
 public:
  explicit RandomApplicators(uint32_t seed) : random_(seed) {}

  std::string schema() {
    std::vector<std::string> all;
    for (int i = 0; i < 14; ++i) {
      all.push_back(condition(2));
    }
    return fmt::format(
        R"({{"type":"object","properties":{{"type":{{"enum":[1,2,"x",null]}}}},"allOf":[{}]{}{},"unevaluatedProperties":{}}})",
        fmt::join(all, ","), below(3) == 0 ? R"(,"patternProperties":{"^p":true})" : "",
        below(3) == 0 ? R"(,"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":true}}})" : "",
        below(3) == 0 ? R"({"type":"integer"})" : "false");
  }

  std::string object() {
    std::vector<std::string> members;
    for (const char* name : {"type", "a", "b", "c", "d", "p", "pq", "x"}) {
      if (below(3) == 0) {
        members.push_back(fmt::format(R"("{}":{})", name, value()));
      }
    }
    std::shuffle(members.begin(), members.end(), random_);
    return fmt::format("{{{}}}", fmt::join(members, ","));
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }
  std::string name() { return std::vector<std::string>{"a", "b", "c", "d", "p"}[below(5)]; }
  std::string value() { return std::vector<std::string>{"1", "2", R"("x")", "null"}[below(4)]; }

  std::string test() {
    return below(4) == 0
               ? fmt::format(R"({{"properties":{{"{0}":{{"const":{1}}}}},"required":["{0}"]}})",
                             name(), value())
               : fmt::format(R"({{"properties":{{"type":{{"const":{}}}}},"required":["type"]}})",
                             value());
  }

  /// What evaluates some properties, and asks little of them.
  std::string part(int depth) {
    switch (below(depth > 0 ? 7 : 5)) {
      case 0:
        return R"({"additionalProperties":true})";
      case 1:
        return fmt::format(R"({{"properties":{{"{}":{{"not":{{"const":{}}}}}}}}})", name(),
                           value());
      case 5:
        return condition(depth - 1);
      case 6:
        return fmt::format(R"({{"allOf":[{},{}]}})", part(depth - 1), part(depth - 1));
      default:
        return fmt::format(R"({{"properties":{{"{}":true,"x":true}}}})", name());
    }
  }

  std::string condition(int depth) {
    switch (below(6)) {
      case 0:
        return fmt::format(R"({{"anyOf":[{{"properties":{{"{}":true}},"required":["{}"]}},{}]}})",
                           name(), name(), part(depth - 1));
      case 1:
        return fmt::format(R"({{"dependentSchemas":{{"{}":{}}}}})", name(), part(depth - 1));
      case 2:
        return fmt::format(R"({{"if":{},"then":{},"else":{}}})", test(), part(depth - 1),
                           part(depth - 1));
      case 3:
        return fmt::format(R"({{"oneOf":[{},{{"not":{}}}]}})", test(), test());
      default:
        return fmt::format(R"({{"if":{},"then":{}}})", test(), part(depth - 1));
    }
  }

  std::mt19937 random_;
};

TEST(SchemaUnevaluatedTest, RandomApplicatorsAgreeWithAValidator) {
  int valid = 0;
  const auto vocabulary = tiny_vocabulary(6, 100);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    RandomApplicators random(seed);
    const std::string schema = random.schema();
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const auto grammar =
        compile_json_schema(vocabulary, schema, json_options(false, "compact"), {}, true);
    std::vector<std::string> texts(150);
    std::ranges::generate(texts, [&] { return random.object(); });
    ASSERT_NO_FATAL_FAILURE(expect_texts_are_valid(*grammar, validator, texts, valid));
    if (grammar->start() != Automaton::kDead) {
      ASSERT_EQ(find_dead_end(*grammar, 100), std::nullopt);
    }
  }
  EXPECT_GT(valid, 200);
}

}  // namespace
}  // namespace specdec
