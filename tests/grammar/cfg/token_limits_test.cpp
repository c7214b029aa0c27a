// Terminals of Lark grammars that bound their tokens, name[max_tokens=...], against the definition.
#include "grammar/cfg/token_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "grammar/forced_tokens.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "grammar/sampling/grammar_sampler.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/grammar/cfg/grammar_text.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/merge_tokenizer.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Tokens = std::vector<Token>;

/// The end token, all bytes, and texts.
std::shared_ptr<GrammarVocabulary> limit_vocabulary(const std::vector<std::string>& texts) {
  std::vector<std::string> bytes(2);
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  bytes.insert(bytes.end(), texts.begin(), texts.end());
  return std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector{kTinyEnd});
}

GrammarMatcher limit_matcher(const std::string& lark, const std::vector<std::string>& texts = {}) {
  return GrammarMatcher(
      compile_grammar(limit_vocabulary(texts), source_of_text(GrammarKind::kLark, lark)));
}

std::string limit_error(const std::string& lark) {
  return grammar_error([&] { check_grammar(source_of_text(GrammarKind::kLark, lark)); });
}

/// One token for each piece, the longest vocabulary entry of these bytes.
bool takes_tokens(const GrammarMatcher& start, const std::vector<std::string>& pieces) {
  GrammarMatcher matcher = start;
  const auto& vocabulary = matcher.grammar().vocabulary();
  for (const std::string& piece : pieces) {
    Token token = 0;
    while (token < vocabulary.vocab_size() && vocabulary.bytes(token) != piece) {
      ++token;
    }
    if (!matcher.accept(token)) {
      return false;
    }
  }
  return matcher.is_complete();
}

TEST(TokenLimitsTest, AtMostSoManyTokensHaveBytesOfTheTerminal) {
  for (const std::string rule :
       {"text[max_tokens=2]: /[ab]*/", "text: TEXT\nTEXT[max_tokens=2]: /[ab]*/",
        "text[max_tokens=2]: T\nT: (\"a\" | B)*\nB: \"b\""}) {
    const GrammarMatcher start =
        limit_matcher("start: \"<\" text \">\"\n" + rule, {"ab", "<a", "a>", "aab>", "<abb>"});
    EXPECT_TRUE(takes_tokens(start, {"<", ">"})) << rule;
    EXPECT_TRUE(takes_tokens(start, {"<", "ab", "ab", ">"}));
    EXPECT_TRUE(takes_tokens(start, {"<a", "aab>"}));
    EXPECT_TRUE(takes_tokens(start, {"<abb>"}));
    EXPECT_FALSE(takes_tokens(start, {"<", "a", "b", "a>"}));
    EXPECT_FALSE(takes_tokens(start, {"<a", "ab", "a>"}));
    EXPECT_FALSE(takes_tokens(start, {"<", "a", "a", "a", ">"}));
  }
}

/// What the definition says of "<", the terminal, and /a?>/: some end of the terminal fits.
bool may_begin_limited(const std::vector<std::string>& pieces, size_t most) {
  std::string text;
  std::vector<size_t> ends;
  for (const std::string& piece : pieces) {
    text += piece;
    ends.push_back(text.size());
  }
  if (text.empty() || text[0] != '<') {
    return text.empty();
  }
  for (size_t end = 1; end <= text.size(); ++end) {
    const auto inside = std::ranges::count_if(ends, [&](size_t at) { return at > 1 && at < end; });
    const std::string rest = text.substr(end);
    const bool fits = end == 1 || static_cast<size_t>(inside) + 1 <= most;
    if (fits && text.find_first_not_of("ab", 1) >= end &&
        (rest.empty() || rest == "a" || rest == "a>" || rest == ">")) {
      return true;
    }
  }
  return false;
}

TEST(TokenLimitsTest, MasksAreWhatTheDefinitionSays) {
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (uint32_t length = 2 + random() % 4; length > 0; --length) {
      text += "<ab>abab"[random() % 8];
    }
    texts.push_back(text);
  }
  for (size_t most = 1; most <= 3; ++most) {
    const GrammarMatcher start = limit_matcher(
        "start: \"<\" text /a?>/\ntext[max_tokens=" + std::to_string(most) + "]: /[ab]*/", texts);
    const auto& vocabulary = start.grammar().vocabulary();
    for (int walks = 0; walks < 60; ++walks) {
      GrammarMatcher matcher = start;
      std::vector<std::string> pieces;
      for (int step = 0; step < 8; ++step) {
        const TokenMask mask = matcher.mask();
        ASSERT_FALSE(mask.empty());
        Tokens allowed;
        for (Token token = 2; token < vocabulary.vocab_size(); ++token) {
          pieces.emplace_back(vocabulary.bytes(token));
          ASSERT_EQ(mask.allows(token), may_begin_limited(pieces, most))
              << ::testing::PrintToString(pieces) << " of " << most;
          pieces.pop_back();
          if (mask.allows(token)) {
            allowed.push_back(token);
          }
        }
        if (allowed.empty()) {
          ASSERT_TRUE(matcher.is_complete());
          break;
        }
        const Token token = allowed[random() % allowed.size()];
        ASSERT_TRUE(matcher.accept(token));
        pieces.emplace_back(vocabulary.bytes(token));
      }
    }
  }
}

TEST(TokenLimitsTest, TokensOfOneCharacterCountAsOne) {
  const GrammarMatcher start = limit_matcher("start: text \";\"\ntext[max_tokens=2]: /.*/");
  EXPECT_TRUE(takes_tokens(start, {"\xC3", "\xA9", "\xF0", "\x9F", "\x98", "\x80", ";"}));
  EXPECT_FALSE(takes_tokens(start, {"\xC3", "\xA9", "\xF0", "\x9F", "\x98", "\x80", "x", ";"}));
  EXPECT_FALSE(takes_tokens(start, {"\xC3", "\xA9", "x", "\xC3", "\xA9", ";"}));
  EXPECT_FALSE(takes_tokens(start, {"\xC3", "\xA9", ";", ";", ";"}));
}

TEST(TokenLimitsTest, EachUseOfARuleCountsAnew) {
  const GrammarMatcher start = limit_matcher(
      "start: word (\",\" word)*\nword[max_tokens=1]: /[a-z]+/\n%ignore \" \"", {"ab"});
  EXPECT_TRUE(takes_tokens(start, {"ab", ",", "a", " ", ",", " ", "ab"}));
  EXPECT_FALSE(takes_tokens(start, {"ab", "a"}));
  EXPECT_FALSE(takes_tokens(start, {"ab", ","}));
}

TEST(TokenLimitsTest, BytesCountNothing) {
  GrammarMatcher matcher = limit_matcher("start: text \";\"\ntext[max_tokens=1]: /a*/", {"aa"});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(matcher.accept_bytes("aa"));
  }
  ASSERT_TRUE(matcher.accept(2 + 'a'));
  EXPECT_FALSE(matcher.accept_bytes("a"));
  EXPECT_TRUE(matcher.accept_bytes(";"));
}

TEST(TokenLimitsTest, CopiesRollbacksAndTreesCount) {
  const Token a = 2 + 'a';
  GrammarMatcher matcher = limit_matcher("start: text \"a\" \";\"\ntext[max_tokens=2]: /a*/");
  ASSERT_TRUE(matcher.accept(a));
  const std::vector<TokenMask> masks =
      matcher.tree_masks(Tokens{a, a, a, a, ';' + 2}, {-1, 0, 1, 2, 1});
  EXPECT_TRUE(masks[0].allows(a) && masks[1].allows(';' + 2));
  EXPECT_FALSE(masks[1].allows(a)) << "two in the terminal and one behind it";
  EXPECT_TRUE(masks[2].empty() && masks[3].empty());
  EXPECT_TRUE(masks[4].allows(kTinyEnd));
  for (int round = 0; round < 2; ++round) {
    GrammarMatcher copy = matcher;
    ASSERT_TRUE(copy.accept(a) && copy.accept(a));
    EXPECT_FALSE(copy.accept(a));
    copy.rollback(1);
    EXPECT_TRUE(copy.accept(a));
    copy.rollback(3);
    EXPECT_TRUE(copy.accept(a) && copy.accept(a) && copy.accept(a));
    EXPECT_FALSE(copy.accept(a));
  }
}

TEST(TokenLimitsTest, CountsShareOneMaskUpToTheLast) {
  GrammarMatcher matcher = limit_matcher("start: \"a\" text \";\"\ntext[max_tokens=900]: /[^;]*/");
  ASSERT_TRUE(matcher.accept(2 + 'a') && matcher.accept(2 + 'b'));
  const int64_t allowed = matcher.mask().count();
  const uint64_t bytes = matcher.grammar().mask_bytes();
  for (int i = 1; i < 899; ++i) {
    ASSERT_TRUE(matcher.accept(2 + 'b'));
    ASSERT_EQ(matcher.mask().count(), allowed);
  }
  EXPECT_EQ(matcher.grammar().mask_bytes(), bytes);
  EXPECT_THAT(matcher.explain(), HasSubstr("text (at most 1 more token): "));
  ASSERT_TRUE(matcher.accept(2 + 'b'));
  EXPECT_EQ(matcher.mask().tokens(), Tokens{2 + ';'});
  EXPECT_EQ(forced_tokens(matcher, 9), Tokens{2 + ';'});
}

TEST(TokenLimitsTest, WithinTags) {
  const auto vocabulary = limit_vocabulary({"<t>", "</t>", "ab"});
  const auto grammar = compile_grammar(vocabulary, source_of_text(GrammarKind::kTags, R"({
      "type": "triggered_tags", "triggers": ["<t>"], "tags": [{"begin": "<t>", "end": "</t>",
      "content": {"type": "lark", "grammar":
          "start: text\ntext[max_tokens=2]: /[a-z<\\/]*/"}}]})"));
  const GrammarMatcher start(grammar);
  EXPECT_TRUE(takes_tokens(start, {"x", "y", "z", "<t>", "ab", "ab", "</t>", "a", "b", "c"}));
  EXPECT_TRUE(takes_tokens(start, {"<t>", "ab", "</t>", "<t>", "ab", "a", "</t>"}));
  EXPECT_FALSE(takes_tokens(start, {"<t>", "ab", "ab", "ab", "</t>"}));
}

TEST(TokenLimitsTest, CanonicalTextsCountToo) {
  const auto tokenizer = merge_tokenizer({{"a", "b", ";"}, {}, {"ab", "abab", "b;"}});
  const auto vocabulary = make_grammar_vocabulary(*tokenizer, std::vector{kTinyEnd});
  vocabulary->learn_cuts(*tokenizer);
  GrammarSource source =
      source_of_text(GrammarKind::kLark, "start: text \";\"\ntext[max_tokens=2]: /[ab]*/");
  source.cuts = Cuts::kCanonical;
  std::mt19937 random(1);
  const auto grammar = compile_grammar(vocabulary, source);
  for (int walks = 0; walks < 50; ++walks) {
    GrammarMatcher place(grammar);
    Tokens tokens;
    std::string text;
    while (!place.is_complete()) {
      const Tokens allowed = place.mask().tokens();
      ASSERT_FALSE(allowed.empty() || place.mask().is_fallback()) << text;
      tokens.push_back(allowed[random() % allowed.size()]);
      text += vocabulary->bytes(tokens.back());
      ASSERT_TRUE(place.accept(tokens.back()));
    }
    EXPECT_EQ(tokenizer->encode(text), tokens) << text;
    EXPECT_LE(tokens.size(), 3U) << text;
  }
}

TEST(TokenLimitsTest, SamplesEnd) {
  const auto grammar = compile_grammar(
      tiny_vocabulary(1, 100),
      source_of_text(GrammarKind::kLark,
                     "start: (\"[\" text \"]\")+ \"!\"\ntext[max_tokens=3]: /[^\\[\\]]+/"));
  CounterRandomness random(1, 0, 0);
  for (int i = 0; i < 20; ++i) {
    const auto tokens = sample_grammar(grammar, {}, random);
    ASSERT_TRUE(tokens.has_value());
    GrammarMatcher matcher(grammar);
    for (const Token token : *tokens) {
      ASSERT_TRUE(matcher.accept(token));
    }
    EXPECT_TRUE(matcher.is_complete());
  }
}

TEST(TokenLimitsTest, WhatCannotEndAnywhereIsRefused) {
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=3]: /[a-z]*;/"),
              AllOf(StartsWith("g:2:1: "), HasSubstr("'a' begins a text"), HasSubstr("/.*/")));
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=3]: /(ab)*/"), HasSubstr("'a' begins"));
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=3]: /.{3,9}/"), HasSubstr("begins a text"));
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=3]: /.{0,9999999}/"),
              HasSubstr("smaller counts"));
  EXPECT_EQ(limit_error("start: text\ntext[max_tokens=3]: /(.|\\n){0,100}/"), "no error");
  EXPECT_EQ(limit_error("start: text\ntext[max_tokens=3]: /[a-z][a-z0-9]*/"), "no error");
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=0]: /.*/"),
              AllOf(StartsWith("g:2:17: "), HasSubstr("from 1 to")));
  for (const std::string value : {"1000000001", "4294967296", "99999999999999999999999"}) {
    EXPECT_THAT(limit_error("start: text\ntext[max_tokens=" + value + "]: /.*/"),
                AllOf(StartsWith("g:2:17: "), HasSubstr("from 1 to 1000000000")));
  }
  EXPECT_EQ(limit_error("start: text\ntext[max_tokens=1000000000]: /.*/"), "no error");
  for (const std::string value : {"", "=", "=x", "=-1"}) {
    EXPECT_THAT(limit_error("start: text\ntext[max_tokens" + value + "]: /.*/"),
                HasSubstr("max_tokens needs a number: max_tokens=20"));
  }
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=2, suffix=\";\"]: /.*/"),
              AllOf(StartsWith("g:2:5: "), HasSubstr("behind it in a rule")));
  EXPECT_THAT(limit_error("start: text\ntext[max_tokens=2]: other\nother: \"a\""),
              HasSubstr("cannot use the rule 'other'"));
  for (const std::string use : {"A: T \"b\"", "A[lazy]: T", "A: \"b\"\n%ignore T"}) {
    EXPECT_THAT(limit_error("start: A\nT[max_tokens=2]: /a*/\n" + use),
                AllOf(ContainsRegex("^g:[34]:"), HasSubstr("no part of a terminal")))
        << use;
  }
}

}  // namespace
}  // namespace specdec
