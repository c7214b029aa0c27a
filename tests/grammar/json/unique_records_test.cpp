// Arrays of different records: what was read of an item tells which of the others it may become.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/grammar/dead_end.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;
using Texts = std::vector<std::string>;

Grammar compile_records(const std::string& record,
                        const std::shared_ptr<GrammarVocabulary>& vocabulary = empty_vocabulary()) {
  return compile_json_schema(vocabulary,
                             R"({"type":"array","uniqueItems":true,"items":)" + record + "}",
                             json_options(false, "compact"));
}

/// Every token of the mask, and no other, leads on.
void expect_mask_is_steps(const CompiledGrammar& grammar, StateId state) {
  const TokenMask mask = grammar.mask(state);
  for (Token token = 2; token < grammar.vocab_size(); ++token) {
    const std::string_view bytes = grammar.vocabulary().bytes(token);
    ASSERT_EQ(mask.allows(token), grammar.next(state, bytes) != Automaton::kDead) << bytes;
  }
  ASSERT_EQ(grammar.limit(state), std::nullopt);
}

/// Closed and open records, with lists and records in them; each with some of its values.
struct Records {
  std::string schema;
  Texts texts;
};
const std::vector<Records> kRecords = {
    {R"({"type":"object","properties":{"a":{"enum":["x","xy","y"]},"b":{"type":"boolean"}},
        "required":["a","b"],"additionalProperties":false})",
     {R"({"a":"x","b":true})", R"({"a":"xy","b":true})", R"({"b":false,"a":"x"})",
      R"({"a":"y","b":false})", R"({"b":false,"a":"xy"})"}},
    {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},
        "additionalProperties":false})",
     {R"({"a":"foo","b":1})", R"({"a":"fob","b":1})", R"({"b":1})", R"({"b":10,"a":"foo"})", "{}",
      R"({"a":"foo"})"}},
    {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
     {R"({"a":["b",{"a":["c"]}],"c":"a"})", R"({"c":"a"})", R"({"a":[["b"]]})", R"({"b":{"a":1}})",
      R"({"a":[{"b":"a","c":[1,"b"]},"a"]})"}},
    {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"minItems":2,
        "maxItems":3,"items":{"type":"object","maxProperties":1}})",
     {R"(["a",1])", R"(["a",10,{"b":"c"}])", R"(["é",1,{}])", R"(["a",1,{"b":[]}])"}},
    // A name or the beginning of a string may leave nothing but values that were there before.
    {R"({"type":"object","properties":{"b":{"const":0},"a":{"const":0}},"minProperties":1,
        "additionalProperties":false})",
     {R"({"b":0})", R"({"b":0,"a":0})"}},
    {R"({"type":"object","properties":{"c":{"const":"b"},"a":{"const":0}},"required":["c"],
        "additionalProperties":false})",
     {R"({"a":0,"c":"b"})"}},
    {R"({"type":"object","patternProperties":{"^(ab|b.*)$":{"const":0}},"maxProperties":1,
        "additionalProperties":false})",
     {R"({"ab":0})", R"({"b":0})"}},
    {R"({"type":"string","pattern":"^(ab|b.*)$"})", {R"("ab")", R"("b")", R"("bab")"}},
};

/// Along an item that was there before, in a text with all of them.
TEST(UniqueRecordsTest, MasksAreWhatTheStatesSay) {
  const auto vocabulary = tiny_vocabulary(5, 400);
  for (const Records& records : kRecords) {
    const Grammar grammar = compile_records(records.schema, vocabulary);
    const std::string before = fmt::format("[{},", fmt::join(records.texts, ","));
    for (const std::string& again : records.texts) {
      StateId state = grammar->next(grammar->start(), before);
      for (const char byte : again) {
        SCOPED_TRACE(records.schema + " " + again);
        if (state == Automaton::kDead) {
          break;
        }
        ASSERT_NO_FATAL_FAILURE(expect_mask_is_steps(*grammar, state));
        state = grammar->next(state, std::string_view(&byte, 1));
      }
      EXPECT_EQ(state, Automaton::kDead) << again;
    }
    ASSERT_NO_FATAL_FAILURE(
        expect_mask_is_steps(*grammar, grammar->next(grammar->start(), before)));
  }
}

TEST(UniqueRecordsTest, SpellingAndOrderMakeNoDifference) {
  const Grammar grammar = compile_records(R"({"type":"object"})");
  const StateId state =
      grammar->next(grammar->start(), R"([{"name":"a\"b","n":[1,{"q":"é"}]},{"n":[1]},)");
  for (const char* same :
       {R"({"n":[1.0,{"q":"\u00e9"}],"\u006eame":"a\u0022b"})",
        R"({"n":[10e-1,{"q":"é"}],"name":"a\"b"})", R"({"n":[1]})", R"({"\u006e":[0.1e1]})"}) {
    EXPECT_EQ(grammar->next(state, same), Automaton::kDead) << same;
  }
  for (const char* other :
       {R"({"n":[1,{"q":"e"}],"name":"a\"b"})", R"({"n":[1,{"q":"é"}],"name":"a\"b","m":null})",
        R"({"n":[1,{"q":"é"},{}],"name":"a\"b"})", R"({"n":[1,{"q":"é"}],"name":"a"})",
        R"({"n":1})", R"({"n":[[1]]})", R"({"n":[1],"":0})"}) {
    EXPECT_NE(grammar->next(state, std::string(other) + "]"), Automaton::kDead) << other;
  }
}

/// Masks lead to no dead end, also where only few values are left for the rest of an item.
TEST(UniqueRecordsTest, NoDeadEnds) {
  for (const char* record :
       {R"({"type":"object","properties":{"a":{"enum":[1,2]},"b":{"type":"boolean"}},
            "required":["a","b"],"additionalProperties":false})",
        R"({"type":"object","properties":{"a":{"enum":["x","xy"]},"b":{"type":"null"}},
            "additionalProperties":false})",
        R"({"type":"array","items":{"type":"boolean"},"maxItems":1})",
        R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"minItems":1,
            "items":{"enum":[1,"x"]}}},"required":["a"],"additionalProperties":false})"}) {
    EXPECT_EQ(find_dead_end(*compile_records(record), 1500), std::nullopt) << record;
  }
}

/// A token that ends one array with an item and begins another.
TEST(UniqueRecordsTest, TokensFromOneArrayToAnother) {
  const Texts bytes = {"",
                       "",
                       "[",
                       "]",
                       "\"",
                       ",",
                       "a",
                       "b",
                       "c",
                       "1",
                       "{",
                       "}",
                       "],",
                       "[[",
                       "\",",
                       "\",\"",
                       "b\",\"b\"],[",
                       "b\",\"c\"],[",
                       "b\",\"b\"],[1",
                       "b\",1],[",
                       "b\"],[\"b\""};
  const auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector{kTinyEnd});
  const Grammar grammar =
      compile_json_schema(vocabulary, R"({"items":{"type":"array","uniqueItems":true}})",
                          json_options(false, "compact"));
  for (const char* text : {"[[\"", "[[\"a", "[[\"b\",\"", "[[1],[\"", "[[\"b\"],[\""}) {
    SCOPED_TRACE(text);
    ASSERT_NO_FATAL_FAILURE(expect_mask_is_steps(*grammar, grammar->next(grammar->start(), text)));
  }
}

}  // namespace
}  // namespace specdec
