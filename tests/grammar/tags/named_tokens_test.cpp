// Tokens that a grammar names, from its text to masks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "grammar/forced_tokens.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GrammarSource tags_source(const std::string& begin, const std::string& end) {
  GrammarSource source;
  source.kind = GrammarKind::kTags;
  source.text = R"({"type": "triggered_tags", "tags": [{"begin": {"type": "token", "token": ")" +
                begin + R"("}, "content": {"type": "json_schema", "json_schema": {"type": "object",
                "properties": {"a": {"type": "string"}}, "required": ["a"],
                "additionalProperties": false}}, "end": {"type": "token", "token": ")" +
                end + "\"}}]}";
  return source;
}

TEST(NamedTokensTest, MasksHaveThemOnlyWhereTheyStand) {
  const auto vocabulary = control_vocabulary();
  const auto grammar = compile_grammar(vocabulary, tags_source("<|call|>", "</call>"));
  EXPECT_THAT(grammar->named_tokens(), ElementsAre(kCall, kEndOfCall));
  GrammarMatcher matcher(grammar);
  EXPECT_TRUE(matcher.mask().allows(kCall));
  EXPECT_FALSE(matcher.mask().allows(kEndOfCall));  // though its bytes are free text
  EXPECT_FALSE(matcher.accept(kEndOfCall));
  EXPECT_TRUE(matcher.accept_bytes("</call>"));
  ASSERT_TRUE(matcher.accept(kCall));
  EXPECT_EQ(matcher.forced_bytes(), "{\"a\":\"");
  ASSERT_TRUE(matcher.accept_bytes("{\"a\":\"</"));
  EXPECT_FALSE(matcher.mask().allows(kEndOfCall));  // in a string
  EXPECT_FALSE(matcher.mask().allows(kCall));
  GrammarMatcher fork = matcher;
  ASSERT_TRUE(matcher.accept_bytes("\"}"));
  EXPECT_THAT(matcher.mask().tokens(), ElementsAre(kEndOfCall));
  EXPECT_THAT(forced_tokens(matcher, 4), ElementsAre(kEndOfCall));
  EXPECT_EQ(matcher.forced_bytes(), "");
  ASSERT_TRUE(matcher.accept(kEndOfCall));
  EXPECT_TRUE(matcher.is_complete());
  matcher.rollback(2);
  EXPECT_EQ(matcher.state(), fork.state());
}

TEST(NamedTokensTest, TreeMasks) {
  GrammarMatcher matcher(compile_grammar(control_vocabulary(), tags_source("<|call|>", "</call>")));
  const std::vector<Token> tokens = {kCall, kCall, 10 + 'x', kEndOfCall};
  const auto masks = matcher.tree_masks(tokens, {-1, 0, -1, 2});
  EXPECT_FALSE(masks[0].allows(kCall));
  EXPECT_TRUE(masks[0].allows(10 + '{'));
  EXPECT_EQ(masks[1].count(), 0);
  EXPECT_TRUE(masks[2].allows(kCall));
  EXPECT_EQ(masks[3].count(), 0);
}

TEST(NamedTokensTest, AnEndTokenMayBeTheLast) {
  GrammarSource source = tags_source("<|call|>", "<|turn_end|>");
  source.text.insert(source.text.size() - 1, R"(, "stop_after_first": true)");
  GrammarMatcher matcher(compile_grammar(control_vocabulary(), source));
  EXPECT_TRUE(matcher.mask().allows(kTurnEnd));  // ends free text
  ASSERT_TRUE(matcher.accept(kCall));
  EXPECT_FALSE(matcher.mask().allows(kTurnEnd));
  const auto masks = matcher.tree_masks(std::vector<Token>{10 + '{', kTurnEnd}, {-1, 0});
  EXPECT_FALSE(masks[0].allows(kTurnEnd));
  EXPECT_EQ(masks[1].count(), 0);
  ASSERT_TRUE(matcher.accept_bytes("{\"a\":\"\"}"));
  EXPECT_THAT(matcher.mask().tokens(), ElementsAre(kTurnEnd));
  ASSERT_TRUE(matcher.accept(kTurnEnd));
  EXPECT_TRUE(matcher.is_complete());  // where generation stops
  EXPECT_TRUE(matcher.can_only_end());
}

TEST(NamedTokensTest, NothingFollowsANamedEndToken) {
  const auto error = [](const std::string& elements) {
    GrammarSource source;
    source.kind = GrammarKind::kTags;
    source.text = R"({"type": "sequence", "elements": [)" + elements + "]}";
    return error_message<GrammarError>([&] { compile_grammar(control_vocabulary(), source); });
  };
  const std::string end = R"({"type": "token", "token": "<|turn_end|>"})";
  const std::string tag =
      R"({"begin": "(", "content": {"type": "regex", "pattern": "a"}, "end": )" + end + "}";
  EXPECT_EQ(error(tag), "no error");
  EXPECT_EQ(error(R"({"type": "any_text"}, )" + end), "no error");
  EXPECT_THAT(error(tag + R"(, {"type": "const_string", "value": "more"})"),
              HasSubstr("#/elements/0/end: the token '<|turn_end|>' ends what is generated"));
  EXPECT_THAT(error(end + R"(, {"type": "const_string", "value": "more"})"),
              HasSubstr("#/elements/0: the token '<|turn_end|>'"));
  EXPECT_THAT(error(end + R"(, {"type": "any_text"})"), HasSubstr("more text may follow"));
  EXPECT_THAT(error(R"({"type": "plus", "content": )" + end + "}"),
              HasSubstr("elements/0/content"));
  EXPECT_THAT(error_message<GrammarError>([] {
                compile_grammar(control_vocabulary(), tags_source("<|call|>", "<|turn_end|>"));
              }),
              HasSubstr("#/tags/0/end: the token '<|turn_end|>'"));
}

TEST(NamedTokensTest, MasksAgreeWithSteps) {
  const auto grammar = compile_grammar(control_vocabulary(), tags_source("<|call|>", "</call>"));
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    GrammarMatcher matcher(grammar);
    for (int step = 0; step < 30; ++step) {
      const TokenMask mask = matcher.mask();
      for (Token token = 0; token < grammar->vocab_size(); ++token) {
        ASSERT_EQ(mask.allows(token), grammar->next(matcher.state(), token) != Automaton::kDead)
            << token;
      }
      const std::vector<Token> allowed = mask.tokens();
      const bool names = random() % 3 == 0 && mask.allows(kCall);
      const Token token = names ? kCall : allowed[random() % allowed.size()];
      if (grammar->is_end(token)) {
        break;
      }
      ASSERT_TRUE(matcher.accept(token));
    }
  }
}

TEST(NamedTokensTest, NamesAreFound) {
  const auto vocabulary = control_vocabulary();
  EXPECT_EQ(vocabulary->find_token("<|call|>"), kCall);
  EXPECT_EQ(vocabulary->find_token("</call>"), kEndOfCall);
  EXPECT_EQ(vocabulary->find_token("<[4]>"), kTurnEnd);
  EXPECT_EQ(vocabulary->find_token("<[9999]>"), std::nullopt);
  EXPECT_EQ(vocabulary->find_token(""), std::nullopt);
  EXPECT_EQ(vocabulary->token_name(kCall), "<|call|>");
  EXPECT_EQ(vocabulary->token_name(kEndOfCall), "</call>");
  EXPECT_EQ(vocabulary->token_name(0), "<[0]>");
}

TEST(NamedTokensTest, UnknownNamesAreErrorsWithNearOnes) {
  const auto error = [](const std::string& name) {
    return error_message<GrammarError>(
        [&] { compile_grammar(control_vocabulary(), tags_source(name, "</call>")); });
  };
  EXPECT_THAT(
      error("<|cal|>"),
      AllOf(HasSubstr("#/tags/0/begin: the vocabulary of 266 tokens has no token '<|cal|>'"),
            HasSubstr("near are: <|call|>")));
  EXPECT_THAT(error("[INST]"),
              HasSubstr("as the tokenizer spells it, or <[ID]> with an ID from 0 to 265"));
  EXPECT_EQ(error_message<GrammarError>([&] { check_grammar(tags_source("<|cal|>", "<|x|>")); }),
            "no error");  // only a vocabulary knows
}

}  // namespace
}  // namespace specdec
