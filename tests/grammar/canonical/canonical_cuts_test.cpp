// What may follow what, against the tokenizer itself.
#include "grammar/canonical/canonical_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/grammar_vocabulary.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/merge_tokenizer.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

struct CutsFixture {
  explicit CutsFixture(std::unique_ptr<Tokenizer> made)
      : tokenizer(std::move(made)), vocabulary(make_grammar_vocabulary(*tokenizer)) {
    vocabulary->learn_cuts(*tokenizer);
  }

  bool allows(CanonicalCuts::LeftId left, Token token) {
    return (cuts().allowed_after(left)->at(static_cast<size_t>(token) / 32) >> (token % 32) & 1) !=
           0;
  }
  CanonicalCuts& cuts() const { return *vocabulary->cuts(); }
  /// How many of the tokens may follow one another, from the first on.
  size_t allowed_part(const Tokens& tokens) {
    CanonicalCuts::LeftId left = CanonicalCuts::kStart;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!allows(left, tokens[i])) {
        return i;
      }
      left = cuts().next(left, tokens[i]);
    }
    return tokens.size();
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<GrammarVocabulary> vocabulary;
};

CutsFixture random_fixture(uint32_t seed) {
  return CutsFixture(merge_tokenizer(random_merge_pieces(seed, 6 + seed % 40)));
}

std::string random_text(const Tokenizer& tokenizer, std::mt19937& random, size_t parts) {
  static const std::vector<std::string> kOdd = {"é",    "日",     "\U0001F600", " ",  "  ",
                                                "\n",   "\n\n\n", "<ab>",       "<a", "\t",
                                                "\x01", "ß",      "\U000E0041", "<"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) {
    const auto token = static_cast<Token>(random() % static_cast<size_t>(tokenizer.vocab_size()));
    const std::string bytes(tokenizer.token_bytes(token));
    text += random() % 4 == 0 || !is_utf8(bytes) ? kOdd[random() % kOdd.size()] : bytes;
  }
  return text;
}

/// A walk over what is allowed, ended between two characters.
Tokens random_walk(CutsFixture& fixture, std::mt19937& random, size_t length) {
  Tokens tokens;
  CanonicalCuts::LeftId left = CanonicalCuts::kStart;
  while (tokens.size() < length || !is_utf8(fixture.tokenizer->decode(tokens))) {
    const auto words = fixture.cuts().allowed_after(left);
    Tokens allowed;
    for (Token token = 0; token < fixture.vocabulary->vocab_size(); ++token) {
      if ((words->at(static_cast<size_t>(token) / 32) >> (token % 32) & 1) != 0) {
        allowed.push_back(token);
      }
    }
    if (allowed.empty()) {  // a byte whose every character has a piece
      return {};
    }
    tokens.push_back(allowed[random() % allowed.size()]);
    left = fixture.cuts().next(left, tokens.back());
  }
  return tokens;
}

void expect_encodings_allowed(CutsFixture& fixture, std::mt19937& random, int count) {
  for (int i = 0; i < count; ++i) {
    const std::string text = random_text(*fixture.tokenizer, random, 1 + random() % 12);
    const Tokens tokens = fixture.tokenizer->encode(text);
    if (std::any_of(tokens.begin(), tokens.end(),
                    [&](Token token) { return fixture.vocabulary->bytes(token).empty(); })) {
      continue;  // the name of a control piece
    }
    ASSERT_EQ(fixture.allowed_part(tokens), tokens.size())
        << ::testing::PrintToString(text) << ::testing::PrintToString(tokens);
  }
}

void expect_walks_canonical(CutsFixture& fixture, std::mt19937& random, int count) {
  for (int i = 0; i < count; ++i) {
    const Tokens tokens = random_walk(fixture, random, 2 + random() % 8);
    const std::string text = fixture.tokenizer->decode(tokens);
    ASSERT_EQ(fixture.tokenizer->encode(text), tokens) << ::testing::PrintToString(text);
  }
}

TEST(CanonicalCutsTest, EveryPairIsAllowedExactlyWhenItIsItsOwnEncoding) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CutsFixture fixture = random_fixture(seed);
    for (Token a = 0; a < fixture.vocabulary->vocab_size(); ++a) {
      const std::string first(fixture.vocabulary->bytes(a));
      if (!is_utf8(first) || first.empty() || fixture.tokenizer->encode(first) != Tokens{a}) {
        continue;
      }
      const auto left = fixture.cuts().next(CanonicalCuts::kStart, a);
      for (Token b = 0; b < fixture.vocabulary->vocab_size(); ++b) {
        const std::string second(fixture.vocabulary->bytes(b));
        if (is_utf8(second) && !second.empty()) {
          ASSERT_EQ(fixture.allows(left, b),
                    fixture.tokenizer->encode(first + second) == (Tokens{a, b}))
              << seed << " '" << first << "' '" << second << "'";
        }
      }
    }
  }
}

TEST(CanonicalCutsTest, EncodingsAreAllowedAndAllThatIsAllowedIsAnEncoding) {
  std::mt19937 random(1);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CutsFixture fixture = random_fixture(seed);
    expect_encodings_allowed(fixture, random, 200);
    expect_walks_canonical(fixture, random, 100);
  }
}

TEST(CanonicalCutsTest, ShippedTokenizers) {
  std::mt19937 random(2);
  for (const char* file : {"tokenizer.model", "tokenizer.json"}) {
    CutsFixture fixture(load_tokenizer(std::string(SPECDEC_SOURCE_DIR "/models/target/") + file));
    expect_encodings_allowed(fixture, random, 3'000);
    expect_walks_canonical(fixture, random, 500);
  }
}

/// SPECDEC_TOKENIZER names a file of Gemma's own, which is too large to be shipped.
TEST(CanonicalCutsTest, LargeTokenizer) {
  const char* file = std::getenv("SPECDEC_TOKENIZER");
  if (file == nullptr) {
    GTEST_SKIP() << "set SPECDEC_TOKENIZER to a large tokenizer's file";
  }
  std::mt19937 random(3);
  CutsFixture fixture(load_tokenizer(file));
  expect_encodings_allowed(fixture, random, 20'000);
  expect_walks_canonical(fixture, random, 300);
}

TEST(CanonicalCutsTest, WholePiecesAreNotSpeltByOthers) {
  CutsFixture fixture(merge_tokenizer(
      {{"a", "b", "<", ">", " "}, {"<ab>", "  ", "   ", "\n", "\n\n"}, {"ab", "b>"}}));
  const auto id = [&](const char* piece) { return *fixture.tokenizer->find_piece(piece); };
  EXPECT_EQ(fixture.allowed_part({id("<"), id("ab"), id("<")}), 3u);
  EXPECT_EQ(fixture.allowed_part({id("<"), id("ab"), id(">")}), 2u);
  EXPECT_EQ(fixture.allowed_part({id("<ab>"), id(">")}), 2u);
  EXPECT_EQ(fixture.allowed_part({id("\n"), id("\n")}), 1u);
  EXPECT_EQ(fixture.allowed_part({id("\n\n"), id("\n\n"), id("\n")}), 3u);
  EXPECT_EQ(fixture.allowed_part({id("▁▁"), id("▁")}), 1u);
  EXPECT_EQ(fixture.allowed_part({id("▁▁▁"), id("▁"), id("▁")}), 2u);
}

TEST(CanonicalCutsTest, BytesSpellOnlyCharactersWithoutAPiece) {
  CutsFixture fixture(merge_tokenizer({{"a", "é", "日"}, {}, {}}));
  const auto byte = [&](int value) { return static_cast<Token>(4 + value); };
  EXPECT_EQ(fixture.allowed_part({byte('b')}), 1u);
  EXPECT_EQ(fixture.allowed_part({byte('a')}), 0u);
  EXPECT_EQ(fixture.allowed_part({byte(0xC3), byte(0xA8), byte('b')}), 3u);
  EXPECT_EQ(fixture.allowed_part({byte(0xC3), byte(0xA9)}), 1u);
  EXPECT_EQ(fixture.allowed_part({byte(0xE6), byte(0x97), byte(0xA5)}), 2u);
  EXPECT_EQ(fixture.allowed_part({byte(0xC3), *fixture.tokenizer->find_piece("a")}), 1u);
}

TEST(CanonicalCutsTest, NeedsATokenizerOfRankedMerges) {
  const LetterTokenizer tokenizer({"a", "b", ""});
  EXPECT_THAT(error_message<ConfigError>([&] {
                GrammarVocabulary({"a", "b", ""}, {2}).learn_cuts(tokenizer);
              }),
              ::testing::HasSubstr("does not cut texts by ranked merges"));
}

}  // namespace
}  // namespace specdec
