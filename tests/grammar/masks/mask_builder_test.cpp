// Masks against brute force: each token of the vocabulary is tried byte by byte.
#include "grammar/masks/mask_builder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "core/tokenizers/tokenizer.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/random_schema.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;
using Vocabulary = std::shared_ptr<GrammarVocabulary>;

const std::vector<JsonSchemaOptions> kMaskOptions = {
    json_options(true, "compact"), json_options(false, "any", EscapeStyle::kMinimal),
    json_options(false, "spaced"), json_options(true, "indent:2", EscapeStyle::kMinimal)};

bool allowed(const CompiledGrammar& grammar, StateId state, Token token) {
  if (grammar.is_end(token)) {
    return grammar.is_complete(state);
  }
  const std::string_view bytes = grammar.vocabulary().bytes(token);
  return !bytes.empty() && grammar.next(state, bytes) != Automaton::kDead;
}

std::vector<Token> tried(const CompiledGrammar& grammar, StateId state) {
  std::vector<Token> tokens;
  for (Token token = 0; token < grammar.vocab_size(); ++token) {
    if (allowed(grammar, state, token)) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

/// Which tokens the mask has too many and too few of, as text.
std::string difference(const CompiledGrammar& grammar, StateId state) {
  const std::vector<Token> right = tried(grammar, state);
  const TokenMask mask = grammar.mask(state);
  std::string out;
  for (Token token = 0; token < grammar.vocab_size(); ++token) {
    const bool wanted = std::binary_search(right.begin(), right.end(), token);
    if (mask.allows(token) != wanted) {
      out += wanted ? " missing " : " wrong ";
      out += ::testing::PrintToString(std::string(grammar.vocabulary().bytes(token)));
    }
  }
  if (out.empty() && mask.count() != static_cast<int64_t>(right.size())) {
    out = " count " + std::to_string(mask.count());
  }
  return out;
}

/// A walk by allowed tokens, long ones mostly, with the mask looked at before each.
void expect_masks(const CompiledGrammar& grammar, const std::string& name, std::mt19937& random,
                  int steps) {
  StateId state = grammar.start();
  std::string text;
  for (int step = 0; step < steps; ++step) {
    ASSERT_EQ(difference(grammar, state), "") << name << " after " << text;
    const std::vector<Token> tokens = grammar.mask(state).tokens();
    ASSERT_FALSE(tokens.empty()) << name << " after " << text;
    Token token = kTinyEnd;
    size_t longest = 0;
    for (int tries = 0; tries < 3; ++tries) {
      const Token other = tokens[random() % tokens.size()];
      const size_t size = grammar.is_end(other) ? 0 : grammar.vocabulary().bytes(other).size();
      if (size > longest) {
        longest = size;
        token = other;
      }
    }
    if (longest == 0) {
      return;  // drew nothing but end tokens
    }
    text += grammar.vocabulary().bytes(token);
    state = grammar.next(state, token);
  }
}

void expect_sample_masks(const Vocabulary& vocabulary, size_t first, size_t stride, int steps) {
  std::mt19937 random(static_cast<uint32_t>(first));
  const std::vector<std::string> samples = grammar_data("samples.jsonl");
  for (size_t i = first; i < samples.size(); i += stride) {
    const JsonValue sample = parse_json(samples[i], "samples.jsonl");
    const Grammar grammar = compile_json_schema(vocabulary, to_json(*sample.find("schema")),
                                                kMaskOptions[i % kMaskOptions.size()]);
    for (int walks = 0; walks < 3; ++walks) {
      expect_masks(*grammar, sample.find("name")->text, random, steps);
    }
  }
}

TEST(MaskBuilderTest, SamplesWithFewTokens) {
  expect_sample_masks(tiny_vocabulary(1, 250), 0, 1, 12);
}

/// So many that string walks are kept as bits, and the walks of one language start from another's.
TEST(MaskBuilderTest, SamplesWithManyTokens) {
  expect_sample_masks(tiny_vocabulary(2, 2'500), 1, 2, 8);
}

TEST(MaskBuilderTest, RandomSchemas) {
  const Vocabulary vocabulary = tiny_vocabulary(3, 300);
  std::mt19937 random(3);
  int masked = 0;
  for (uint32_t seed = 1'000; seed < 1'060; ++seed) {
    const std::string schema = to_json(RandomSchema(seed).schema(2));
    const Grammar grammar =
        compile_json_schema(vocabulary, schema, kMaskOptions[seed % kMaskOptions.size()], {}, true);
    if (grammar->start() != Automaton::kDead) {
      expect_masks(*grammar, schema, random, 12);
      ++masked;
    }
  }
  EXPECT_GT(masked, 30);
}

/// Places where masks are put together from several parts.
TEST(MaskBuilderTest, HardStrings) {
  const std::vector<std::string> schemas = {
      R"({"type": "string", "maxLength": 0})",
      R"({"type": "string", "minLength": 5, "maxLength": 5})",
      R"({"type": "string", "pattern": "[ab]+c"})",
      R"({"type": "string", "pattern": "^[a-c]{1,40}$|^f[^a]*$"})",
      R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
      R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}, {"const": "a"}],
          "items": {"pattern": "^a|^b+$", "type": "string"}, "uniqueItems": true, "minItems": 3})",
      R"({"type": "array", "contains": {"const": "a"}, "minContains": 1, "uniqueItems": true,
          "items": {"type": "string"}, "minItems": 2})",
      R"({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": true})",
      R"({"enum": ["aa", "aaa", "a\"", "a\\", "é", "\u0000", "abc", "foo"]})",
      R"({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "pattern": "^a+\"?$"}]})",
      R"({"type": "object", "properties": {"a": {"const": 1}, "aa": {"const": "b"}},
          "additionalProperties": {"type": "null"}})",
      R"({"type": "object", "propertyNames": {"enum": ["a", "aa", "aaa", "\"", "foo", "foobar"]},
          "additionalProperties": {"type": "boolean"}})",
      R"({"type": "object", "propertyNames": {"maxLength": 1, "pattern": "^[aé\"\\\\]*$"},
          "additionalProperties": {"type": "integer"}})",
      R"({"type": "object", "propertyNames": {"pattern": "^a"}, "properties": {"abc": true}})",
      R"({"type": "object", "patternProperties": {"^a": {"const": 1}, "b$": {"type": "string"}},
          "additionalProperties": false})",
      R"({"type": "array", "uniqueItems": true, "items": {"type": "object",
          "additionalProperties": {"enum": ["a", 1]}, "propertyNames": {"enum": ["a", "b"]}}})",
      "true"};
  const Vocabulary few = tiny_vocabulary(4, 250);
  const Vocabulary many = tiny_vocabulary(5, 2'500);
  std::mt19937 random(4);
  for (const std::string& schema : schemas) {
    for (const JsonSchemaOptions& options : kMaskOptions) {
      expect_masks(*compile_json_schema(few, schema, options), schema, random, 16);
    }
    expect_masks(*compile_json_schema(many, schema, kMaskOptions[0]), schema, random, 12);
  }
}

std::shared_ptr<GrammarVocabulary> vocabulary_of(std::vector<std::string_view> tokens) {
  tokens.insert(tokens.begin(), 2, "");
  return std::make_shared<GrammarVocabulary>(tokens, std::vector{kTinyEnd});
}

/// Names that are told apart: listed ones, and those that came before.
TEST(MaskBuilderTest, Names) {
  const Vocabulary vocabulary = vocabulary_of(
      {"{\"",          "\"",          "a",    "b",    "ab",          "ab\"",    "ab\":1",
       "\":1,\"",      "é",           "\xC3", "\xA9", "\xC3\xA9\":", "\\u00",   "\\u0061",
       "\\u0061b\":2", "e9",          "1",    ",\"",  "}",           "\":{\"b", "\":{\"b\":1",
       "b\":{\"",      "a\":1,\"a\"", "zz",   "z",    "\\",          "u",       "0061",
       "\":",          ":",           "{"});
  const std::vector<std::string> schemas = {
      R"({"patternProperties": {"^[a-z]{2}$": {}}, "additionalProperties": false})",
      R"({"patternProperties": {"^(ab|b.*)$": {}}, "additionalProperties": false})",
      R"({"properties": {"ab": {"type": "object", "properties": {"b": {"const": 1}},
          "additionalProperties": false}, "é": {"const": 1}, "a": false}})",
      R"({"properties": {"ab": {"const": 1}, "a": {"const": 2}, "é": {"const": 1}},
          "additionalProperties": false})",
      R"({"additionalProperties": {"type": "integer"}})",
      R"({"maxProperties": 1, "properties": {"ab": {"const": 1}}})",
      R"({"maxProperties": 2, "patternProperties": {"^a": {"const": 1}, "z": {"type": "object"}}})"};
  const std::vector<std::string> texts = {"{\"",
                                          "{\"a",
                                          "{\"a\\u0062",
                                          "{\"z",
                                          "{\"ab\":1,\"",
                                          "{\"ab\":1,\"a",
                                          "{\"zz\":1,\"z",
                                          "{\"a\":1,\"",
                                          "{\"é\":1,\"\xC3",
                                          "{\"ab\":{\"",
                                          "{\"ab",
                                          "{\"\\u00",
                                          "{\"a\":1,\"ab\":1,\"a",
                                          "{\"ab\":{\"b"};
  for (const std::string& schema : schemas) {
    for (const JsonSchemaOptions& options : {kMaskOptions[0], kMaskOptions[1]}) {
      const Grammar one = compile_json_schema(
          vocabulary, R"({"type": "object", "allOf": [)" + schema + "]}", options);
      for (const std::string& text : texts) {
        const StateId state = one->next(one->start(), text);
        if (state != Automaton::kDead) {
          EXPECT_EQ(difference(*one, state), "") << schema << " after " << text;
        }
      }
    }
  }
}

/// Strings in arrays whose items differ: what may follow them depends on what they are where few
/// values are left, or one value is another item's.
const std::vector<std::string> kUniqueArrays = {
    R"({"prefixItems": [{"type": "string"}, {"const": "a"}], "minItems": 2})",
    R"({"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": {"enum": ["a", "foo"]}})",
    R"({"items": {"enum": ["a", "foo", "bar"]}, "minItems": 3})",
    R"({"items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["foo",
        "bar"]}}, "additionalProperties": false}, "minItems": 2})",
    R"({"items": {"type": "object", "properties": {"b": {"enum": ["foo", "bar"]}},
        "required": ["b"], "additionalProperties": false}, "minItems": 2})",
    R"({"items": {"type": "object", "additionalProperties": {"type": "string"}}, "maxItems": 2})",
    R"({"items": {"type": "object", "propertyNames": {"enum": ["a", "foo"]},
        "additionalProperties": {"type": "string"}}})",
    R"({"items": {"type": "array", "uniqueItems": true, "items": {"enum": ["a", "foo", "bar"]}}})",
    R"({"items": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}})",
    R"({"items": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true,
        "items": {"type": "string"}}}, "additionalProperties": false}})",
    R"({"items": {"type": ["boolean", "string"]}, "contains": {"const": "a"}, "maxContains": 1})",
    R"({"anyOf": [{"items": {"enum": ["a", "b"]}}, {"items": {"type": "string"}, "minItems": 2}]})",
};

TEST(MaskBuilderTest, StringsInUniqueArrays) {
  const Vocabulary vocabulary = tiny_vocabulary(12, 500);
  std::mt19937 random(6);
  const std::vector<std::string> texts = {R"([")",
                                          R"(["a)",
                                          R"(["foo","a)",
                                          R"(["a","foo","b)",
                                          R"([{"a":")",
                                          R"([{"b":"foo)",
                                          R"([{"b":"foo"},{"b":"ba)",
                                          R"([{"a":"a)",
                                          R"([{"a":"a"},{")",
                                          R"([{"a":"a"},{"a":"a)",
                                          R"([["a)",
                                          R"([["a"],["a)",
                                          R"([["a"],["a","foo)",
                                          R"([{"a":["a)",
                                          R"([{"a":["a"]},{"a":["a)"};
  size_t begin = 0;  // every array with half of the options, every option with half of the arrays
  for (const std::string& array : kUniqueArrays) {
    const std::string schema =
        R"({"type": "array", "uniqueItems": true, "allOf": [)" + array + "]}";
    begin = 1 - begin;
    for (size_t i = begin; i < kMaskOptions.size(); i += 2) {
      const Grammar grammar = compile_json_schema(vocabulary, schema, kMaskOptions[i]);
      for (const std::string& text : texts) {
        const StateId state = grammar->next(grammar->start(), text);
        if (state != Automaton::kDead) {
          ASSERT_EQ(difference(*grammar, state), "") << array << " after " << text;
        }
      }
      for (int walk = 0; walk < 2; ++walk) {
        expect_masks(*grammar, array, random, 25);
      }
    }
  }
}

/// Objects in an array whose items differ: the tokens after each of which another object begins are
/// many, and are not all tried. Work is counted by the states that it leaves behind.
TEST(MaskBuilderTest, UniqueObjectsCostFewStates) {
  std::string properties;
  for (char name = 'a'; name <= 'x'; ++name) {
    properties += fmt::format(R"({}"{}": {{"type": "string"}})", name == 'a' ? "" : ", ", name);
  }
  const std::string schema = R"({"type": "array", "uniqueItems": true, "items": {"type": "object",
      "additionalProperties": false, "properties": {)" +
                             properties + "}}}";
  JsonSchemaOptions options = json_options(false, "compact");
  const Grammar grammar =
      compile_json_schema(tiny_vocabulary(13, 4'000), schema, options, {.max_states = 4'000});
  StateId state = grammar->start();
  for (
      const char c : std::string_view(
          R"([{"a":"some text","b":"another","c":"x"},{"a":"a","d":"text"},{"b":"foo","e":"x"}])")) {
    (void)grammar->mask(state);
    state = grammar->next(state, std::string_view(&c, 1));
    ASSERT_NE(state, Automaton::kDead);
  }
}

/// Counts make each place in a string another language; tokens tell few of them apart.
TEST(MaskBuilderTest, StringsWithCounts) {
  const Vocabulary vocabulary = tiny_vocabulary(14, 3'000);
  std::string text = "\"";
  for (int i = 0; i < 12; ++i) {
    text += "foo b ";
  }
  const auto walks_along = [&](int words, int length, bool look) {
    const std::string schema = fmt::format(
        R"json({{"type": "string", "minLength": 1, "maxLength": {},
                 "pattern": "^$|(^(?:\\S+\\s+){{0,{}}}\\S+$)"}})json",
        length, words);
    const Grammar grammar = compile_json_schema(vocabulary, schema);
    const uint64_t before = vocabulary->strings().walks();
    StateId state = grammar->start();
    for (size_t i = 0; i < text.size() && state != Automaton::kDead; ++i) {
      state = grammar->next(state, std::string_view(text).substr(i, 1));
      if (look && state != Automaton::kDead) {
        EXPECT_EQ(difference(*grammar, state), "") << schema << " at " << i;
      } else {
        (void)grammar->mask(state);
      }
    }
    return vocabulary->strings().walks() - before;
  };
  EXPECT_LE(walks_along(99, 5'000, false), 8U);
  (void)walks_along(9, 5'000, true);  // to the ends of both counts
  (void)walks_along(99, 40, true);
  (void)walks_along(9, 40, true);
}

/// Languages of the same classes, with characters of several bytes, and escapes.
TEST(MaskBuilderTest, ManyLanguagesOfTheSameClasses) {
  const Vocabulary vocabulary = tiny_vocabulary(15, 3'000);
  const std::vector<std::string> patterns = {"^[a-cé€]{0,30}$", "^[^ab]{3,20}foo$",
                                             "^(?:[^1]{0,7}1){0,9}$", "^[^é]{0,25}é?$"};
  const std::string_view text = "ccéc€c foo 1ccé1\\u00e9c€ foo1\\n foo\\\"c";
  for (const std::string& pattern : patterns) {
    for (const size_t option : {0, 1}) {
      const Grammar grammar = compile_json_schema(
          vocabulary, fmt::format(R"({{"type": "string", "pattern": "{}"}})", pattern),
          kMaskOptions[option]);
      StateId state = grammar->next(grammar->start(), "\"");
      for (size_t i = 0; i < text.size() && state != Automaton::kDead; ++i) {
        ASSERT_EQ(difference(*grammar, state), "") << pattern << " at " << i;
        const StateId next = grammar->next(state, text.substr(i, 1));
        state = next != Automaton::kDead ? next : grammar->next(state, "c");
      }
    }
  }
}

/// With minimal escapes a backslash at a token's end needs a character that must be escaped.
TEST(MaskBuilderTest, TokensThatEndInABackslash) {
  std::vector<std::string> tokens(2);
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  for (int i = 0; i < 3'000; ++i) {
    tokens.push_back(fmt::format("{}{}", static_cast<char>('a' + i % 26), i));
    if (i % 7 == 0) {
      tokens.push_back(tokens.back() + "\\");
    }
  }
  const auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(tokens.begin(), tokens.end()), std::vector{kTinyEnd});
  for (const char* pattern : {"^[ -!#-Z^-~]*$", "^[ -Z^-~]*$", "^[ -!#-Z^-\U0010FFFF]*$",
                              "^[0-9a-z]*$", "^[0-9a-z\\n]*$", "^[0-9a-z]{0,40}$"}) {
    const Grammar grammar = compile_json_schema(
        vocabulary, fmt::format(R"({{"type": "string", "pattern": "{}"}})", pattern));
    for (const char* text : {"\"", "\"a", "\"a1b2"}) {
      EXPECT_EQ(difference(*grammar, grammar->next(grammar->start(), text)), "") << pattern;
    }
  }
}

/// Masks that were dropped are made again as they were.
TEST(MaskBuilderTest, FewBytesForMasks) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "string",
      "minLength": 1, "maxLength": 3}}, "patternProperties": {"^b": {"enum": ["foo", "bar"]}}})";
  const std::vector<std::string> texts = {"", "{", "{\"", "{\"a\":\"", "{\"a\":\"a", "{\"b"};
  const Grammar kept = compile_json_schema(tiny_vocabulary(7, 1'500), schema);
  GrammarVocabularyLimits limits;
  limits.max_string_mask_bytes = 1;
  std::vector<std::string_view> bytes;
  for (Token token = 0; token < kept->vocab_size(); ++token) {
    bytes.push_back(kept->vocabulary().bytes(token));
  }
  const Grammar dropped =
      compile_json_schema(std::make_shared<GrammarVocabulary>(bytes, std::vector{kTinyEnd}, limits),
                          schema, {}, {.max_mask_bytes = 1});
  for (int round = 0; round < 2; ++round) {
    for (const std::string& text : texts) {
      EXPECT_EQ(dropped->mask(dropped->next(dropped->start(), text)).tokens(),
                kept->mask(kept->next(kept->start(), text)).tokens())
          << text;
    }
  }
}

TEST(MaskBuilderTest, ShippedTokenizer) {
  const auto tokenizer = load_tokenizer(SPECDEC_SOURCE_DIR "/models/target");
  const Vocabulary vocabulary = make_grammar_vocabulary(*tokenizer, std::vector{kTinyEnd});
  expect_sample_masks(vocabulary, 2, 3, 6);
}

TEST(MaskBuilderTest, ByteLevelTokenizer) {
  const auto tokenizer = load_tokenizer(SPECDEC_SOURCE_DIR "/tests/data/gguf/llama-q4_1.gguf");
  expect_sample_masks(make_grammar_vocabulary(*tokenizer), 2, 3, 6);
}

TEST(MaskBuilderTest, SmolLm2) {
  const std::string file = SPECDEC_SOURCE_DIR "/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << "no " << file << "; scripts/get_smollm2 fetches it";
  }
  expect_sample_masks(make_grammar_vocabulary(*load_tokenizer(file)), 1, 1, 3);
}

/// The mask of a state does not depend on what was asked before.
TEST(MaskBuilderTest, OrderOfQuestionsIsNoMatter) {
  const std::string schema = R"({"type": "array", "items": {"type": "string", "pattern": "^[a-c]*$",
                                 "maxLength": 4}})";
  const std::vector<std::string> texts = {"[", "[\"", "[\"a", "[\"abc", "[\"abca", "[\"\\", "[]"};
  std::vector<std::vector<Token>> forwards;
  const Grammar one = compile_json_schema(tiny_vocabulary(6, 1'500), schema);
  for (const std::string& text : texts) {
    forwards.push_back(one->mask(one->next(one->start(), text)).tokens());
  }
  const Grammar other = compile_json_schema(tiny_vocabulary(6, 1'500), schema);
  for (size_t i = texts.size(); i-- > 0;) {
    EXPECT_EQ(other->mask(other->next(other->start(), texts[i])).tokens(), forwards[i]) << texts[i];
  }
}

}  // namespace
}  // namespace specdec
