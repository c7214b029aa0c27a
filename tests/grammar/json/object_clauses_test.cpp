// Many conditions on an object's properties: each is looked at where its names come.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
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

Grammar compile_conditions(const std::string& schema, bool schema_order = false) {
  return compile_json_schema(empty_vocabulary(), schema, json_options(schema_order, "compact"),
                             {.max_alternatives = 1'000, .max_steps = 400'000});
}

template <class Make>
std::string conditions(size_t count, const Make& make) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(make(i));
  }
  return fmt::format(R"({{"type":"object","allOf":[{}]}})", fmt::join(all, ","));
}

TEST(ObjectClausesTest, ManyConditionsOnPresence) {
  for (const size_t count : {14, 30, 512}) {
    const Grammar needs = compile_conditions(conditions(count, [](size_t i) {
      return fmt::format(R"({{"dependentRequired":{{"a{}":["b{}"]}}}})", i, i);
    }));
    EXPECT_TRUE(accepts(*needs, R"({})"));
    EXPECT_TRUE(accepts(*needs, R"({"a3":1,"x":2,"b3":1,"b7":0})")) << count;
    EXPECT_TRUE(accepts(*needs, R"({"b3":1,"a3":1})")) << count;
    EXPECT_FALSE(accepts(*needs, R"({"a3":1,"b4":1})")) << count;
    const Grammar excludes = compile_conditions(conditions(count, [](size_t i) {
      return fmt::format(R"({{"not":{{"required":["a{}","b{}"]}}}})", i, i);
    }));
    EXPECT_TRUE(accepts(*excludes, R"({"a3":1,"b4":2})")) << count;
    EXPECT_EQ(excludes->next(excludes->start(), R"({"a3":1,"b3")"), Automaton::kDead) << count;
  }
}

TEST(ObjectClausesTest, ManyConditionsOnValues) {
  for (const size_t count : {14, 30, 512}) {
    for (const bool order : {false, true}) {
      const Grammar apart = compile_conditions(
          conditions(
              count,
              [](size_t i) {
                return fmt::format(
                    R"({{"if":{{"properties":{{"a{0}":{{"const":1}}}},"required":["a{0}"]}},"then":{{"required":["b{0}"]}},"else":{{"properties":{{"b{0}":false}}}}}})",
                    i);
              }),
          order);
      EXPECT_TRUE(accepts(*apart, R"({"a2":1,"b2":1,"x":2})")) << count;
      EXPECT_TRUE(accepts(*apart, R"({"a2":2})")) << count;
      EXPECT_FALSE(accepts(*apart, R"({"a2":1})")) << count;
      EXPECT_FALSE(accepts(*apart, R"({"a2":2,"b2":1})")) << count;
    }
    const Grammar kinds = compile_conditions(conditions(count, [](size_t i) {
      return fmt::format(
          R"({{"if":{{"properties":{{"kind":{{"const":"k{0}"}}}},"required":["kind"]}},"then":{{"required":["v{0}"],"properties":{{"v{0}":{{"type":"integer"}}}}}}}})",
          i);
    }));
    EXPECT_TRUE(accepts(*kinds, R"({"kind":"k5","v5":1})")) << count;
    EXPECT_TRUE(accepts(*kinds, R"({"v5":1,"kind":"k5"})")) << count;
    EXPECT_TRUE(accepts(*kinds, R"({"v5":"x","kind":"other"})")) << count;
    EXPECT_FALSE(accepts(*kinds, R"({"kind":"k5","v6":1})")) << count;
    EXPECT_EQ(kinds->next(kinds->start(), R"({"v5":"x","kind":"k5")"), Automaton::kDead) << count;
  }
}

/// A constant of many that others depend on is told from all others at once.
TEST(ObjectClausesTest, ManyConditionsOnOneConstant) {
  for (const bool required : {false, true}) {
    const std::string kinds = conditions(512, [&](size_t i) {
      return fmt::format(
          R"({{"if":{{"properties":{{"kind":{{"enum":["k{0}",{0}]}}}}{2}}},"then":{{"required":["v{1}"],"properties":{{"v{0}":{{"type":"integer"}}}}}}}})",
          i, i % 100, required ? "" : R"(,"required":["kind"])");
    });
    const Grammar grammar =
        compile_conditions(required ? R"({"required":["kind"],)" + kinds.substr(1) : kinds, false);
    EXPECT_EQ(accepts(*grammar, R"({"x":1})"), !required);
    for (const char* text :
         {R"({"kind":"k203","v3":"x","v203":1})", R"({"v3":1,"kind":3})", R"({"kind":512})",
          R"({"kind":"k7","v7":1})", R"({"v3":"x","kind":203})"}) {
      EXPECT_TRUE(accepts(*grammar, text)) << text;
    }
    for (const char* text : {R"({"kind":"k203","v203":1})", R"({"kind":203,"v3":1,"v203":"x"})",
                             R"({"v3":"x","kind":3})", R"({"kind":"k7","v8":1})"}) {
      EXPECT_FALSE(accepts(*grammar, text)) << text;
    }
    EXPECT_EQ(grammar->next(grammar->start(), R"({"v3":"x","kind":"k3")"), Automaton::kDead);
  }
}

/// Each fewest number of names that they need counts.
TEST(ObjectClausesTest, ConditionsApartShareTheRoomThatIsLeft) {
  const std::string needs = conditions(100, [](size_t i) {
    return fmt::format(R"({{"dependentRequired":{{"a{}":["b{}","c{}"]}}}})", i, i, i);
  });
  const Grammar grammar = compile_conditions(R"({"maxProperties":6,)" + needs.substr(1));
  EXPECT_TRUE(accepts(*grammar, R"({"a1":1,"a2":1,"b2":1,"c1":1,"c2":1,"b1":1})"));
  const StateId two = grammar->next(grammar->start(), R"({"a1":1,"a2":1)");
  ASSERT_NE(two, Automaton::kDead);
  EXPECT_EQ(grammar->next(two, R"(,"a3")"), Automaton::kDead);
  EXPECT_EQ(grammar->next(two, R"(,"x")"), Automaton::kDead);
  EXPECT_NE(grammar->next(two, R"(,"b2")"), Automaton::kDead);
}

/// Other names may make up the number, or must not: then each pair gives one.
TEST(ObjectClausesTest, ConditionsThatLeaveEnoughProperties) {
  const auto pairs = [](size_t count, bool closed, const std::string& bounds) {
    std::string names;
    for (size_t i = 0; i < count; ++i) {
      names += fmt::format(R"({}"a{}":{{}},"b{}":{{}})", i == 0 ? "" : ",", i, i);
    }
    const std::string excluded = conditions(count, [](size_t i) {
      return fmt::format(R"({{"not":{{"required":["a{}","b{}"]}}}})", i, i);
    });
    return fmt::format(R"({{"properties":{{{}}}{},{},)", names,
                       closed ? R"(,"additionalProperties":false)" : "", bounds) +
           excluded.substr(1);
  };
  for (const size_t count : {14, 60}) {
    const Grammar open = compile_conditions(pairs(count, false, R"("minProperties":3)"));
    EXPECT_TRUE(accepts(*open, R"({"a1":1,"b2":1,"x":1})")) << count;
    EXPECT_TRUE(accepts(*open, R"({"x":1,"y":1,"z":1,"b3":1})")) << count;
    EXPECT_FALSE(accepts(*open, R"({"a1":1,"b2":1})")) << count;
    EXPECT_FALSE(accepts(*open, R"({"a1":1,"b2":1,"b1":1})")) << count;
    const Grammar all =
        compile_conditions(pairs(count, true, fmt::format(R"("minProperties":{})", count)));
    StateId state = all->next(all->start(), "{");
    for (size_t i = 0; i < count; ++i) {
      EXPECT_FALSE(all->is_complete(all->next(state, "}")));
      state = all->next(state, fmt::format(R"({}"{}{}":1)", i == 0 ? "" : ",", "ab"[i % 2], i));
      ASSERT_NE(state, Automaton::kDead);
    }
    EXPECT_TRUE(all->is_complete(all->next(state, "}")));
    EXPECT_EQ(all->next(state, ","), Automaton::kDead);
    EXPECT_THROW(
        compile_conditions(pairs(count, true, fmt::format(R"("minProperties":{})", count + 1))),
        GrammarError);
    const Grammar exactly =
        compile_conditions(pairs(count, true, R"("minProperties":2,"maxProperties":2)"));
    EXPECT_TRUE(accepts(*exactly, R"({"a1":1,"b2":1})")) << count;
    EXPECT_FALSE(accepts(*exactly, R"({"a1":1,"b1":1})")) << count;
    EXPECT_FALSE(accepts(*exactly, R"({"a1":1,"b2":1,"a3":1})")) << count;
    EXPECT_FALSE(accepts(*exactly, R"({"a1":1})")) << count;
  }
}

/// A property of a pattern: one that conditions speak of may be it, or another.
TEST(ObjectClausesTest, ConditionsBesideAPropertyOfAPattern) {
  for (const size_t count : {14, 100}) {
    const std::string excluded = conditions(count, [](size_t i) {
      return fmt::format(R"({{"not":{{"required":["a{}","b{}"]}}}})", i, i);
    });
    const Grammar grammar = compile_conditions(
        R"({"minProperties":2,"not":{"patternProperties":{"^a|x$":{"type":"integer"}}},)" +
        excluded.substr(1));
    for (const char* text : {R"({"a1":"s","b2":1})", R"({"b1":1,"x":null})",
                             R"({"a1":1,"a2":1,"ax":"s"})", R"({"b1":"s","c":1,"a2":true})"}) {
      EXPECT_TRUE(accepts(*grammar, text)) << count << text;
    }
    for (const char* text : {R"({"a1":1,"b2":1})", R"({"b1":"s","c":1})", R"({"x":"s"})",
                             R"({"a1":"s","b1":1})", "{}"}) {
      EXPECT_FALSE(accepts(*grammar, text)) << count << text;
    }
    EXPECT_EQ(grammar->next(grammar->start(), R"({"b1":1,"a1")"), Automaton::kDead);
    EXPECT_NE(grammar->next(grammar->start(), R"({"b1":1,"a2":1,"b3")"), Automaton::kDead);
  }
}

/// Names that come in threes only: no number of them is between the bounds.
TEST(ObjectClausesTest, ConditionsThatLeaveGapsInTheNumber) {
  const auto threes = [](const std::string& bounds) {
    std::string all;
    std::string names;
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
      names +=
          fmt::format(R"({0}"{1}1":{{}},"{1}2":{{}},"{1}3":{{}})", names.empty() ? "" : ",", name);
      all += fmt::format(
          R"({0}{{"dependentRequired":{{"{1}1":["{1}2"],"{1}2":["{1}3"],"{1}3":["{1}1"]}}}})",
          all.empty() ? "" : ",", name);
    }
    return fmt::format(
        R"({{"type":"object","properties":{{{}}},"additionalProperties":false,"allOf":[{}],{}}})",
        names, all, bounds);
  };
  EXPECT_THROW(compile_conditions(threes(R"("minProperties":4,"maxProperties":5)")), GrammarError);
  EXPECT_THROW(compile_conditions(threes(R"("minProperties":25)")), GrammarError);
  const Grammar six = compile_conditions(threes(R"("minProperties":4,"maxProperties":8)"));
  EXPECT_TRUE(accepts(*six, R"({"a1":1,"b2":1,"a2":1,"b3":1,"a3":1,"b1":1})"));
  EXPECT_FALSE(accepts(*six, R"({"a1":1,"a2":1,"a3":1})"));
  EXPECT_EQ(six->next(six->start(), R"({"a1":1,"b2":1,"c1")"), Automaton::kDead);
}

/// What holds whatever comes is forgotten, so that what it depended on makes no difference.
TEST(ObjectClausesTest, WhatIsSettledMakesNoDifference) {
  const auto after = [](const Grammar& grammar, const std::string& text) {
    const StateId state = grammar->next(grammar->start(), text);
    EXPECT_NE(state, Automaton::kDead) << text;
    return state;
  };
  const std::string conditions_on_kinds = conditions(70, [](size_t i) {
    return fmt::format(
        R"({{"if":{{"properties":{{"kind{0}":{{"const":1}}}},"required":["kind{0}"]}},"then":{{"required":["b{0}"]}}}})",
        i);
  });
  const Grammar any = compile_conditions(conditions_on_kinds);
  EXPECT_EQ(after(any, R"({"b3":1,"kind3":1,)"), after(any, R"({"b3":1,"kind3":2,)"));
  EXPECT_EQ(after(any, R"({"kind3":1,"b3":1,)"), after(any, R"({"kind3":2,"b3":1,)"));
  EXPECT_EQ(after(any, R"({"kind3":1,"b3":1,)"), after(any, R"({"b3":1,"kind3":1,)"));
  EXPECT_NE(after(any, R"({"kind3":1,)"), after(any, R"({"kind3":2,)"));
  EXPECT_NE(after(any, R"({"kind3":1,"b4":1,)"), after(any, R"({"kind3":2,"b4":1,)"));
  // With the schema's order, a name also settles what it skips.
  std::string names;
  for (int i = 0; i < 70; ++i) {
    names += fmt::format(R"("kind{0}":true,"b{0}":true,)", i);
  }
  const Grammar ordered = compile_conditions(
      fmt::format(R"({{"properties":{{{}"z":true}},)", names) + conditions_on_kinds.substr(1),
      true);
  EXPECT_EQ(after(ordered, R"({"kind3":1,"b3":1,"z":1,)"), after(ordered, R"({"kind3":2,"z":1,)"));
  EXPECT_EQ(after(ordered, R"({"b3":1,"z":1,)"), after(ordered, R"({"z":1,)"));
}

/// Each name is looked at with those that share conditions with it, of 512.
TEST(ObjectClausesTest, ManyConditionsInAnyOrder) {
  const size_t count = 512;
  const Grammar grammar = compile_conditions(conditions(count, [](size_t i) {
    return fmt::format(
        R"({{"if":{{"properties":{{"a{0}":{{"const":1}}}},"required":["a{0}"]}},"then":{{"required":["b{0}"],"properties":{{"c{0}":false}}}}}})",
        i);
  }));
  std::vector<std::pair<char, size_t>> names;
  for (size_t i = 0; i < count; ++i) {
    names.emplace_back('a', i);
    names.emplace_back('b', i);
  }
  std::mt19937 random(3);
  std::shuffle(names.begin(), names.end(), random);
  StateId state = grammar->next(grammar->start(), R"({"x":1)");
  std::set<size_t> needed;
  std::set<size_t> there;
  for (const auto& [letter, i] : std::span(names).first(200)) {
    state = grammar->next(state, fmt::format(R"(,"{}{}":1)", letter, i));
    ASSERT_NE(state, Automaton::kDead) << letter << i;
    (letter == 'a' ? needed : there).insert(i);
    EXPECT_EQ(grammar->next(state, fmt::format(R"(,"c{}")", i)) == Automaton::kDead,
              needed.contains(i));
    ASSERT_EQ(grammar->is_complete(grammar->next(state, "}")),
              std::ranges::includes(there, needed));
  }
}

/// A name that can be told apart from all others by itself still uses up room, and may end the time
/// of others: then all conditions are looked at.
TEST(ObjectClausesTest, ConditionsApartThatStillDependOnEachOther) {
  const std::string needs = conditions(70, [](size_t i) {
    return fmt::format(R"({{"dependentRequired":{{"a{0}":["b{0}","c{0}"]}}}})", i);
  });
  const Grammar roomy = compile_conditions(R"({"maxProperties":4,)" + needs.substr(1));
  const StateId one = roomy->next(roomy->start(), R"({"a1":1)");
  EXPECT_NE(roomy->next(one, R"(,"b2")"), Automaton::kDead);
  EXPECT_NE(roomy->next(one, R"(,"x")"), Automaton::kDead);
  EXPECT_EQ(roomy->next(one, R"(,"a2")"), Automaton::kDead);
  EXPECT_EQ(roomy->next(one, R"(,"b2":1,"c2")"), Automaton::kDead);
  EXPECT_TRUE(accepts(*roomy, R"({"a1":1,"b2":1,"c1":1,"b1":1})"));
  const Grammar required =
      compile_conditions(R"({"maxProperties":4,"required":["x","y"],)" + needs.substr(1));
  EXPECT_EQ(required->next(required->start(), R"({"a1")"), Automaton::kDead);
  EXPECT_TRUE(accepts(*required, R"({"b1":1,"x":1,"y":2,"z":3})"));
  const Grammar ordered = compile_conditions(
      R"({"properties":{"a1":true,"b1":true,"c1":true,"a2":true,"b2":true,"c2":true},)" +
          needs.substr(1),
      true);
  const StateId first = ordered->next(ordered->start(), R"({"a1":1)");
  EXPECT_NE(ordered->next(first, R"(,"b1")"), Automaton::kDead);
  EXPECT_EQ(ordered->next(first, R"(,"a2")"), Automaton::kDead);
  EXPECT_EQ(ordered->next(first, R"(,"b2")"), Automaton::kDead);
  EXPECT_EQ(ordered->next(first, R"(,"x")"), Automaton::kDead);
  EXPECT_TRUE(accepts(*ordered, R"({"a1":1,"b1":1,"c1":1,"b2":1})"));
}

/// In draft 4 an integer is how a number is written: 1.0 is none.
TEST(ObjectClausesTest, ConstantsThatAreWrittenWhole) {
  const std::string any = conditions(70, [](size_t i) {
    return fmt::format(
        R"({{"anyOf":[{{"properties":{{"a{0}":{{"type":"integer","enum":[1,"x"]}}}}}},{{"required":["b{0}"]}}]}})",
        i);
  });
  const Grammar grammar = compile_conditions(
      R"({"$schema":"http://json-schema.org/draft-04/schema#",)" + any.substr(1));
  EXPECT_TRUE(accepts(*grammar, R"({"a3":1})"));
  EXPECT_TRUE(accepts(*grammar, R"({"a3":1.0,"b3":2})"));
  EXPECT_FALSE(accepts(*grammar, R"({"a3":1.0})"));
  EXPECT_FALSE(accepts(*grammar, R"({"a3":"x"})"));
}

/// Values that refer to each other in more ways than can be followed one by one: an error, at once.
TEST(ObjectClausesTest, ValuesOfManyReferences) {
  std::string values;
  for (int i = 0; i < 30; ++i) {
    values += fmt::format(
        R"("v{0}":{{"anyOf":[{{"$ref":"#/$defs/v{1}"}},{{"const":"c{0}"}},{{"allOf":[{{"$ref":"#/$defs/v{1}"}},{{"type":"string"}}]}}]}},)",
        i, i + 1);
  }
  const std::string kinds = conditions(70, [](size_t i) {
    return fmt::format(
        R"({{"if":{{"properties":{{"kind":{{"$ref":"#/$defs/v{0}"}}}},"required":["kind"]}},"then":{{"required":["b{0}"]}}}})",
        i % 25);
  });
  EXPECT_THROW(
      compile_conditions(R"({"$defs":{)" + values + R"("v30":{"const":"end"}},)" + kinds.substr(1)),
      GrammarError);
}

/// Conditions on a few names, of all kinds, that depend on each other.
class RandomConditions {
 public:
  explicit RandomConditions(uint32_t seed) : random_(seed) {}

  std::string schema() {
    std::vector<std::string> properties;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      properties.push_back(fmt::format(R"("{}":{{"enum":[1,2,"x",true]}})", name));
    }
    std::vector<std::string> all;
    for (uint32_t count = 7 + below(4); count > 0; --count) {
      all.push_back(condition());
    }
    for (const char* pattern : {"^[pa]", "q$"}) {
      if (below(4) == 0) {
        all.push_back(
            fmt::format(R"({{"not":{{"patternProperties":{{"{}":{{"enum":[{},{}]}}}}}}}})", pattern,
                        value(), value()));
      }
    }
    return fmt::format(
        R"({{"type":"object","properties":{{{}}},"$defs":{{"one":{{"type":"number","minimum":1,"maximum":1}}}},"allOf":[{}]{}{}{}{}}})",
        fmt::join(properties, ","), fmt::join(all, ","),
        below(2) == 0 ? R"(,"additionalProperties":false)" : "",
        below(4) == 0 ? R"(,"required":["c"])" : "",
        below(3) == 0 ? fmt::format(R"(,"maxProperties":{})", 2 + below(3)) : "",
        below(3) == 0 ? fmt::format(R"(,"minProperties":{})", 1 + below(5)) : "");
  }

  /// An object of these names and perhaps others, in random order.
  std::string object(bool in_order) {
    std::vector<std::string> members;
    for (const char* name : {"a", "b", "c", "d", "e", "f", "p", "pq"}) {
      if (below(2) == 0) {
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
  std::string name() { return std::string(1, static_cast<char>('a' + below(6))); }
  std::string value() { return std::vector<std::string>{"1", "2", R"("x")", "true"}[below(4)]; }

  std::string statement() {
    switch (below(7)) {
      case 0:
        return fmt::format(R"({{"required":["{}"]}})", name());
      case 1:
        return fmt::format(R"({{"properties":{{"{}":{{"type":["boolean","null"]}}}}}})", name());
      case 2:
        return fmt::format(
            R"({{"properties":{{"{0}":{{"not":{{"enum":[{1},{2}]}}}}}},"required":["{0}"]}})",
            name(), value(), value());
      case 3:
        return fmt::format(
            R"({{"properties":{{"{}":{{"type":"number","minimum":{}}},"p":{{"$ref":"#/$defs/one"}}}}}})",
            name(), 1 + below(2));
      case 4:
        return fmt::format(R"({{"properties":{{"{0}":{{"const":{1}}}}},"required":["{0}"]}})",
                           name(), value());
      case 5:
        return fmt::format(R"({{"properties":{{"{}":{{"type":"integer"}}}}}})", name());
      default:
        return fmt::format(R"({{"properties":{{"{}":false}}}})", name());
    }
  }

  std::string condition() {
    switch (below(6)) {
      case 0:
        return fmt::format(R"({{"if":{},"then":{}}})", statement(), statement());
      case 1:
        return fmt::format(R"({{"if":{},"then":{},"else":{}}})", statement(), statement(),
                           statement());
      case 2:
        return fmt::format(R"({{"dependentRequired":{{"{}":["{}"]}}}})", name(), name());
      case 3:
        return fmt::format(R"({{"not":{{"required":["{}","{}"]}}}})", name(), name());
      case 4:
        return fmt::format(R"({{"anyOf":[{},{},{}]}})", statement(), statement(), statement());
      default:
        return fmt::format(R"({{"dependentSchemas":{{"{}":{}}}}})", name(), statement());
    }
  }

  std::mt19937 random_;
};

TEST(ObjectClausesTest, RandomConditionsAgreeWithAValidator) {
  int valid = 0;
  int alive = 0;
  const auto vocabulary = tiny_vocabulary(6, 100);
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RandomConditions random(seed);
    const std::string schema = random.schema();
    SCOPED_TRACE(fmt::format("{} seed {}", schema, seed));
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const bool in_order = seed % 3 == 0;
    const Grammar grammar =
        compile_json_schema(vocabulary, schema, json_options(in_order, "compact"), {}, true);
    std::vector<std::string> texts(200);
    std::ranges::generate(texts, [&] { return random.object(in_order); });
    ASSERT_NO_FATAL_FAILURE(expect_texts_are_valid(*grammar, validator, texts, valid));
    if (grammar->start() == Automaton::kDead) {
      continue;
    }
    ++alive;
    ASSERT_EQ(find_dead_end(*grammar, 250), std::nullopt);
    ASSERT_NO_FATAL_FAILURE(expect_walk_is_valid(*grammar, validator, schema, seed));
  }
  EXPECT_GT(valid, 500);
  EXPECT_GT(alive, 80);
}

/// What cannot be met is refused, and conditions may need each other.
TEST(ObjectClausesTest, ConditionsThatNeedEachOther) {
  const auto chain = [](size_t count, const std::string& end) {
    return R"({"type":"object","required":["a0"],"allOf":[)" +
           conditions(count,
                      [](size_t i) {
                        return fmt::format(R"({{"dependentRequired":{{"a{}":["a{}"]}}}})", i,
                                           i + 1);
                      }) +
           end + "]}";
  };
  const Grammar grammar = compile_conditions(chain(20, ""));
  StateId state = grammar->next(grammar->start(), "{");
  for (int i = 0; i <= 20; ++i) {
    EXPECT_FALSE(grammar->is_complete(grammar->next(state, "}")));
    state = grammar->next(state, fmt::format(R"({}"a{}":0)", i == 0 ? "" : ",", 20 - i));
    ASSERT_NE(state, Automaton::kDead);
  }
  EXPECT_TRUE(grammar->is_complete(grammar->next(state, "}")));
  EXPECT_THROW(compile_conditions(chain(20, R"(,{"properties":{"a20":false}})")), GrammarError);
  EXPECT_THROW(compile_conditions(chain(20, R"(,{"maxProperties":20})")), GrammarError);
}

}  // namespace
}  // namespace specdec
