#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

Grammar compile_items(const std::string& schema, bool allow_empty = false,
                      const std::shared_ptr<GrammarVocabulary>& vocabulary = empty_vocabulary()) {
  return compile_json_schema(vocabulary, schema, json_options(false, "compact"), {}, allow_empty);
}

bool begins(const CompiledGrammar& grammar, std::string_view text) {
  return grammar.next(grammar.start(), text) != Automaton::kDead;
}

void expect_texts(const std::string& schema, const std::vector<std::string>& valid,
                  const std::vector<std::string>& dead) {
  const Grammar grammar = compile_items(schema);
  for (const std::string& text : valid) {
    EXPECT_TRUE(accepts(*grammar, text)) << schema << " " << text;
  }
  for (const std::string& text : dead) {
    EXPECT_FALSE(begins(*grammar, text)) << schema << " " << text;
  }
}

bool is_satisfiable(const std::string& schema) {
  return compile_items(schema, true)->start() != Automaton::kDead;
}

// ---- Enough different values --------------------------------------------------------------------

TEST(UniqueItemsTest, LaterItemsKeepTheirValues) {
  expect_texts(
      R"({"type":"array","prefixItems":[{"enum":[1,2]},{"const":1}],"uniqueItems":true,"minItems":2,"items":false})",
      {"[2,1]"}, {"[1", "[2,1,"});
  expect_texts(
      R"({"type":"array","prefixItems":[{"type":"string"},{"const":"a"},{"enum":["a","b"]}],"uniqueItems":true,"minItems":3,"items":false})",
      {R"(["x","a","b"])"}, {R"(["a")", R"(["b")"});
}

TEST(UniqueItemsTest, ContainsCountsDifferentValues) {
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","items":{"type":"integer"},"contains":{"const":1},"minContains":2,"uniqueItems":true})"));
  expect_texts(
      R"({"type":"array","items":{"enum":[1,2,3]},"contains":{"const":1},"maxContains":1,"minItems":3,"uniqueItems":true})",
      {"[1,2,3]", "[3,2,1]"}, {"[1,1", "[1,2,3,"});
  expect_texts(
      R"({"type":"array","items":{"enum":[1,2,3,4]},"contains":{"enum":[1,2]},"maxContains":1,"minItems":3,"uniqueItems":true})",
      {"[1,3,4]", "[3,2,4]"}, {"[1,2", "[3,1,2", "[3,4]"});
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","items":{"enum":[1,2,3,4]},"contains":{"enum":[1,2]},"maxContains":1,"minItems":4,"uniqueItems":true})"));
}

/// A `not` says that not all items after the first ones are of a kind: only those after them count.
TEST(UniqueItemsTest, OneOfTheLaterItemsIsAnother) {
  const std::string other =
      R"({"type":"array","uniqueItems":true,"prefixItems":[{"enum":[1,2,"x"]},true],)";
  const std::string not_numbers = R"("not":{"prefixItems":[true,true],"items":{"type":"number"}})";
  expect_texts(other + not_numbers + "}", {R"([1,"a","b"])", R"(["x",1,2,[],3])"},
               {"[1,2]", "[1,2,3]", R"([1,"x",1,)", R"([1,"x","x")"});
  expect_texts(other + R"("items":{"enum":[1,2,"x"]},)" + not_numbers + "}",
               {R"([1,2,"x"])", R"([2,3,1,"x"])"}, {R"(["x",)", R"([1,"x",)", R"([2,3,1])"});
  expect_texts(other + R"("maxItems":3,)" + not_numbers + "}", {R"([1,2,"a"])"},
               {"[1,2,3,", R"([1,2,"a",)"});
  EXPECT_FALSE(is_satisfiable(other + R"("maxItems":2,)" + not_numbers + "}"));
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","uniqueItems":true,"prefixItems":[{"const":"x"}],"items":{"enum":["x",1]},"not":{"prefixItems":[true],"items":{"const":1}}})"));
}

/// With `contains`, or more `prefixItems`, that would be more than one kind of counting.
TEST(UniqueItemsTest, WhatCountsInTwoWaysIsRefusedAtOnce) {
  const std::string one = R"("not":{"prefixItems":[true],"items":{"type":"number"}})";
  for (const char* more :
       {R"("contains":{"const":1},)", R"("prefixItems":[true,{"type":"string"}],)"}) {
    try {
      compile_items(R"({"properties":{"p":{"type":"array","uniqueItems":true,)" +
                    std::string(more) + one + "}}}");
      FAIL() << more;
    } catch (const GrammarError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("#/properties/p: `uniqueItems`")) << more;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("leave out one of them")) << more;
    }
  }
}

TEST(UniqueItemsTest, AlternativesThatOverlapCountOnce) {
  const std::string items =
      R"("items":{"anyOf":[{"enum":[1,2]},{"type":"integer","minimum":1,"maximum":2}]})";
  EXPECT_FALSE(
      is_satisfiable(R"({"type":"array",)" + items + R"(,"uniqueItems":true,"minItems":3})"));
  EXPECT_TRUE(
      is_satisfiable(R"({"type":"array",)" + items + R"(,"uniqueItems":true,"minItems":2})"));
}

TEST(UniqueItemsTest, ListsOfBooleanPairs) {
  expect_texts(
      R"({"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2,"uniqueItems":true},"uniqueItems":true,"minItems":2})",
      {"[[true,false],[false,true]]"},
      {"[[true,true", "[[true,false],[t", "[[true,false],[false,true],"});
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2,"uniqueItems":true},"uniqueItems":true,"minItems":3})"));
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":1},"uniqueItems":true,"minItems":3})"));
}

TEST(UniqueItemsTest, DeepValuesAreCounted) {
  std::string item = "1";
  for (int i = 0; i < 20; ++i) {
    item = R"({"a":)" + item + "}";
  }
  EXPECT_FALSE(is_satisfiable(R"({"type":"array","items":{"const":)" + item +
                              R"(},"uniqueItems":true,"minItems":2})"));
}

TEST(UniqueItemsTest, ListsOfDifferentItemsInLists) {
  const auto lists = [](const std::string& items, const std::string& more = "") {
    return R"({"type":"array","uniqueItems":true)" + more +
           R"(,"items":{"type":"array","uniqueItems":true,"items":)" + items +
           R"(,"minItems":3,"maxItems":3}})";
  };
  expect_texts(lists(R"({"type":"integer","minimum":1,"maximum":3})"),
               {"[[1,2,3]]", "[[3,2,1],[1,2,3]]", "[]"}, {"[[1,1", "[[1,2,3],[1,2,3", "[[1,2]"});
  const std::string letters = R"({"enum":["a","b","c"]})";
  expect_texts(lists(letters, R"(,"minItems":3)"),
               {R"([["a","b","c"],["a","c","b"],["c","b","a"]])"}, {R"([["a","b","c"]])"});
  EXPECT_TRUE(is_satisfiable(lists(letters, R"(,"minItems":6)")));
  EXPECT_FALSE(is_satisfiable(lists(letters, R"(,"minItems":7)")));
}

TEST(UniqueItemsTest, ContainsMoreThanThereIsRoomFor) {
  const std::string many = R"(,"contains":{"type":"integer"},"minContains":1000000000000})";
  EXPECT_FALSE(is_satisfiable(R"({"type":"array","uniqueItems":true,"maxItems":5)" + many));
  EXPECT_THROW(is_satisfiable(R"({"type":"array","uniqueItems":true)" + many), GrammarError);
}

/// The deepest lists that are told apart, and deeper ones.
TEST(UniqueItemsTest, DeepLists) {
  const auto pairs = [](size_t depth) {
    std::string item = R"({"const":1})";
    for (size_t i = 0; i < depth; ++i) {
      item = R"({"type":"array","items":)" + item + R"(,"minItems":1,"maxItems":1})";
    }
    return R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"anyOf":[{"const":1},)" +
           item + "]}}";
  };
  EXPECT_TRUE(is_satisfiable(pairs(100)));
  EXPECT_TRUE(is_satisfiable(pairs(300)));
  expect_texts(
      R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"type":"array","contains":{"const":[[[[[[1]]]]]]}}})",
      {"[[[[[[[[1]]]]]]],[[[[[[[1]]]]]],2]]"}, {"[[]", "[[1]"});
}

// ---- Items in progress
// ---------------------------------------------------------------------------

TEST(UniqueItemsTest, BeginningsThatOnlyOldValuesHave) {
  expect_texts(R"({"type":"array","items":{"enum":["a","ab","b"]},"uniqueItems":true})",
               {R"(["a","ab","b"])"}, {R"(["a","ab","a)", R"(["a","b","a")", R"(["a","b","ab",)"});
  expect_texts(
      R"({"type":"array","items":{"type":"number","minimum":0,"maximum":0.5,"multipleOf":0.25},"uniqueItems":true})",
      {"[0,0.25,0.5]", "[0.50,0.25,0e7]"}, {"[0,0.0]", "[0.25,0.5,0.5", "[0.5,5e"});
  expect_texts(
      R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"},"on":{"type":"boolean"}},"required":["id","on"],"additionalProperties":false},"uniqueItems":true})",
      {R"([{"id":1,"on":true},{"on":false,"id":1},{"id":12,"on":true}])"},
      {R"([{"id":1,"on":true},{"on":false,"id":1},{"id":1,)",
       R"([{"id":1,"on":true},{"on":true,"id":1)"
       "}"});
}

TEST(UniqueItemsTest, MaxLengthLeavesNoRoom) {
  expect_texts(R"({"type":"array","items":{"type":"string","maxLength":2},"uniqueItems":true})",
               {R"(["ab","a"])"}, {R"(["ab","ab)", R"(["ab","\u0061b)"});
}

TEST(UniqueItemsTest, NumbersOfAnySize) {
  expect_texts(R"({"type":"array","items":{"type":"number"},"uniqueItems":true})",
               {"[1e600,1,10e600]", "[1e99999999999,2e99999999999]"},
               {"[1e600,10e599,", "[1e99999999999,1e99999999999]"});
}

TEST(UniqueItemsTest, AnyValues) {
  expect_texts(R"({"type":"array","uniqueItems":true})",
               {R"([null,true,false,0,"",[],{},[0],{"a":0}])"},
               {"[1,1.0]", R"([{"a":1,"b":2},{"b":2,"a":1},)", "[null,n", "[true,false,t"});
}

/// An item may begin only as a value that is left, not as others of its kind.
TEST(UniqueItemsTest, KindsThatAreUsedUp) {
  const std::string unique = R"(,"uniqueItems":true)";
  const std::string two = unique + R"(,"minItems":2})";
  const std::string mixed = R"({"type":"array","items":{"enum":[{"a":1},"x"]})";
  expect_texts(mixed + two, {R"([{"a":1},"x"])", R"(["x",{"a":1}])"},
               {R"([{"a":1},{)", R"(["x","x)", R"(["x",")"});
  expect_texts(mixed + unique + "}", {R"([{"a":1},"x"])", R"([{"a":1}])"}, {R"([{"a":1},{)"});
  expect_texts(
      R"({"type":"array","items":{"anyOf":[{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false},{"type":"null"}]})" +
          two,
      {R"([{"a":true},{"a":false},null])", R"([null,{"a":true}])"},
      {R"([{"a":true},{"a":false},{)", R"([null,{"a":true},n)"});
  expect_texts(R"({"type":"array","prefixItems":[{"const":{"a":1}},{"enum":[{"a":1},"x"]}])" + two,
               {R"([{"a":1},"x"])"}, {R"([{"a":1},{)"});
  expect_texts(
      R"({"type":"array","items":{"oneOf":[{"const":{"a":1}},{"const":{"b":2}},{"type":"null"}]})" +
          two,
      {R"([{"a":1},null,{"b":2}])"}, {R"([{"a":1},{"b":2},{)", R"([{"b":2},{"b)"});
  expect_texts(R"({"type":"object","properties":{"p":)" + mixed + two + "}}",
               {R"({"p":[{"a":1},"x"]})"}, {R"({"p":[{"a":1},{)"});
}

TEST(UniqueItemsTest, ExplainsOnlyWhatIsLeft) {
  const auto explained = [](const std::string& items, const std::string& text) {
    const Grammar grammar =
        compile_items(R"({"type":"array","uniqueItems":true,"items":)" + items + "}");
    return grammar->explain(grammar->next(grammar->start(), text));
  };
  const std::string mixed = R"({"enum":[{"a":1},"x"]})";
  EXPECT_EQ(explained(mixed, R"([{"a":1},)"), "a value begins: a string\n");
  const std::string words = R"({"enum":["a","ab","b"]})";
  EXPECT_EQ(explained(words, R"(["a","a)"),
            "inside a string of an item that is compared with the others: characters to come, for "
            "example \"b\"; it may not end here\n");
  EXPECT_EQ(explained(words, R"(["ab","a)"),
            "inside a string of an item that is compared with the others; it may end here\n");
}

// ---- Many items
// ----------------------------------------------------------------------------------

TEST(UniqueItemsTest, ManyRecords) {
  const Grammar grammar = compile_items(
      R"({"type":"array","uniqueItems":true,"items":{"type":"object","required":["id","name"],
          "properties":{"id":{"type":"integer"},"name":{"type":"string"}},"additionalProperties":false}})");
  StateId state = grammar->next(grammar->start(), "[");
  for (int i = 0; i < 150; ++i) {
    state = grammar->next(
        state, fmt::format(R"({}{{"id":{},"name":"n{}"}})", i == 0 ? "" : ",", i, i % 7));
    ASSERT_NE(state, Automaton::kDead) << i;
  }
  EXPECT_EQ(grammar->next(state, R"(,{"id":40,"name":"n5"})"), Automaton::kDead);
  EXPECT_NE(grammar->next(state, R"(,{"id":40,"name":"n6"}])"), Automaton::kDead);
}

// ---- Items two of which are equal
// ----------------------------------------------------------------

TEST(RepeatedItemsTest, NotUnique) {
  const std::string not_unique = R"({"type":"array","not":{"uniqueItems":true}})";
  expect_texts(not_unique, {"[1,1]", "[1,2,1.0]", R"([{"a":1},2,{"a":1e0}])", "[[],3,[],3]"},
               {"[1,2]", "[]"});
  expect_texts(
      R"({"type":"array","prefixItems":[{"type":"number"},{"type":"integer","minimum":3}],"items":false,"not":{"uniqueItems":true}})",
      {"[3,3]", "[3.0,3]"}, {"[2,", "[1.5,", "[4,3", "[3]", "[3,3,"});
  expect_texts(
      R"({"type":"array","items":{"enum":["a","b"]},"maxItems":2,"not":{"uniqueItems":true}})",
      {R"(["a","a"])", R"(["b","b"])"}, {R"(["a","b)", R"(["a"])"});
  EXPECT_FALSE(is_satisfiable(
      R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"not":{"uniqueItems":true}})"));
  EXPECT_FALSE(is_satisfiable(R"({"type":"array","uniqueItems":true,"not":{"uniqueItems":true}})"));
}

TEST(RepeatedItemsTest, InsideOtherFormulas) {
  expect_texts(
      R"({"type":"object","not":{"patternProperties":{"^a":{"type":"array","uniqueItems":true}}}})",
      {R"({"a":1})", R"({"b":1,"ab":[2,2]})"},
      {R"({"b":1})"
       " "});
  expect_texts(R"({"oneOf":[{"type":"array","uniqueItems":true},{"type":"array","maxItems":1}]})",
               {"[1,2]"}, {"[]", "[1]", "[1,1]"});
}

// ---- Random schemas
// ------------------------------------------------------------------------------

class RandomArrays {
 public:
  explicit RandomArrays(uint32_t seed) : random_(seed) {}

  std::string schema() {
    std::string text = R"({"type":"array")";
    if (below(2) == 0) {
      text += R"(,"prefixItems":[)" + item(1) + (below(2) == 0 ? "," + item(1) : "") + "]";
    }
    text += below(5) == 0 ? R"(,"items":false)" : R"(,"items":)" + item(2);
    if (below(3) == 0) {
      text += R"(,"contains":)" + item(1);
      text += below(2) == 0 ? fmt::format(R"(,"minContains":{})", below(3)) : "";
      text += below(2) == 0 ? fmt::format(R"(,"maxContains":{})", below(3)) : "";
    }
    text += below(2) == 0 ? fmt::format(R"(,"minItems":{})", below(4)) : "";
    text += below(3) == 0 ? fmt::format(R"(,"maxItems":{})", below(4)) : "";
    return text + (below(4) == 0 ? R"(,"not":{"uniqueItems":true}})" : R"(,"uniqueItems":true})");
  }

  /// A schema of arrays of which one item after the first one or two must not be of a kind.
  std::string schema_with_another() {
    std::string text = R"({"type":"array","uniqueItems":true,"prefixItems":[)" + item(1);
    const bool two = below(2) == 0;
    text += (below(2) == 0 && two ? "," + item(1) : "") + R"(],"items":)" + item(2);
    text += below(3) == 0 ? fmt::format(R"(,"minItems":{})", below(5)) : "";
    text += below(2) == 0 ? fmt::format(R"(,"maxItems":{})", 1 + below(4)) : "";
    return text + fmt::format(R"(,"not":{{"prefixItems":[true{}],"items":{}}}}})",
                              two ? ",true" : "", item(1));
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }

  std::string item(int depth) {
    static const std::vector<std::string> kLeaves = {
        R"({"enum":[1,2]})",
        R"({"enum":["a","ab",1]})",
        R"({"type":"boolean"})",
        R"({"type":"integer","minimum":1,"maximum":3})",
        R"({"const":1})",
        R"({"type":"null"})",
        R"({"type":"string","maxLength":1,"pattern":"^[ab]*$"})",
        R"({"type":"string"})",
        R"({"anyOf":[{"const":"a"},{"type":"integer","minimum":2,"maximum":2}]})",
        "true",
        R"({"type":"number","minimum":0,"maximum":0.5,"multipleOf":0.5})"};
    if (depth > 1 && below(3) == 0) {
      return below(2) == 0 ? R"({"type":"object","properties":{"a":)" + item(1) + R"(,"b":)" +
                                 item(1) + R"(},"required":["a"],"additionalProperties":false})"
                           : R"({"type":"array","items":)" + item(1) +
                                 fmt::format(R"(,"maxItems":2,"uniqueItems":{}}})", below(2) == 0);
    }
    return kLeaves[below(static_cast<uint32_t>(kLeaves.size()))];
  }

  std::mt19937 random_;
};

/// Small values, among them all that the leaves tell apart.
std::vector<std::string> small_items() {
  std::vector<std::string> items = {"null", "true", "false", "0",     "0.5",    "1",
                                    "2",    "3",    "\"\"",  "\"a\"", "\"ab\"", "\"b\""};
  for (const char* a : {"1", "\"a\"", "true"}) {
    items.push_back(fmt::format(R"({{"a":{}}})", a));
    items.push_back(fmt::format("[{}]", a));
    items.push_back(fmt::format(R"({{"a":{},"b":2}})", a));
  }
  items.insert(items.end(), {"[]", "[1,2]", "[2,2]", "[true,false]"});
  return items;
}

TEST(UniqueItemsTest, RandomArraysAgreeWithAValidator) {
  const std::vector<std::string> items = small_items();
  int valid = 0;
  int empty = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    RandomArrays arrays(seed);
    const std::string schema = seed < 150 ? arrays.schema() : arrays.schema_with_another();
    const JsonValue parsed = parse_json(schema, "schema");
    const NaiveValidator validator(parsed);
    const Grammar grammar = compile_items(schema, true);
    std::mt19937 random(seed);
    for (int i = 0; i < 150; ++i) {
      std::string text = "[";
      for (uint32_t size = random() % 4; size > 0; --size) {
        text += items[random() % items.size()] + (size > 1 ? "," : "");
      }
      text += "]";
      const bool expected = validator.accepts(parse_json(text, "value"));
      valid += expected ? 1 : 0;
      ASSERT_EQ(accepts(*grammar, text), expected) << schema << " " << text << " seed " << seed;
    }
    if (grammar->start() == Automaton::kDead) {
      ++empty;
      continue;
    }
    GrammarWalk walk(*grammar, schema, seed);
    for (size_t i = 0; i < 8; ++i) {
      const auto text = walk.text(4 * i);
      ASSERT_TRUE(text || walk.lost())
          << schema << " dead after " << walk.begun() << " seed " << seed;
      try {
        ASSERT_TRUE(!text || validator.accepts(parse_json(*text, "text")))
            << schema << " " << *text;
      } catch (const std::invalid_argument&) {
        continue;  // a number too large for the validator
      }
    }
  }
  EXPECT_GT(valid, 1'500);
  EXPECT_LT(empty, 130);
}

/// Every token of the mask, and no other, is one whose bytes go on.
TEST(UniqueItemsTest, NamesThatBeginLikeThoseBefore) {
  const auto vocabulary = tiny_vocabulary(5, 300);
  for (const auto& [value, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a":"x","ac":"x"})", R"([1,{"a":"x","ac":"x"}])"},
           {R"({"":"x","c":[]})", R"([{"":"x","c":[]},1])"},
           {R"([{"--":0,"---":{"-":1,"--":2}}])", R"([[{"--":0,"---":{"-":1,"--":2}}],1])"}}) {
    const Grammar grammar = compile_items(
        R"({"type":"array","items":{"enum":[1,)" + value + R"(]},"uniqueItems":true})", false,
        vocabulary);
    for (size_t length = 0; length < text.size(); ++length) {
      const StateId state = grammar->next(grammar->start(), text.substr(0, length));
      const TokenMask mask = grammar->mask(state);
      EXPECT_FALSE(mask.empty()) << text.substr(0, length);
      for (Token token = 0; token < vocabulary->vocab_size(); ++token) {
        ASSERT_EQ(mask.allows(token), grammar->next(state, token) != Automaton::kDead)
            << text.substr(0, length) << " then " << vocabulary->bytes(token);
      }
    }
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  }
}

/// Texts of the item are listed with names that the object does not list, and with these.
TEST(UniqueItemsTest, NamesOfTheObjectAreNoOtherNames) {
  const Grammar grammar = compile_items(
      R"({"type":"array","items":{"propertyNames":{"pattern":"b"},"type":"object",
          "required":["b"],"minProperties":3},"uniqueItems":true,"minItems":2})",
      false, tiny_vocabulary(5, 300));
  const std::string text = R"([{"b":1,"ab":2,"bb":3},{"b":1,"ab":2,"bb":4}])";
  for (size_t length = 0; length < text.size(); ++length) {
    const StateId state = grammar->next(grammar->start(), text.substr(0, length));
    EXPECT_FALSE(grammar->mask(state).empty()) << text.substr(0, length);
    EXPECT_EQ(grammar->limit(state), std::nullopt) << text.substr(0, length);
  }
  EXPECT_TRUE(accepts(*grammar, text));
}

/// An item that shall be one of `contains` too is looked at when the schema is compiled.
TEST(UniqueItemsTest, WhatItemsCannotContainIsRefusedAtOnce) {
  const std::string item =
      R"({"type":"array","prefixItems":[{"type":"array","uniqueItems":true,"contains":{"const":1}}],)";
  const std::string strings = R"("prefixItems":[true],"items":{"type":"string"})";
  for (const std::string& schema :
       {item + R"("contains":{"type":"array","not":{)" + strings +
            R"(}},"minContains":0,"maxContains":1})",
        item + R"("not":{"contains":{"type":"array",)" + strings + "}}}"}) {
    EXPECT_THROW(compile_items(schema), GrammarError) << schema;
  }
}

TEST(UniqueItemsTest, MasksAreWhatTheStatesSay) {
  const auto vocabulary = tiny_vocabulary(3, 400);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::string schema = RandomArrays(seed).schema();
    const Grammar grammar = compile_items(schema, true, vocabulary);
    std::mt19937 random(seed);
    StateId state = grammar->start();
    for (int step = 0; step < 25 && state != Automaton::kDead; ++step) {
      const TokenMask mask = grammar->mask(state);
      std::vector<StateId> next;
      for (Token token = 0; token < grammar->vocab_size(); ++token) {
        if (grammar->is_end(token) || vocabulary->bytes(token).empty()) {
          continue;
        }
        const StateId after = grammar->next(state, vocabulary->bytes(token));
        ASSERT_EQ(mask.allows(token), after != Automaton::kDead)
            << schema << " step " << step << " token " << vocabulary->bytes(token) << " seed "
            << seed;
        if (after != Automaton::kDead) {
          next.push_back(after);
        }
      }
      ASSERT_TRUE(!next.empty() || grammar->is_complete(state)) << schema;
      state = next.empty() ? Automaton::kDead : next[random() % next.size()];
    }
  }
}

}  // namespace
}  // namespace specdec
