// Masks of canonical grammars against the tokenizer's encodings of all texts.
#include "grammar/canonical/canonical_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "core/formats/utf8.h"
#include "core/tokenizers/tokenizer.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/merge_tokenizer.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;
using Grammar = std::shared_ptr<const CompiledGrammar>;

struct MasksFixture {
  explicit MasksFixture(std::unique_ptr<Tokenizer> made)
      : tokenizer(std::move(made)),
        vocabulary(make_grammar_vocabulary(*tokenizer, std::vector{kTinyEnd})) {
    vocabulary->learn_cuts(*tokenizer);
  }

  Grammar compile(GrammarSource source) const {
    source.cuts = Cuts::kCanonical;
    return compile_grammar(vocabulary, source);
  }
  Grammar compile(GrammarKind kind, std::string text) const {
    GrammarSource source;
    source.kind = kind;
    source.text = std::move(text);
    return compile(source);
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<GrammarVocabulary> vocabulary;
};

/// The next tokens of all beginnings of the texts' encodings.
std::map<Tokens, std::set<Token>> next_tokens(const Tokenizer& tokenizer,
                                              const std::vector<std::string>& texts) {
  std::map<Tokens, std::set<Token>> next;
  for (const std::string& text : texts) {
    Tokens tokens = tokenizer.encode(text);
    tokens.push_back(kTinyEnd);
    Tokens before;
    for (const Token token : tokens) {
      next[before].insert(token);
      before.push_back(token);
    }
  }
  return next;
}

void expect_exact(const MasksFixture& fixture, const std::vector<std::string>& texts) {
  GrammarSource source;
  source.kind = GrammarKind::kChoice;
  source.choices = texts;
  const Grammar grammar = fixture.compile(source);
  for (const auto& [before, next] : next_tokens(*fixture.tokenizer, texts)) {
    GrammarMatcher place(grammar);
    for (const Token token : before) {
      ASSERT_TRUE(place.accept(token)) << fixture.tokenizer->decode(before);
    }
    ASSERT_FALSE(place.mask().is_fallback());
    ASSERT_EQ(place.mask().tokens(), Tokens(next.begin(), next.end()))
        << "after '" << fixture.tokenizer->decode(before) << "' of "
        << ::testing::PrintToString(texts);
  }
}

TEST(CanonicalMasksTest, OfListedTextsTheyAreTheTokensOfTheirEncodings) {
  std::mt19937 random(1);
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const MasksFixture fixture(merge_tokenizer(random_merge_pieces(seed, 6 + seed % 30)));
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < 1 + seed % 9; ++i) {
      std::string text;
      for (uint32_t length = 1 + random() % 6; length > 0; --length) {
        text += "abc <\n"[random() % 6];
      }
      texts.push_back(text);
    }
    expect_exact(fixture, texts);
  }
}

TEST(CanonicalMasksTest, ATokenThatOnlyAnotherCutGoesOnFromIsForbidden) {
  const MasksFixture fixture(
      merge_tokenizer({{"h", "e", "l", "o", "p"}, {}, {"he", "hel", "lo", "hello", "help"}}));
  GrammarSource source;
  source.kind = GrammarKind::kChoice;
  source.choices = {"hello", "help"};
  const auto id = [&](const char* piece) { return *fixture.tokenizer->find_piece(piece); };
  EXPECT_EQ(fixture.compile(source)->mask(fixture.compile(source)->start()).tokens(),
            (Tokens{id("hello"), id("help")}));
  source.choices = {"hello", "help", "helo"};
  EXPECT_EQ(GrammarMatcher(fixture.compile(source)).mask().tokens(),
            (Tokens{id("hel"), id("hello"), id("help")}));
}

/// "▁" has no encoding: the tokenizer takes it for a space.
TEST(CanonicalMasksTest, MasksBeyondTheTokenizersCutAreAFallback) {
  const MasksFixture fixture(merge_tokenizer({{"a", "b"}, {}, {"ab"}}));
  GrammarSource source;
  source.kind = GrammarKind::kChoice;
  source.choices = {"ab", "\xE2\x96\x81"};
  GrammarMatcher own(fixture.compile(source));
  EXPECT_EQ(own.mask().tokens(), Tokens{*fixture.tokenizer->find_piece("ab")});
  EXPECT_FALSE(own.mask().is_fallback());
  source.choices = {"\xE2\x96\x81"};
  GrammarMatcher other(fixture.compile(source));
  while (!other.is_complete()) {
    EXPECT_TRUE(other.mask().is_fallback()) << other.length();
    ASSERT_TRUE(other.accept(other.mask().tokens().front()));
  }
  EXPECT_EQ(other.length(), 3);
  EXPECT_FALSE(other.mask().is_fallback());
}

/// The tokenizer's own tokens and one of another cut.
TEST(CanonicalMasksTest, MatcherRefusesOtherCuts) {
  const MasksFixture fixture(load_tokenizer(SPECDEC_SOURCE_DIR "/models/target"));
  const Grammar grammar = fixture.compile(GrammarKind::kRegex, "the [a-z]+");
  GrammarMatcher place(grammar);
  EXPECT_FALSE(place.accept(*fixture.tokenizer->find_piece("t")));
  for (const Token token : fixture.tokenizer->encode("the people")) {
    EXPECT_TRUE(place.accept(token));
  }
  EXPECT_TRUE(place.is_complete());
}

/// Among the allowed tokens; after `wild` of them an end where it may come, and tokens with
/// punctuation, which lead to one.
void expect_walk(const MasksFixture& fixture, const Grammar& grammar, std::mt19937& random,
                 size_t wild) {
  GrammarMatcher place(grammar);
  Tokens tokens;
  while (tokens.size() < 8 * wild) {
    const TokenMask mask = place.mask();
    ASSERT_GT(mask.count(), 0) << "after " << fixture.tokenizer->decode(tokens);
    ASSERT_EQ(mask.allows(kTinyEnd), place.is_complete());
    ASSERT_FALSE(mask.is_fallback()) << "after " << fixture.tokenizer->decode(tokens);
    if (place.is_complete() && (tokens.size() > wild || random() % 4 == 0)) {
      break;
    }
    const Tokens allowed = mask.tokens();
    Token token = kTinyEnd;
    for (int tries = 0; tries < 30 && (tries == 0 || token == kTinyEnd); ++tries) {
      token = allowed[random() % allowed.size()];
    }
    if (token == kTinyEnd) {
      break;
    }
    if (tokens.size() > wild) {
      for (const Token other : allowed) {
        const std::string_view bytes = grammar->vocabulary().bytes(other);
        const bool closes = bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "\"}";
        token = closes && random() % 3 != 0 ? other : token;
      }
    }
    ASSERT_TRUE(place.accept(token));
    tokens.push_back(token);
    const std::string text = fixture.tokenizer->decode(tokens);
    if (is_utf8(text)) {  // all beginnings too: what is looked at is the text so far
      Tokens own = fixture.tokenizer->encode(text);
      ASSERT_EQ(own, tokens) << ::testing::PrintToString(text);
    }
  }
}

const std::vector<std::pair<GrammarKind, std::string>> kGrammars = {
    {GrammarKind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array",
        "items": {"enum": ["red", "green", "the blue one"]}}}, "required": ["name", "age", "tags"],
        "additionalProperties": false})"},
    {GrammarKind::kJsonSchema, R"({"type": "object", "additionalProperties": {"type": "number"}})"},
    {GrammarKind::kJsonSchema, R"({"type": "array", "items": {"type": "string",
        "pattern": "^[a-z ]{2,9}$"}, "minItems": 2, "uniqueItems": true})"},
    {GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 12})"},
    {GrammarKind::kJsonSchema, R"({"type": "object", "patternProperties": {"^[a-c]+$": {}},
        "additionalProperties": false, "minProperties": 1})"},
    {GrammarKind::kJsonSchema, "{}"},
    {GrammarKind::kRegex, R"([A-Z]{3}-[0-9]{1,4})"},
    {GrammarKind::kRegex, R"((the|then|there) [a-z]* (of|office|off)\n\n+)"},
    {GrammarKind::kRegex, R"([^a]*)"},
    {GrammarKind::kGbnf, R"g(root ::= "(" root ")" | [a-z]+ " and " root | "x")g"},
    {GrammarKind::kGbnf, R"(root ::= (" "+ [a-z]+ "\n")+)"},
};

void expect_walks(const MasksFixture& fixture, int count) {
  std::mt19937 random(5);
  for (const auto& [kind, text] : kGrammars) {
    SCOPED_TRACE(text);
    const Grammar grammar = fixture.compile(kind, text);
    for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
      expect_walk(fixture, grammar, random, 12);
    }
  }
}

TEST(CanonicalMasksTest, WalksEndAndAreTheTokenizersOwn) {
  expect_walks(MasksFixture(load_tokenizer(SPECDEC_SOURCE_DIR "/models/target")), 8);
}

TEST(CanonicalMasksTest, WalksOfALargeTokenizer) {
  const char* file = std::getenv("SPECDEC_TOKENIZER");
  if (file == nullptr) {
    GTEST_SKIP() << "set SPECDEC_TOKENIZER to a large tokenizer's file";
  }
  expect_walks(MasksFixture(load_tokenizer(file)), 2);
}

}  // namespace
}  // namespace specdec
