#include "grammar/grammar_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/error.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Grammar = std::shared_ptr<const CompiledGrammar>;

Grammar compile_tiny(const std::string& schema) {
  static const auto kVocabulary = tiny_vocabulary(1, 300);
  return compile_json_schema(kVocabulary, schema);
}

Token token_of(const CompiledGrammar& grammar, std::string_view bytes) {
  for (Token token = 0; token < grammar.vocab_size(); ++token) {
    if (grammar.vocabulary().bytes(token) == bytes) {
      return token;
    }
  }
  throw InternalError("no such token");
}

const std::string kRecord = R"({"type": "object", "properties": {"a": {"type": "string"},
    "b": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}, "required": ["a"],
    "additionalProperties": false})";

TEST(GrammarMatcherTest, AcceptAgreesWithTheMask) {
  const Grammar grammar = compile_tiny(kRecord);
  std::mt19937 random(1);
  for (int walks = 0; walks < 20; ++walks) {
    GrammarMatcher matcher(grammar);
    for (int steps = 0; steps < 20 && !matcher.is_ended(); ++steps) {
      const TokenMask mask = matcher.mask();
      for (Token token = 0; token < grammar->vocab_size(); ++token) {
        GrammarMatcher copy = matcher;
        ASSERT_EQ(copy.accept(token), mask.allows(token));
        EXPECT_EQ(copy.length(), matcher.length() + (mask.allows(token) ? 1 : 0));
      }
      EXPECT_FALSE(matcher.accept(-1));
      EXPECT_FALSE(matcher.accept(static_cast<Token>(grammar->vocab_size())));
      const std::vector<Token> tokens = mask.tokens();
      ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]));
    }
  }
}

TEST(GrammarMatcherTest, Ends) {
  const Grammar grammar = compile_tiny(R"({"enum": [1, 12]})");
  GrammarMatcher matcher(grammar);
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_FALSE(matcher.accept(kTinyEnd));
  EXPECT_FALSE(matcher.can_only_end());
  ASSERT_TRUE(matcher.accept(token_of(*grammar, "1")));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.can_only_end()) << "12 is one of them";
  ASSERT_TRUE(matcher.accept(kTinyEnd));
  EXPECT_TRUE(matcher.is_ended());
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.can_only_end());
  EXPECT_EQ(matcher.mask().count(), 0);
  EXPECT_EQ(matcher.forced_bytes(), "");
  EXPECT_FALSE(matcher.accept(kTinyEnd));
  EXPECT_EQ(matcher.length(), 2);
  matcher.rollback(1);
  EXPECT_FALSE(matcher.is_ended());
  EXPECT_TRUE(matcher.mask().allows(kTinyEnd));
  GrammarMatcher text(compile_tiny(R"({"enum": ["a"]})"));
  for (const char* bytes : {"\"", "a", "\""}) {
    EXPECT_FALSE(text.can_only_end());
    ASSERT_TRUE(text.accept(token_of(*grammar, bytes)));
  }
  EXPECT_TRUE(text.can_only_end());
  EXPECT_THAT(text.mask().tokens(), ElementsAre(kTinyEnd));
}

TEST(GrammarMatcherTest, RollbackIsAsIfNeverAccepted) {
  const Grammar grammar = compile_tiny(kRecord);
  std::mt19937 random(2);
  for (int walks = 0; walks < 30; ++walks) {
    GrammarMatcher matcher(grammar);
    std::vector<GrammarMatcher> before = {matcher};
    for (int steps = 0; steps < 25; ++steps) {
      const std::vector<Token> tokens = matcher.mask().tokens();
      if (tokens.empty() || random() % 4 == 0) {
        const auto back = static_cast<int64_t>(random() % before.size());
        matcher.rollback(back);
        before.erase(before.end() - back, before.end());
        EXPECT_EQ(matcher.length(), before.back().length());
        EXPECT_EQ(matcher.state(), before.back().state());
        EXPECT_EQ(matcher.is_ended(), before.back().is_ended());
        EXPECT_EQ(matcher.mask().tokens(), before.back().mask().tokens());
      } else {
        ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]));
        before.push_back(matcher);
      }
    }
  }
  GrammarMatcher fresh(grammar);
  EXPECT_THROW(fresh.rollback(1), InternalError);
  EXPECT_THROW(fresh.rollback(-1), InternalError);
}

/// Random trees with forbidden nodes and end tokens among them.
TEST(GrammarMatcherTest, TreeMasksAreMasksByStepping) {
  const Grammar grammar = compile_tiny(kRecord);
  std::mt19937 random(3);
  for (int trees = 0; trees < 60; ++trees) {
    GrammarMatcher root(grammar);
    for (uint32_t depth = random() % 8; depth > 0 && !root.is_ended(); --depth) {
      const std::vector<Token> tokens = root.mask().tokens();
      ASSERT_TRUE(root.accept(tokens[random() % tokens.size()]));
    }
    std::vector<Token> nodes;
    std::vector<int64_t> parents;
    std::vector<std::optional<GrammarMatcher>> matchers;  // nothing: forbidden
    for (int64_t i = 0; i < 14; ++i) {
      parents.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(i + 1)) - 1);
      std::optional<GrammarMatcher> matcher =
          parents.back() < 0 ? root : matchers[static_cast<size_t>(parents.back())];
      const std::vector<Token> likely = matcher ? matcher->mask().tokens() : std::vector<Token>();
      nodes.push_back(
          likely.empty() || random() % 6 == 0
              ? static_cast<Token>(random() % static_cast<uint64_t>(grammar->vocab_size()))
              : likely[random() % likely.size()]);
      if (matcher && !matcher->accept(nodes.back())) {
        matcher.reset();
      }
      matchers.push_back(std::move(matcher));
    }
    const std::vector<TokenMask> masks = root.tree_masks(nodes, parents);
    ASSERT_EQ(masks.size(), nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      EXPECT_EQ(masks[i].tokens(),
                matchers[i] ? matchers[i]->mask().tokens() : std::vector<Token>());
    }
  }
}

TEST(GrammarMatcherTest, TreeMasksCheckTheTree) {
  const GrammarMatcher matcher(compile_tiny("true"));
  EXPECT_TRUE(matcher.tree_masks({}, {}).empty());
  const std::vector<Token> two = {5, 6};
  EXPECT_THROW(matcher.tree_masks(two, {-1}), InternalError);
  EXPECT_THROW(matcher.tree_masks(two, {-1, 1}), InternalError);
}

TEST(GrammarMatcherTest, Explains) {
  GrammarMatcher matcher(compile_tiny(kRecord));
  EXPECT_NE(matcher.explain(), "");
  ASSERT_TRUE(matcher.accept(token_of(matcher.grammar(), "{")));
  EXPECT_THAT(matcher.explain(), HasSubstr("\"a\""));
}

/// Some tokens that the grammar allows one after another, and the masks on the way.
struct MaskedText {
  std::vector<Token> tokens;
  std::vector<std::vector<Token>> masks;
};

MaskedText random_masked_text(const Grammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  MaskedText text;
  GrammarMatcher matcher(grammar);
  for (int steps = 0; steps < 30 && !matcher.is_ended(); ++steps) {
    text.masks.push_back(matcher.mask().tokens());
    text.tokens.push_back(text.masks.back()[random() % text.masks.back().size()]);
    EXPECT_TRUE(matcher.accept(text.tokens.back()));
  }
  return text;
}

/// Several threads read the same grammars, known places and new ones: as if each were alone.
TEST(GrammarMatcherTest, ThreadsShareGrammars) {
  const auto vocabulary = tiny_vocabulary(5, 300);
  const std::vector<std::string> schemas = {
      kRecord, R"({"type": "array", "uniqueItems": true, "items": {"type": "string"}})",
      R"({"type": "object", "additionalProperties": {"type": "number"}})"};
  std::vector<MaskedText> expected;
  std::vector<Grammar> grammars;
  for (uint32_t i = 0; i < 24; ++i) {
    const std::string& schema = schemas[i % schemas.size()];
    expected.push_back(random_masked_text(compile_json_schema(vocabulary, schema), i));
    if (i < schemas.size()) {
      grammars.push_back(compile_json_schema(vocabulary, schema));
    }
  }
  std::atomic<int> wrong = 0;
  const auto read = [&](size_t first) {
    for (size_t n = 0; n < 3 * expected.size(); ++n) {
      const size_t i = (first + n) % expected.size();
      GrammarMatcher matcher(grammars[i % grammars.size()]);
      for (size_t step = 0; step < expected[i].tokens.size(); ++step) {
        wrong += matcher.mask().tokens() == expected[i].masks[step] ? 0 : 1;
        wrong += matcher.accept(expected[i].tokens[step]) ? 0 : 1;
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 6; ++first) {
    threads.emplace_back(read, 4 * first);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

/// A limit is no exception: the matcher says so, and stays where it was.
TEST(GrammarMatcherTest, LimitsEndTheText) {
  const Grammar grammar =
      compile_json_schema(tiny_vocabulary(1, 50), R"({"type": "object"})", {}, {.max_states = 300});
  GrammarMatcher matcher(grammar);
  ASSERT_TRUE(matcher.accept(token_of(*grammar, "{")));
  ASSERT_TRUE(matcher.accept(token_of(*grammar, "\"")));
  const Token letter = token_of(*grammar, "a");
  int64_t length = matcher.length();
  for (; length < 1'000 && matcher.accept(letter); ++length) {
    EXPECT_FALSE(matcher.limit());
  }
  EXPECT_LT(length, 300);
  EXPECT_EQ(matcher.length(), length);
  EXPECT_THAT(matcher.limit().value_or(""), HasSubstr("raise max_states"));
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_EQ(matcher.forced_bytes(), "");
  matcher.rollback(1);
  EXPECT_FALSE(matcher.limit());
}

/// What other texts took of a limit does not count for this one, at any place of a draft tree.
TEST(GrammarMatcherTest, OtherTextsReachNoLimit) {
  const auto compile = [] {
    return compile_json_schema(tiny_vocabulary(1, 50),
                               R"({"type": "object", "additionalProperties": {"const": 1}})", {},
                               {.max_states = 2'000});
  };
  const Grammar shared = compile();
  std::mt19937 random(5);
  const auto letter = [&] { return static_cast<char>('a' + random() % 26); };
  while (!shared->limit(shared->start())) {
    const std::string text = {'{', '"', letter(), letter(), letter(), letter()};
    if (shared->next(shared->start(), text) == Automaton::kDead) {
      break;
    }
  }
  for (int walks = 0; walks < 5; ++walks) {
    GrammarMatcher other(shared);
    GrammarMatcher alone(compile());
    std::vector<Token> tokens;
    std::vector<int64_t> parents;
    std::vector<std::vector<Token>> masks;
    for (int steps = 0; steps < 12 && !alone.is_ended(); ++steps) {
      const std::vector<Token> allowed = alone.mask().tokens();
      ASSERT_FALSE(allowed.empty()) << *alone.limit();
      EXPECT_EQ(other.mask().tokens(), allowed);
      tokens.push_back(allowed[random() % allowed.size()]);
      parents.push_back(steps - 1);
      ASSERT_TRUE(alone.accept(tokens.back()));
      ASSERT_TRUE(GrammarMatcher(other).accept(tokens.back()));
      masks.push_back(alone.mask().tokens());
      EXPECT_EQ(other.tree_masks({&tokens.back(), 1}, {-1}).front().tokens(), masks.back());
      ASSERT_TRUE(other.accept(tokens.back()));
      EXPECT_FALSE(other.limit());
    }
    const std::vector<TokenMask> tree = GrammarMatcher(shared).tree_masks(tokens, parents);
    for (size_t i = 0; i < tree.size(); ++i) {
      EXPECT_EQ(tree[i].tokens(), masks[i]);
    }
  }
}

/// Where a limit ends a text depends on the text alone, whatever the limit is.
TEST(GrammarMatcherTest, OtherTextsMoveNoLimit) {
  int limited = 0;
  for (uint64_t states = 5; states < 90; ++states) {
    for (
        const char* schema :
        {R"({"type": "object", "additionalProperties": {"const": 1}})",
         R"({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}})"}) {
      const auto compile = [&] {
        return compile_json_schema(tiny_vocabulary(1, 50), schema, {}, {.max_states = states});
      };
      std::mt19937 random(static_cast<uint32_t>(states));
      Grammar shared;
      try {
        shared = compile();
      } catch (const GrammarError&) {
        continue;
      }
      for (int texts = 0; texts < 2; ++texts) {
        GrammarMatcher alone(compile());
        GrammarMatcher other(shared);
        for (int steps = 0; steps < 8 && !alone.is_ended(); ++steps) {
          const std::vector<Token> allowed = alone.mask().tokens();
          ASSERT_EQ(other.mask().tokens(), allowed) << schema << ' ' << states << " states";
          if (allowed.empty()) {
            ++limited;
            break;
          }
          const Token token = allowed[random() % allowed.size()];
          const bool taken = alone.accept(token);
          ASSERT_EQ(other.accept(token), taken) << schema << ' ' << states << " states";
          if (!taken) {
            ++limited;
            break;
          }
        }
      }
    }
  }
  EXPECT_GT(limited, 20);
}

/// Asking what is forced, or why, may reach a limit where the next token does not.
TEST(GrammarMatcherTest, OnlyTheNextTokenReachesALimit) {
  const Grammar grammar =
      compile_json_schema(tiny_vocabulary(1, 50), R"({"const": ")" + std::string(500, 'a') + "\"}",
                          {.escapes = EscapeStyle::kMinimal, .registry = {}}, {.max_states = 200});
  GrammarMatcher matcher(grammar);
  EXPECT_EQ(matcher.forced_bytes(), "");
  EXPECT_FALSE(matcher.limit());
  EXPECT_GT(matcher.mask().count(), 0);
  const Token quote = token_of(*grammar, "\"");
  ASSERT_TRUE(matcher.accept(quote));
  EXPECT_FALSE(matcher.accept(quote));
  EXPECT_FALSE(matcher.limit());
}

}  // namespace
}  // namespace specdec
