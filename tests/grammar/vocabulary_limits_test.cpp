// What a vocabulary holds for its grammars stays within its limits, and changes no mask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "core/randomness.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_source.h"
#include "grammar/sampling/grammar_sampler.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/random_schema.h"

namespace specdec {
namespace {

using Vocabulary = std::shared_ptr<GrammarVocabulary>;
using Grammar = std::shared_ptr<const CompiledGrammar>;
using Masks = std::vector<std::vector<Token>>;

constexpr uint32_t kSeed = 9;
constexpr size_t kTokens = 1'000;

/// Limits so tight that nothing is kept but what was made last.
constexpr GrammarVocabularyLimits kTiny = {
    .max_regex_states = 2'000'000, .max_language_bytes = 1, .max_string_mask_bytes = 1};
constexpr GrammarLimits kTinyGrammar = {.max_mask_bytes = 1};

Grammar compile(const Vocabulary& vocabulary, const std::string& schema, uint32_t option,
                const GrammarLimits& limits) {
  const bool plain = option % 2 == 0;
  const JsonSchemaOptions options = json_options(plain, plain ? "compact" : "any",
                                                 plain ? EscapeStyle::kAny : EscapeStyle::kMinimal);
  try {
    return compile_json_schema(vocabulary, schema, options, limits);
  } catch (const GrammarError&) {
    return nullptr;
  }
}

/// The masks along a text, which is the same for the same masks.
Masks masks_of(const Grammar& grammar, uint32_t text) {
  Masks masks;
  CounterRandomness random(1, text);
  StateId state = grammar->start();
  const auto tokens = sample_grammar(grammar, {.max_tokens = 30}, random);
  for (const Token token : tokens.value_or(std::vector<Token>())) {
    masks.push_back(grammar->mask(state).tokens());
    state = grammar->next(state, token);
  }
  return masks;
}

/// Grammars that live on while languages are dropped, and grammars of other languages.
TEST(VocabularyLimitsTest, MasksAreThoseWithoutLimits) {
  RandomSchema random(11);
  std::vector<Grammar> grammars, limited;
  const Vocabulary vocabulary = tiny_vocabulary(kSeed, kTokens);
  const Vocabulary tiny = tiny_vocabulary(kSeed, kTokens, {}, kTiny);
  for (uint32_t i = 0; i < 60; ++i) {
    const std::string schema = to_json(random.schema(2));
    grammars.push_back(compile(vocabulary, schema, i, {}));
    limited.push_back(compile(tiny, schema, i, kTinyGrammar));
    ASSERT_EQ(grammars.back() == nullptr, limited.back() == nullptr) << schema;
    for (uint32_t text = 0; text < 2; ++text) {
      const size_t which = (i * 7 + text * 5) % (i + 1);  // also those of dropped languages
      if (grammars[which] != nullptr) {
        ASSERT_EQ(masks_of(grammars[which], text), masks_of(limited[which], text)) << which;
      }
    }
  }
}

TEST(VocabularyLimitsTest, LanguagesLiveAsLongAsTheirGrammars) {
  const Vocabulary tiny = tiny_vocabulary(kSeed, kTokens, {}, kTiny);
  Grammar first = compile(tiny, R"({"type": "string", "pattern": "^[ab]{3}$"})", 0, {});
  const std::weak_ptr<GrammarLanguages> languages = tiny->languages();
  const Grammar second = compile(tiny, R"({"type": "string", "pattern": "^[cd]{3}$"})", 0, {});
  EXPECT_NE(tiny->languages(), languages.lock());
  EXPECT_FALSE(languages.expired());
  EXPECT_NE(first->next(first->start(), "\"aba\""), Automaton::kDead);
  first = nullptr;
  EXPECT_TRUE(languages.expired());
}

/// Equal strings in grammars of different languages have the same mask, which is made once.
TEST(VocabularyLimitsTest, WalksOutliveLanguages) {
  const Vocabulary vocabulary =
      tiny_vocabulary(kSeed, kTokens, {}, {.max_regex_states = 2'000'000, .max_language_bytes = 1});
  const std::string schema = R"({"type": "string", "pattern": "^[a-z1]*$"})";
  const auto base = [&] {
    const Grammar grammar = compile(vocabulary, schema, 0, {});
    return grammar->mask(grammar->next(grammar->start(), "\"")).content().base;
  };
  const auto before = base();
  const uint64_t walks = vocabulary->strings().walks();
  const auto languages = vocabulary->languages();
  EXPECT_EQ(base(), before);
  EXPECT_NE(vocabulary->languages(), languages);
  EXPECT_EQ(vocabulary->strings().walks(), walks);
}

std::string pattern_schema(uint32_t i) {
  return R"({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string",
    "pattern": "^(ab|)" +
         std::to_string(i) + R"([a-m]*){2,9}x?$"}, "b": {"type": "string",
    "pattern": "foo)" +
         std::to_string(i % 97) + R"(|[0-9]b"}, "c": {"multipleOf": )" +
         std::to_string(i % 31 + 1) + "}}}";
}

TEST(VocabularyLimitsTest, ManySchemas) {
  constexpr uint64_t kMaxLanguages = 1 << 20;
  const GrammarVocabularyLimits limits = {.max_regex_states = 20'000,
                                          .max_language_bytes = kMaxLanguages,
                                          .max_string_mask_bytes = 1 << 18};
  const Vocabulary vocabulary = tiny_vocabulary(kSeed, kTokens, {}, limits);
  uint64_t largest_growth = 0;
  uint64_t before = 0;
  std::vector<std::weak_ptr<GrammarLanguages>> met;
  for (uint32_t i = 0; i < 600; ++i) {
    const Grammar grammar =
        compile_json_schema(vocabulary, pattern_schema(i), {}, {.max_regex_states = 2'500});
    StateId state = grammar->start();
    for (const char c : std::string_view(R"({"a":"abcdab","b":"foo)")) {
      state = grammar->next(state, std::string_view(&c, 1));
      (void)grammar->mask(state);
    }
    const auto sizes = vocabulary->cache_sizes();
    for (const auto& [name, bytes, max_bytes] : sizes) {
      const bool grows_within_a_grammar = name == "languages";
      EXPECT_LE(bytes, grows_within_a_grammar ? max_bytes + largest_growth + (1 << 18) : max_bytes)
          << name << " after " << i;
    }
    largest_growth = std::max(largest_growth, sizes[0].bytes - std::min(before, sizes[0].bytes));
    before = sizes[0].bytes;
    if (met.empty() || met.back().lock() != vocabulary->languages()) {
      met.push_back(vocabulary->languages());
    }
  }
  EXPECT_GE(met.size(), 3U);
  met.pop_back();
  EXPECT_TRUE(std::ranges::all_of(met, [](const auto& one) { return one.expired(); }));
}

/// A grammar may build what its own limit says, however many came before.
TEST(VocabularyLimitsTest, NoGrammarPaysForThoseBeforeIt) {
  const Vocabulary vocabulary = tiny_vocabulary(kSeed, kTokens, {}, {.max_regex_states = 8'000});
  GrammarSource source;
  source.kind = GrammarKind::kRegex;
  source.limits.max_regex_states = 1'000;
  for (uint32_t i = 0; i < 60; ++i) {
    source.text =
        "[ab]*" + std::string(1, static_cast<char>('a' + i % 26)) + "[ab]{8}" + std::to_string(i);
    const Grammar grammar = compile_grammar(vocabulary, source);
    StateId state = grammar->start();
    for (uint32_t bit = 0; bit < 300; ++bit) {
      state = grammar->next(state, bit * 2'654'435'761U >> 30 & 1U ? "a" : "b");
      ASSERT_NE(state, Automaton::kDead) << i;
    }
  }
}

TEST(VocabularyLimitsTest, ThreadsWhileLanguagesAreDropped) {
  const Vocabulary tiny = tiny_vocabulary(kSeed, kTokens, {}, kTiny);
  const Vocabulary vocabulary = tiny_vocabulary(kSeed, kTokens);
  constexpr uint32_t kSchemas = 12;
  std::vector<Masks> expected;
  for (uint32_t i = 0; i < kSchemas; ++i) {
    expected.push_back(masks_of(compile_json_schema(vocabulary, pattern_schema(i)), i));
  }
  std::array<std::vector<Masks>, 3> found;
  std::vector<std::thread> threads;
  for (auto& masks : found) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kSchemas; ++i) {
        masks.push_back(masks_of(compile_json_schema(tiny, pattern_schema(i)), i));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& masks : found) {
    EXPECT_EQ(masks, expected);
  }
}

}  // namespace
}  // namespace specdec
