#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

template <class Make>
std::string joined(size_t count, const Make& make) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < count; ++i) {
    parts.push_back(make(i));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

/// Compiles with few steps allowed: what grows exponentially is refused.
Grammar compile_many(const std::string& schema, uint64_t max_steps = 400'000) {
  return compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"),
                             {.max_alternatives = 1'000, .max_steps = max_steps});
}

TEST(ManyAlternativesTest, OneOfClosedObjectsWithAnOptionalProperty) {
  for (const size_t count : {2, 10, 22, 64, 512}) {
    for (const char* type : {R"("type":"object",)", ""}) {
      const Grammar grammar = compile_many(
          R"({"oneOf":[)" +
              joined(
                  count,
                  [&](size_t i) {
                    return fmt::format(
                        R"({{{}"properties":{{"p{}":{{"type":"integer"}}}},"additionalProperties":false}})",
                        type, i);
                  }) +
              "]}",
          3'000'000);
      EXPECT_TRUE(accepts(*grammar, R"({"p0":1})")) << count;
      EXPECT_TRUE(accepts(*grammar, fmt::format(R"({{"p{}":-7}})", count - 1))) << count;
      for (const char* text : {"{}", "7", R"({"p0":1,"p1":2})", R"({"p0":"x"})", R"({"q":1})"}) {
        EXPECT_FALSE(accepts(*grammar, text)) << count << " " << text;
      }
    }
  }
}

/// Each differs from all others in its own name only, whatever the others share.
TEST(ManyAlternativesTest, OneOfClosedObjectsThatShareNames) {
  const Grammar grammar = compile_many(
      R"({"oneOf":[)" +
          joined(
              512,
              [](size_t i) {
                return fmt::format(
                    R"({{"type":"object","properties":{{"s":{{"type":"string"}},"n":{},"p{}":{{}}}},"additionalProperties":false}})",
                    i % 2 == 0 ? R"({"type":"integer"})" : R"({"type":"null"})", i);
              }) +
          "]}",
      3'000'000);
  for (const char* text :
       {R"({"p7":1})", R"({"s":"x","n":1,"p500":2})", R"({"n":null,"p501":2,"s":"x"})"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text : {"{}", R"({"s":"x"})", R"({"n":1})", R"({"n":null})",
                           R"({"n":1,"p501":2})", R"({"p1":1,"p2":1})", R"({"s":1,"p7":1})"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(ManyAlternativesTest, OneOfClosedObjectsByPatternsOfNames) {
  for (const char* more : {"", R"(,"minProperties":1)", R"(,"properties":{"s":{}})"}) {
    const Grammar grammar = compile_many(
        R"({"oneOf":[)" +
            joined(
                256,
                [&](size_t i) {
                  return fmt::format(
                      R"({{"type":"object","patternProperties":{{"^x{}_":{{"type":"integer"}}}},"additionalProperties":false{}}})",
                      i, more);
                }) +
            "]}",
        3'000'000);
    for (const char* text : {R"({"x7_":1})", R"({"x200_a":1,"x200_b":2})"}) {
      EXPECT_TRUE(accepts(*grammar, text)) << more << text;
    }
    for (const char* text : {"{}", R"({"x7":1})", R"({"x7_":1,"x8_":1})", R"({"x7_":"x"})",
                             R"({"x256_":1})", R"({"s":1})"}) {
      EXPECT_FALSE(accepts(*grammar, text)) << more << text;
    }
  }
}

TEST(ManyAlternativesTest, OneOfByPatternsOfAProperty) {
  for (const char* pattern : {"^k{}_[a-z]+$", "_k{}$"}) {
    const Grammar grammar = compile_many(
        R"({"oneOf":[)" +
        joined(
            128,
            [&](size_t i) {
              return fmt::format(
                  R"({{"type":"object","properties":{{"kind":{{"type":"string","pattern":"{}"}},"p{}":{{"type":"integer"}}}},"required":["kind"]}})",
                  fmt::format(fmt::runtime(pattern), i), i);
            }) +
        "]}");
    const bool first = pattern[0] == '^';
    const auto object = [&](int i, const char* more) {
      return first ? fmt::format(R"({{"kind":"k{}_x"{}}})", i, more)
                   : fmt::format(R"({{"kind":"x_k{}"{}}})", i, more);
    };
    EXPECT_TRUE(accepts(*grammar, object(12, ""))) << pattern;
    EXPECT_TRUE(accepts(*grammar, object(12, R"(,"p12":1,"p1":"x")"))) << pattern;
    EXPECT_FALSE(accepts(*grammar, object(12, R"(,"p12":"x")"))) << pattern;
    EXPECT_FALSE(accepts(*grammar, object(128, ""))) << pattern;
  }
}

/// Patterns tell apart only what must be strings, wherever that is said.
TEST(ManyAlternativesTest, OneOfPatternsAtAnyPlace) {
  const std::vector<std::string> values = {"1", R"("ax")", R"("bx")", R"("ab")", R"("b")", "null"};
  const std::string a = R"("pattern":"^a")";
  const std::string b = R"("pattern":"^b")";
  const std::string text = R"("type":"string")";
  const auto check = [&](const std::string& schema, const std::string& begin,
                         const std::string& end) {
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const Grammar grammar = compile_many(schema);
    for (const std::string& value : values) {
      const std::string whole = begin + value + end;
      EXPECT_EQ(accepts(*grammar, whole), validator.accepts(parse_json(whole, "text")))
          << schema << " " << whole;
    }
  };
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"{" + a + "}", "{" + b + "}"},
           {"{" + text + "," + a + "}", "{" + b + "}"},
           {"{" + text + "," + a + "}", "{" + text + "," + b + "}"},
           {R"({"type":["string","null"],)" + a + "}", R"({"type":["string","null"],)" + b + "}"},
           {"{" + text + R"(,"allOf":[{)" + a + R"(},{"pattern":"x$"}]})",
            R"({"allOf":[{)" + text + "," + b + R"(}],"pattern":"x"})"},
           {R"({"$ref":"#/$defs/a"})", R"({"$ref":"#/$defs/b","minLength":2})"},
           {R"({"enum":["ax","ab","bx",1]})", "{" + text + "," + b + "}"},
           {R"({"enum":["ab","b"],"pattern":"b$"})", "{" + text + "," + a + "}"}}) {
    const std::string both = fmt::format(R"("oneOf":[{},{}])", first, second);
    const std::string defs =
        fmt::format(R"("$defs":{{"a":{{{0},{1}}},"b":{{{0},{2}}}}})", text, a, b);
    check("{" + defs + "," + both + "}", "", "");
    std::string objects;
    for (const std::string& value : {first, second}) {
      objects += fmt::format(
          R"({}{{"type":"object","properties":{{"k":{{"type":"object","properties":{{"v":{}}},"required":["v"]}}}},"required":["k"]}})",
          objects.empty() ? "" : ",", value);
    }
    check("{" + defs + R"(,"oneOf":[)" + objects + "]}", R"({"k":{"v":)", "}}");
  }
}

/// Closed objects at random, whose names, patterns and values overlap: exactly one holds.
TEST(ManyAlternativesTest, OneOfRandomClosedObjects) {
  std::mt19937 random(29);
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  const std::vector<std::string> names = {"a", "b", "ab"};
  const std::vector<std::string> values = {"true", R"({"type":"integer"})", R"({"enum":[1,"x"]})",
                                           R"({"type":"string","pattern":"^x"})",
                                           R"({"type":"string","pattern":"x$"})"};
  const auto members = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> found;
    for (const std::string& key : keys) {
      if (below(2) == 0) {
        found.push_back(fmt::format(R"("{}":{})", key, values[below(5)]));
      }
    }
    return fmt::format("{}", fmt::join(found, ","));
  };
  const auto part = [&] {
    return fmt::format(
        R"({{{}"properties":{{{}}},"patternProperties":{{{}}}{}{}{}}})",
        below(3) > 0 ? R"("type":"object",)" : "", members(names), members({"^b", "b$", "^$"}),
        below(4) > 0 ? R"(,"additionalProperties":false)" : "",
        below(3) == 0 ? fmt::format(R"(,"required":["{}"])", names[below(3)]) : "",
        below(4) == 0 ? fmt::format(R"(,"m{}Properties":1)", below(2) == 0 ? "in" : "ax") : "");
  };
  std::vector<std::string> texts = {"{}", "1", "\"x\""};
  for (const char* key : {"a", "b", "ab", "bb", "", "c"}) {
    for (const char* value : {"1", "\"x\"", "\"xy\"", "null"}) {
      texts.push_back(fmt::format(R"({{"{}":{}}})", key, value));
      texts.push_back(fmt::format(R"({{"a":"x","{0}b":{1}}})", key, value));
      texts.push_back(fmt::format(R"({{"{0}":{1},"abb":1,"bc":"x"}})", key, value));
    }
  }
  int valid = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string schema =
        R"({"oneOf":[)" + joined(2 + below(4), [&](size_t) { return part(); }) + "]}";
    const auto grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"), {}, true);
    const JsonValue value = parse_json(schema, "schema");
    const NaiveValidator validator(value);
    for (const std::string& text : texts) {
      if (text.find(R"("ab":)") != text.rfind(R"("ab":)")) {
        continue;
      }
      const bool expected = validator.accepts(parse_json(text, "text"));
      valid += expected ? 1 : 0;
      ASSERT_EQ(accepts(*grammar, text), expected) << schema << ' ' << text;
    }
  }
  EXPECT_GT(valid, 500);
}

TEST(ManyAlternativesTest, ToolsThatDifferInAConstant) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Grammar grammar = compile_many(
        fmt::format(R"({{"{}":[)", keyword) +
        joined(
            512,
            [](size_t i) {
              return fmt::format(
                  R"({{"type":"object","properties":{{"name":{{"const":"tool_{}"}},"arguments":{{"type":"object","properties":{{"a{}":{{"type":"integer"}}}},"additionalProperties":false}}}},"required":["name","arguments"],"additionalProperties":false}})",
                  i, i % 7);
            }) +
        "]}");
    EXPECT_TRUE(accepts(*grammar, R"({"name":"tool_500","arguments":{"a3":1}})")) << keyword;
    EXPECT_FALSE(accepts(*grammar, R"({"name":"tool_500","arguments":{"a4":1}})")) << keyword;
    EXPECT_FALSE(accepts(*grammar, R"({"name":"tool_512","arguments":{}})")) << keyword;
  }
}

/// Looking at them takes no longer than they are: 300 * 300 * 300 ways lead to one subschema.
TEST(ManyAlternativesTest, OneOfOfManyReferencesInManyReferences) {
  const auto refer = [](const std::string& name) {
    return R"({"type":"object","allOf":[)" +
           joined(300, [&](size_t) { return fmt::format(R"({{"$ref":"#/$defs/{}"}})", name); }) +
           "]}";
  };
  const Grammar grammar =
      compile_many(R"({"oneOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"$defs":{"a":)" + refer("b") +
                   R"(,"b":)" + refer("c") + R"(,"c":)" + refer("d") +
                   R"(,"d":{"type":"object","properties":{"x":{"const":1}},"required":["x"]}}})");
  EXPECT_TRUE(accepts(*grammar, R"({"x":1})"));
  EXPECT_FALSE(accepts(*grammar, R"({"x":2})"));
}

/// Parts that overlap still exclude each other.
TEST(ManyAlternativesTest, OneOfWhosePartsMayShareValues) {
  const Grammar grammar = compile_many(R"({"oneOf":[
      {"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k"]},
      {"type":"object","properties":{"k":{"enum":["a","b"]},"x":{"type":"string"}},"required":["k"]},
      {"type":"object","properties":{"k":{"const":"c"}},"required":["k"]},
      {"enum":["a",{"k":"c"}]}, {"const":"a"}, {"const":"b"}, {"type":"null"}]})");
  for (const char* text :
       {R"({"k":"a","x":1})", R"({"k":"b"})", R"({"k":"c","x":1})", "\"b\"", "null"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
  for (const char* text : {R"({"k":"a"})", R"({"k":"c"})", "\"a\"", "1", R"({"k":"b","x":1})"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(ManyAlternativesTest, ToolsThatDifferBelowAProperty) {
  const Grammar grammar = compile_many(
      R"({"oneOf":[)" +
      joined(
          512,
          [](size_t i) {
            return fmt::format(
                R"({{"type":"object","properties":{{"function":{{"$ref":"#/$defs/f{}"}}}},"required":["function"]}})",
                i);
          }) +
      R"(],"$defs":{)" +
      joined(
          512,
          [](size_t i) {
            return fmt::format(
                R"("f{}":{{"type":"object","properties":{{"name":{{"const":"t{}"}},"x":{{"const":{}}}}},"required":["name"]}})",
                i, i, i % 7);
          }) +
      "}}");
  EXPECT_TRUE(accepts(*grammar, R"({"function":{"name":"t500","x":3}})"));
  EXPECT_TRUE(accepts(*grammar, R"({"function":{"name":"t7"}})"));
  for (const char* text :
       {R"({"function":{"name":"t500","x":4}})", R"({"function":{"name":"t512"}})",
        R"({"function":{}})", "{}", R"({"function":"t1"})"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

/// Random parts that may or may not be told apart by a constant below a property: exactly one
/// holds.
TEST(ManyAlternativesTest, OneOfByConstantsBelowProperties) {
  std::mt19937 random(17);
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  const std::vector<std::string> names = {"k", "/k", "k/k", ""};
  const auto part = [&] {
    std::string value = fmt::format(R"("enum":[{},{}])", below(3), below(3));
    std::string text = "{" + value + "}";
    for (uint32_t depth = 1 + below(2); depth > 0; --depth) {
      const std::string name = names[below(4)];
      text = fmt::format(R"({{{}"properties":{{"{}":{}}}{}}})",
                         below(5) > 0 ? R"("type":"object",)" : "", name, text,
                         below(5) > 0 ? fmt::format(R"(,"required":["{}"])", name) : "");
    }
    return text;
  };
  std::vector<std::string> texts = {"0", "\"a\"", "{}"};
  for (int depth = 0; depth < 2; ++depth) {
    for (size_t i = 0, size = texts.size(); i < size; ++i) {
      for (const std::string& name : names) {
        texts.push_back(fmt::format(R"({{"{}":{}}})", name, texts[i]));
      }
    }
    texts.insert(texts.end(), {"1", "2", R"({"k":1,"/k":{"k":1}})", R"({"k":{"k":1},"/k":1})"});
  }
  int valid = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string schema =
        R"({"oneOf":[)" + joined(2 + below(3), [&](size_t) { return part(); }) + "]}";
    const auto grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"), {}, true);
    const JsonValue value = parse_json(schema, "schema");
    const NaiveValidator validator(value);
    for (const std::string& text : texts) {
      const bool expected = validator.accepts(parse_json(text, "text"));
      valid += expected ? 1 : 0;
      ASSERT_EQ(accepts(*grammar, text), expected) << schema << ' ' << text;
    }
  }
  EXPECT_GT(valid, 500);
}

TEST(ManyAlternativesTest, FiniteSetsOfNumbers) {
  const std::string numbers = joined(1'000, [](size_t i) { return std::to_string(3 * i); });
  const Grammar one_of = compile_many(R"({"enum":[)" + numbers + R"(,0.5,-1e3,"x"]})");
  for (const char* text : {"0", "2997", "2.997e3", "0.50", "-1000", "\"x\"", "-0"}) {
    EXPECT_TRUE(accepts(*one_of, text)) << text;
  }
  for (const char* text : {"1", "2998", "3000", "0.51", "-999", "1e9"}) {
    EXPECT_FALSE(accepts(*one_of, text)) << text;
  }
  EXPECT_EQ(one_of->next(one_of->start(), "-2"), Automaton::kDead);
  const Grammar none_of =
      compile_many(R"({"type":"number","not":{"enum":[)" + numbers + R"(]},"maximum":3001})");
  for (const char* text : {"1", "2998", "0.5", "3001", "-3", "29970e-2"}) {
    EXPECT_TRUE(accepts(*none_of, text)) << text;
  }
  for (const char* text : {"0", "0.0", "2997", "29.97e2", "300", "3002"}) {
    EXPECT_FALSE(accepts(*none_of, text)) << text;
  }
  const Grammar whole = compile_many(
      R"({"type":"integer","minimum":0,"maximum":6,"not":{"enum":[0,1,2,3,5,9,100]}})");
  EXPECT_TRUE(accepts(*whole, "4"));
  EXPECT_TRUE(accepts(*whole, "6.0"));
  for (const char* text : {"5", "1", "2"}) {
    EXPECT_FALSE(accepts(*whole, text)) << text;
  }
}

/// In the schema's order their whole numbers have neither point nor exponent.
TEST(ManyAlternativesTest, WholeNumbersOfFiniteSetsArePlain) {
  const auto compile = [](const char* schema, bool schema_order) {
    return compile_json_schema(empty_vocabulary(), schema, json_options(schema_order, "compact"));
  };
  for (const char* schema : {R"({"enum":[1,2,30]})", R"({"enum":[1,1.5,30]})", R"({"const":1})",
                             R"({"anyOf":[{"const":1},{"const":30}]})", R"({"const":1.0})"}) {
    const Grammar plain = compile(schema, true);
    EXPECT_TRUE(accepts(*plain, "1")) << schema;
    for (const char* text : {"1.0", "1.000", "1e0", "10e-1", "3e1", "30.0"}) {
      EXPECT_EQ(plain->next(plain->start(), text), Automaton::kDead) << schema << " " << text;
    }
    EXPECT_TRUE(accepts(*compile(schema, false), "10e-1")) << schema;
  }
  const Grammar mixed = compile(R"({"enum":[1,1.5,-0.25,"a"]})", true);
  for (const char* text : {"1", "1.5", "1.50", "-0.25", "\"a\""}) {
    EXPECT_TRUE(accepts(*mixed, text)) << text;
  }
  const Grammar items = compile(
      R"({"type":"array","items":{"enum":[1,1.5,2]},"uniqueItems":true,"minItems":3})", true);
  EXPECT_TRUE(accepts(*items, "[1.5,1,2]"));
  EXPECT_EQ(items->next(items->start(), "[1.5,1,1"), Automaton::kDead);
}

}  // namespace
}  // namespace specdec
