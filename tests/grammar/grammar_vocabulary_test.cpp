// What a vocabulary keeps in a file for other processes.
#include "grammar/grammar_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "core/error.h"
#include "core/randomness.h"
#include "grammar/compiled_grammar.h"
#include "grammar/sampling/grammar_sampler.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/random_schema.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

using Vocabulary = std::shared_ptr<GrammarVocabulary>;
using Masks = std::vector<std::vector<Token>>;

constexpr uint32_t kSeed = 8;
constexpr size_t kTokens = 2'000;

/// Languages of strings with many tokens and with few.
const std::vector<std::string> kStringSchemas = {
    R"({"type": "string", "pattern": "^[a-z]*$"})", R"({"type": "string", "pattern": "foo|[0-9]"})",
    R"({"type": "string", "pattern": "^(ab|1)+$"})",
    R"({"type": "array", "items": {"type": "string", "pattern": "^[^ab]*$", "maxLength": 4}})",
    R"({"type": "object", "additionalProperties": {"enum": ["aaa", "bar", "a b"]}})"};

/// The masks along some texts of a schema; nothing when it is refused.
Masks masks_of(const Vocabulary& vocabulary, const std::string& schema,
               const JsonSchemaOptions& options = {}) {
  Masks masks;
  std::shared_ptr<const CompiledGrammar> grammar;
  try {
    grammar = compile_json_schema(vocabulary, schema, options);
  } catch (const GrammarError&) {
    return masks;
  }
  for (uint32_t text = 0; text < 3; ++text) {
    CounterRandomness random(1, text);
    StateId state = grammar->start();
    const auto tokens = sample_grammar(grammar, {.max_tokens = 40}, random);
    for (const Token token : tokens.value_or(std::vector<Token>())) {
      masks.push_back(grammar->mask(state).tokens());
      state = grammar->next(state, vocabulary->bytes(token));
    }
    masks.push_back(grammar->mask(state).tokens());
  }
  return masks;
}

std::vector<Masks> string_masks(const Vocabulary& vocabulary) {
  std::vector<Masks> masks;
  for (const std::string& schema : kStringSchemas) {
    masks.push_back(masks_of(vocabulary, schema));
    masks.push_back(
        masks_of(vocabulary, schema, json_options(false, "any", EscapeStyle::kMinimal)));
  }
  return masks;
}

class GrammarVocabularyCacheTest : public testing::Test {
 protected:
  GrammarCache cache() const { return {.folder = folder_.path() / "cache", .min_tokens = 0}; }
  Vocabulary cached(uint32_t seed = kSeed) const { return tiny_vocabulary(seed, kTokens, cache()); }

  static const std::vector<Masks>& expected() {
    static const std::vector<Masks> masks = string_masks(tiny_vocabulary(kSeed, kTokens));
    return masks;
  }

  /// Writes the file; returns its path.
  std::filesystem::path fill() const {
    const Vocabulary vocabulary = cached();
    EXPECT_FALSE(vocabulary->was_cached());
    EXPECT_EQ(string_masks(vocabulary), expected());
    return vocabulary->cache_path();
  }

  TemporaryFolder folder_;
};

TEST_F(GrammarVocabularyCacheTest, WhatWasReadIsWhatWouldBeMade) {
  const auto path = fill();
  const auto written = std::filesystem::last_write_time(path);
  {
    const Vocabulary vocabulary = cached();
    EXPECT_TRUE(vocabulary->was_cached());
    EXPECT_EQ(vocabulary->cache_path(), path);
    EXPECT_EQ(string_masks(vocabulary), expected());
    EXPECT_EQ(vocabulary->strings().walks(), 0U);
  }
  EXPECT_EQ(std::filesystem::last_write_time(path), written);  // there was nothing new
}

TEST_F(GrammarVocabularyCacheTest, RandomSchemas) {
  RandomSchema random(5);
  std::vector<std::string> schemas;
  for (int i = 0; i < 40; ++i) {
    schemas.push_back(to_json(random.schema(2)));
  }
  const Vocabulary plain = tiny_vocabulary(kSeed, kTokens);
  EXPECT_EQ(plain->cache_path(), "");
  for (size_t i = 0; i < schemas.size(); i += 2) {
    (void)masks_of(cached(), schemas[i]);  // each adds to what is there
  }
  const Vocabulary vocabulary = cached();
  for (size_t i = 0; i < schemas.size(); ++i) {
    const uint64_t before = vocabulary->strings().walks();
    EXPECT_EQ(masks_of(vocabulary, schemas[i]), masks_of(plain, schemas[i])) << schemas[i];
    EXPECT_TRUE(i % 2 != 0 || vocabulary->strings().walks() == before) << schemas[i];
  }
}

TEST_F(GrammarVocabularyCacheTest, OtherTokensHaveAnotherFile) {
  const auto path = fill();
  const auto other_path = cached(kSeed + 1)->cache_path();
  EXPECT_NE(other_path, path);
  std::filesystem::copy_file(path, other_path, std::filesystem::copy_options::overwrite_existing);
  const Vocabulary other = cached(kSeed + 1);
  EXPECT_FALSE(other->was_cached());
  EXPECT_EQ(string_masks(other), string_masks(tiny_vocabulary(kSeed + 1, kTokens)));
}

TEST_F(GrammarVocabularyCacheTest, DamageIsMadeGood) {
  const auto path = fill();
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::mt19937 random(3);
  const auto check = [&](std::string content) {
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(string_masks(cached()), expected());
    const Vocabulary again = cached();
    EXPECT_TRUE(again->was_cached());
    EXPECT_EQ(string_masks(again), expected());
    EXPECT_EQ(again->strings().walks(), 0U);
  };
  for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    check(whole.substr(0, size));
  }
  for (int i = 0; i < 20; ++i) {
    std::string changed = whole;
    for (uint32_t bytes = 1 + random() % 5; bytes > 0; --bytes) {
      const size_t at = random() % changed.size();
      changed[at] = static_cast<char>(changed[at] ^ static_cast<char>(1 + random() % 255));
    }
    check(changed);
  }
}

TEST_F(GrammarVocabularyCacheTest, TheLatestWalksAreKept) {
  GrammarCache small = cache();
  small.max_walk_bytes = 8192;  // that of all strings, and one more
  const auto open = [&] { return tiny_vocabulary(kSeed, kTokens, small); };
  const auto walks = [&](const std::string& schema) {
    const Vocabulary vocabulary = open();
    (void)masks_of(vocabulary, schema);
    return vocabulary->strings().walks();
  };
  const auto size = [&] { return std::filesystem::file_size(open()->cache_path()); };
  const std::string other = R"({"pattern": "^1*$", "type": "string"})";
  EXPECT_GT(walks(other), 0U);
  const auto before = size();
  EXPECT_EQ(walks(other), 0U);
  for (const std::string& schema : kStringSchemas) {
    EXPECT_GT(walks(schema), 0U) << schema;
  }
  EXPECT_LE(size(), before + 4096);
  EXPECT_GT(walks(other), 0U);
  EXPECT_EQ(walks(other), 0U);
}

TEST_F(GrammarVocabularyCacheTest, WhatOthersHaveWrittenSinceStays) {
  const std::string one = kStringSchemas[0];
  const std::string two = kStringSchemas[1];
  Vocabulary first = cached();
  Vocabulary second = cached();
  (void)masks_of(first, one);
  (void)masks_of(second, two);
  first->save();
  second->save();
  const Vocabulary third = cached();
  (void)masks_of(third, one);
  (void)masks_of(third, two);
  EXPECT_EQ(third->strings().walks(), 0U);
}

TEST_F(GrammarVocabularyCacheTest, SmallVocabulariesAreNotKept) {
  GrammarCache large = cache();
  large.min_tokens = 10'000;
  EXPECT_EQ(tiny_vocabulary(kSeed, kTokens, large)->cache_path(), "");
  EXPECT_FALSE(std::filesystem::exists(large.folder));
}

TEST_F(GrammarVocabularyCacheTest, AFileThatCannotBeWrittenDoesNoHarm) {
  const GrammarCache nowhere = {.folder = folder_.write("file", ""), .min_tokens = 0};
  const Vocabulary vocabulary = tiny_vocabulary(kSeed, kTokens, nowhere);
  EXPECT_EQ(string_masks(vocabulary), expected());
  EXPECT_THAT(error_message<Error>([&] { vocabulary->save(); }), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace specdec
