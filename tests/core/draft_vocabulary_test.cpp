#include "core/draft_vocabulary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kTargetVocab = 900;

/// Every third token of the target's.
DraftVocabulary thirds() {
  std::vector<Token> tokens;
  for (Token token = 1; token < kTargetVocab; token += 3) {
    tokens.push_back(token);
  }
  return {std::move(tokens), kTargetVocab};
}

AllowedTokens words_of(const std::vector<Token>& tokens) {
  auto words = std::make_shared<std::vector<uint32_t>>((kTargetVocab + 31) / 32);
  for (const Token token : tokens) {
    (*words)[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
  }
  return words;
}

TEST(DraftVocabularyTest, SaysWhatTheWidenedLogitsSay) {
  at::manual_seed(3);
  const DraftVocabulary vocabulary = thirds();
  const at::Tensor logits = at::randn({1, vocabulary.columns()}) * 3.0;
  const at::Tensor wide = vocabulary.widened(logits);
  ASSERT_EQ(wide.size(1), kTargetVocab);
  const std::vector<Token> history = {0, 4, 7, 7, 8, 898};
  const AllowedTokens half = words_of({1, 2, 4, 5, 7, 10, 13, 400, 895});
  for (const AllowedTokens& allowed : {AllowedTokens(), half}) {
    for (const SamplingParams& params :
         {SamplingParams{}, SamplingParams{.temperature = 0.8},
          SamplingParams{.temperature = 1.0, .repetition_penalty = 1.5},
          SamplingParams{.temperature = 1.0, .logit_bias = {{1, 2.0}, {3, 9.0}, {4, -INFINITY}}},
          SamplingParams{.temperature = 0.7, .top_k = 5, .top_p = 0.9}}) {
      const TokenProbs narrow = vocabulary.probs(LogitRow::of(logits, 0), history, params, allowed);
      const std::vector<double> expected =
          token_probs(LogitRow::of(wide, 0), history, params, allowed).row();
      const std::vector<double> found = narrow.row();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t token = 0; token < found.size(); ++token) {
        EXPECT_NEAR(found[token], expected[token], 1e-15) << token;
      }
      EXPECT_EQ(narrow.best(), TokenProbs(expected).best());
      CounterRandomness one(5);
      CounterRandomness other(5);
      EXPECT_EQ(narrow.draw(one), TokenProbs(expected).draw(other));
    }
  }
}

TEST(DraftVocabularyTest, IsEmptyWhereNoneOfItsTokensIsAllowed) {
  const DraftVocabulary vocabulary = thirds();
  const at::Tensor logits = at::zeros({1, vocabulary.columns()});
  EXPECT_TRUE(
      vocabulary.probs(LogitRow::of(logits, 0), {}, {.temperature = 1.0}, words_of({0, 2, 3}))
          .empty());
  EXPECT_TRUE(vocabulary
                  .probs(LogitRow::of(logits, 0), {},
                         {.temperature = 1.0, .logit_bias = {{4, -INFINITY}}}, words_of({0, 4}))
                  .empty());
}

TEST(DraftVocabularyTest, RefusesOtherColumnsAndTokens) {
  EXPECT_THROW(thirds().probs(LogitRow::of(at::zeros({1, 7}), 0), {}, {}, nullptr), InternalError);
  EXPECT_THROW(DraftVocabulary({}, 3), InternalError);
  EXPECT_THROW(DraftVocabulary({0, 3}, 3), InternalError);
  EXPECT_THROW(DraftVocabulary({1, 0}, 3), InternalError);
}

}  // namespace
}  // namespace specdec
