// Many conditions that compare one property with constants: its value decides them all.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/grammar/dead_end.h"
#include "tests/grammar/validated_texts.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

/// Compiles with few steps allowed: what grows exponentially is refused.
Grammar compile_kinds(const std::string& schema) {
  return compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"),
                             {.max_alternatives = 1'000, .max_steps = 400'000});
}

template <class Make>
std::string list_of(size_t count, const Make& make) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < count; ++i) {
    parts.push_back(make(i));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

/// An if and then for each kind; `then` may use {0}, the kind's number, and {1}, one of 3 types.
std::string kinds(size_t count, const std::string& then, const std::string& top,
                  const std::string& kind = R"("k{}")", const std::string& required = "kind") {
  const std::vector<std::string> types = {"integer", "string", "null"};
  const auto condition = [&](size_t i) {
    return fmt::format(
        R"({{"if":{{"properties":{{"kind":{{"const":{}}}}},"required":["{}"]}},"then":{}}})",
        fmt::format(fmt::runtime(kind), i), required,
        fmt::format(fmt::runtime(then), i, types[i % 3]));
  };
  return fmt::format(R"({{"type":"object",{}"allOf":[{}]}})", top, list_of(count, condition));
}

/// Compares grammar and validator on objects of a kind and one or two other properties.
void check_kinds(const std::string& schema, const std::vector<std::string>& all_kinds) {
  const JsonValue parsed = parse_json(schema, "schema");
  const NaiveValidator validator(parsed);
  const Grammar grammar = compile_kinds(schema);
  for (const std::string& kind : all_kinds) {
    const std::string own = kind.empty() ? "" : fmt::format(R"("kind":{})", kind);
    for (const char* more :
         {"", R"("a":1)", R"("a":"x")", R"("a":4,"x":null)", R"("a3":1)", R"("a3":"x","b":1)",
          R"("x":1)", R"("a":{"v":3})", R"("a":{"w":1})", R"("a":null,"x":"y","xy":1)"}) {
      const char* comma = own.empty() || *more == '\0' ? "" : ",";
      for (const std::string& text :
           {"{" + own + comma + more + "}", "{" + (more + (comma + own)) + "}"}) {
        ASSERT_EQ(accepts(*grammar, text), validator.accepts(parse_json(text, "text")))
            << schema.substr(0, 500) << ' ' << text;
      }
    }
  }
}

TEST(PropertyCasesTest, ManyKinds) {
  for (const size_t count : {5, 20, 200}) {
    const std::string open = R"("required":["kind"],)";
    const std::string listed =
        fmt::format(R"("properties":{{"kind":{{"enum":[{}]}}}},)",
                    list_of(count, [](size_t i) { return fmt::format(R"("k{}")", i); }));
    for (
        const char* then :
        {R"({{"properties":{{"a":{{"type":"{1}","minimum":{0}}}}},"required":["a"]}})",
         R"({{"properties":{{"kind":true,"a{0}":{{"type":"{1}"}}}},"additionalProperties":false}})",
         R"({{"additionalProperties":{{"type":["{1}","string"]}}}})",
         R"({{"patternProperties":{{"^x":{{"type":"{1}"}}}},"required":["x"]}})",
         R"({{"properties":{{"a":{{"type":"object","required":["v"],"properties":{{"v":{{"const":{0}}}}}}}}},"required":["a"]}})",
         R"({{"propertyNames":{{"maxLength":4}},"minProperties":2}})",
         R"({{"oneOf":[{{"properties":{{"a":{{"const":1}}}},"required":["a"]}},{{"properties":{{"a":{{"const":4}},"kind":true}},"additionalProperties":false}}]}})",
         R"({{"oneOf":[{{"required":["a"]}},{{"required":["x"]}}],"properties":{{"a":{{"minimum":{0}}}}}}})"}) {
      for (const std::string& top : {open, listed, open + listed}) {
        check_kinds(kinds(count, then, top), {"", R"("k0")", R"("k3")", R"("k4")", R"("k500")"});
        check_kinds(kinds(std::min<size_t>(count, 30), then, top, "{}", "a"),
                    {"", "0", "3.0", R"("k3")", "null"});
      }
    }
  }
}

/// Kinds in `else` are read as if they were written one inside the other.
TEST(PropertyCasesTest, ManyKindsInElse) {
  std::string schema = R"({"properties":{"a":{"const":"none"}}})";
  for (int i = 0; i < 60; ++i) {
    schema = fmt::format(
        R"({{"if":{{"properties":{{"kind":{{"enum":["k{0}","l{0}"]}}}},"required":["kind"]}},"then":{{"properties":{{"a":{{"minimum":{0}}}}},"required":["a"]}},"else":{1}}})",
        i, schema);
  }
  check_kinds(R"({"type":"object",)" + schema.substr(1),
              {"", R"("k0")", R"("l3")", R"("k5")", R"("k60")", "3"});
}

/// Conditions on two properties that do not depend on each other, and on both at once.
TEST(PropertyCasesTest, KindsOfTwoProperties) {
  const auto schema = [](const char* both) {
    return R"({"type":"object","required":["kind"],"allOf":[)" +
           list_of(
               60,
               [&](size_t i) {
                 return fmt::format(
                     R"({{"if":{{"properties":{{"kind":{{"const":{}}},"x":{{"const":{}}}}},"required":["kind"{}]}},"then":{{"properties":{{"a":{{"minimum":{}}}}},"required":["a"],"additionalProperties":{{"not":{{"const":{}}}}}}}}})",
                     i / 3, i % 3, both, i % 5, i);
               }) +
           "]}";
  };
  for (const char* both : {"", R"(,"x")"}) {
    check_kinds(schema(both), {"", "0", "1", "3", "19", "20", R"("x")"});
  }
}

/// Each property decides its own conditions, of which clauses cannot keep any.
TEST(PropertyCasesTest, KindsThatDoNotDependOnEachOther) {
  const auto condition = [](const char* name, size_t i) {
    return fmt::format(
        R"({{"if":{{"properties":{{"{0}":{{"const":{1}}}}},"required":["{0}"]}},"then":{{"patternProperties":{{"^a":{{"minimum":{1}}}}}}}}})",
        name, i);
  };
  const std::string schema = R"({"type":"object","allOf":[)" +
                             list_of(20, [&](size_t i) { return condition("kind", i); }) + "," +
                             list_of(20, [&](size_t i) { return condition("x", i); }) + "]}";
  check_kinds(schema, {"", "0", "2", "4", "20", R"("x")"});
}

TEST(PropertyCasesTest, WhatCannotHoldIsRefused) {
  const std::string never =
      kinds(70, R"({{"required":["b"],"properties":{{"b":{{"minimum":{0}}}}}}})",
            R"("required":["kind"],"properties":{"b":false,"kind":{"enum":["k1","k2"]}},)");
  EXPECT_THROW(compile_kinds(never), GrammarError);
  const std::string one =
      kinds(70, R"({{"required":["b{0}"],"minProperties":2}})",
            R"("required":["kind"],"properties":{"b2":false,"kind":{"enum":["k1","k2"]}},)");
  const Grammar grammar = compile_kinds(one);
  EXPECT_NE(grammar->next(grammar->start(), R"({"kind":"k1",)"), Automaton::kDead);
  EXPECT_EQ(grammar->next(grammar->start(), R"({"kind":"k2)"), Automaton::kDead);
}

/// Conditions on kinds at random, whose constants overlap, mixed with others.
class RandomKinds {
 public:
  explicit RandomKinds(uint32_t seed) : random_(seed) {}

  std::string schema() {
    const std::string all = list_of(7 + below(4), [&](size_t) { return condition(); });
    return fmt::format(
        R"({{"type":"object","properties":{{"a":{{"enum":[1,2,"x",null]}},"b":{{"enum":[1,"x",null]}},"type":{}}},"allOf":[{}]{}{}{}{}}})",
        below(2) == 0 ? R"({"enum":[1,2,"x",null]})" : "true", all,
        below(4) == 0 ? R"(,"additionalProperties":{"type":"integer"})" : "",
        below(2) == 0 ? R"(,"required":["type"])" : "",
        below(4) == 0 ? R"(,"minProperties":2)" : "",
        below(4) == 0 ? fmt::format(R"(,"maxProperties":{})", 2 + below(2)) : "");
  }

  std::string object(bool in_order) {
    std::vector<std::string> members;
    for (const char* name : {"a", "b", "type", "p", "pq"}) {
      if (below(5) > 1) {
        members.push_back(fmt::format(R"("{}":{})", name, value()));
      }
    }
    if (!in_order) {
      std::shuffle(members.begin(), members.end(), random_);
    }
    return fmt::format("{{{}}}", fmt::join(members, ","));
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }
  std::string value() { return std::vector<std::string>{"1", "2", R"("x")", "null"}[below(4)]; }
  std::string name() { return std::vector<std::string>{"a", "b", "type", "p"}[below(4)]; }

  std::string test() {
    const std::string required = below(3) > 0 ? R"(,"required":["type"])" : "";
    switch (below(4)) {
      case 0:
        return fmt::format(R"({{"properties":{{"type":{{"enum":[{},{}]}}}}{}}})", value(), value(),
                           required);
      case 1:
        return fmt::format(R"({{"properties":{{"type":{{"not":{{"const":{}}}}}}}{}}})", value(),
                           required);
      default:
        return fmt::format(R"({{"properties":{{"type":{{"const":{}}}}}{}}})", value(), required);
    }
  }

  std::string statement() {
    switch (below(8)) {
      case 0:
        return R"({"properties":{"a":true,"type":true},"additionalProperties":false})";
      case 1:
        return fmt::format(R"({{"additionalProperties":{{"enum":[{},{}]}}}})", value(), value());
      case 2:
        return fmt::format(R"({{"patternProperties":{{"^p":{{"const":{}}}}}}})", value());
      case 3:
        return R"({"propertyNames":{"maxLength":1}})";
      case 4:
        return fmt::format(R"({{"m{}Properties":{}}})", below(2) == 0 ? "in" : "ax", 1 + below(3));
      case 5:
        return fmt::format(R"({{"properties":{{"{0}":{{"minimum":2}}}},"required":["{0}"]}})",
                           name());
      case 6:
        return fmt::format(R"({{"required":["{}"]}})", name());
      default:
        return fmt::format(R"({{"properties":{{"{}":{{"type":["integer","null"]}}}}}})", name());
    }
  }

  std::string condition() {
    switch (below(6)) {
      case 0:
        return fmt::format(R"({{"if":{},"then":{},"else":{}}})", test(), statement(), statement());
      case 1:
        return fmt::format(R"({{"anyOf":[{},{},{}]}})", test(), statement(), test());
      case 2:
        return fmt::format(R"({{"not":{{"allOf":[{},{}]}}}})", test(), statement());
      default:
        return fmt::format(R"({{"if":{},"then":{}}})", test(), statement());
    }
  }

  std::mt19937 random_;
};

TEST(PropertyCasesTest, RandomKindsAgreeWithAValidator) {
  int valid = 0;
  int alive = 0;
  const auto vocabulary = tiny_vocabulary(6, 100);
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RandomKinds random(seed);
    const std::string schema = random.schema();
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const bool in_order = seed % 3 == 0;
    const Grammar grammar =
        compile_json_schema(vocabulary, schema, json_options(in_order, "compact"), {}, true);
    std::vector<std::string> texts(150);
    std::ranges::generate(texts, [&] { return random.object(in_order); });
    ASSERT_NO_FATAL_FAILURE(expect_texts_are_valid(*grammar, validator, texts, valid));
    if (grammar->start() == Automaton::kDead) {
      continue;
    }
    ++alive;
    ASSERT_EQ(find_dead_end(*grammar, 200), std::nullopt);
    ASSERT_NO_FATAL_FAILURE(expect_walk_is_valid(*grammar, validator, schema, seed));
  }
  EXPECT_GT(valid, 500);
  EXPECT_GT(alive, 100);
}

}  // namespace
}  // namespace specdec
