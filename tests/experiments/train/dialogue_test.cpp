#include "experiments/train/dialogue.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace specdec {
namespace {

using testing::ElementsAre;

constexpr int64_t kDialogueVocab = 20;
constexpr Token kTurnEnd = 9;

TEST(ExcludedRunsTest, FindsRunsOfTheirLengthAnywhere) {
  ExcludedRuns runs(3);
  runs.add(std::vector<Token>{1, 2, 3, 4});
  runs.add(std::vector<Token>{8, 9});  // too short to hold a run
  EXPECT_TRUE(runs.found_in(std::vector<Token>{7, 2, 3, 4, 7}));
  EXPECT_FALSE(runs.found_in(std::vector<Token>{1, 2, 4, 3}));
  EXPECT_FALSE(runs.found_in(std::vector<Token>{8, 9}));
}

/// A dialogue whose model is the test: it says which token is the best by far.
class DialogueTest : public testing::Test {
 protected:
  DialogueTest() {
    plan_.max_user_tokens = 4;
    plan_.max_answer_tokens = 7;
    plan_.max_length = 100;
  }

  Dialogue start(const AnswerPrompt& prompt) {
    return Dialogue({plan_, frame_, excluded_, end_ids_}, prompt);
  }

  /// Feeds what waits, and makes `token` the next one.
  void say(Dialogue& dialogue, Token token) {
    const auto count = static_cast<int64_t>(dialogue.next().size());
    ASSERT_GT(count, 0);
    ASSERT_TRUE(dialogue.take(at::full({count, 2}, static_cast<double>(fed_++))));
    at::Tensor logits = at::zeros({kDialogueVocab});
    logits[token] = 100.0;
    dialogue.choose(LogitRow::of(logits));
  }

  AnswerPlan plan_;
  ChatFrame frame_ = {{0, 1}, {kTurnEnd, 2}};
  ExcludedRuns excluded_{3};
  std::vector<Token> end_ids_ = {3};
  int64_t fed_ = 0;
};

TEST_F(DialogueTest, AnswersAreWrittenToTheirEndAndNotBeyond) {
  Dialogue dialogue = start({.number = 1, .temperature = 1.0, .user = {5, 6}});
  EXPECT_THAT(dialogue.next(), ElementsAre(0, 1, 5, 6, kTurnEnd, 2));
  say(dialogue, 12);
  EXPECT_THAT(dialogue.next(), ElementsAre(12));
  say(dialogue, 3);
  EXPECT_EQ(dialogue.end(), AnswerEnd::kEnd);
  EXPECT_TRUE(dialogue.next().empty());
  EXPECT_EQ(dialogue.answer_begin(), 6);
  EXPECT_THAT(dialogue.tokens(), ElementsAre(0, 1, 5, 6, kTurnEnd, 2, 12, 3));
  EXPECT_EQ(dialogue.features().sizes(), at::IntArrayRef({7, 2})) << "of all but the last token";
  EXPECT_EQ(dialogue.log_sums().size(), 2U) << "one for each answer token";
  EXPECT_NEAR(dialogue.log_sums()[0], 100.0, 1e-4);
}

TEST_F(DialogueTest, TheModelsOwnTurnBecomesThePrompt) {
  Dialogue dialogue = start({.number = 1, .own = true, .user = {}});
  EXPECT_THAT(dialogue.next(), ElementsAre(0, 1));
  say(dialogue, 14);
  say(dialogue, kTurnEnd);
  EXPECT_THAT(dialogue.next(), ElementsAre(kTurnEnd, 2)) << "14 is fed already";
  say(dialogue, 3);
  EXPECT_EQ(dialogue.end(), AnswerEnd::kEnd);
  EXPECT_THAT(dialogue.tokens(), ElementsAre(0, 1, 14, kTurnEnd, 2, 3));
  EXPECT_EQ(dialogue.answer_begin(), 5);
}

TEST_F(DialogueTest, OwnTurnsWithoutTextOrEndGiveNoAnswer) {
  Dialogue empty = start({.number = 1, .own = true, .user = {}});
  say(empty, kTurnEnd);
  EXPECT_EQ(empty.end(), AnswerEnd::kNoPrompt);
  plan_.max_answer_tokens = 7;
  Dialogue endless = start({.number = 2, .own = true, .user = {}});
  for (Token token = 10; token < 15; ++token) {
    say(endless, token);
  }
  EXPECT_EQ(endless.end(), AnswerEnd::kNoPrompt);
  EXPECT_TRUE(endless.tokens().empty());
}

TEST_F(DialogueTest, PromptsThatCopyFromAnEvaluationAreLeftOut) {
  excluded_.add(std::vector<Token>{5, 6, 7});
  EXPECT_EQ(start({.number = 1, .user = {4, 5, 6, 7}}).end(), AnswerEnd::kExcluded);
  EXPECT_EQ(start({.number = 1, .user = {4, 5, 6, 8}}).end(), AnswerEnd::kOpen);
  Dialogue own = start({.number = 2, .own = true, .user = {}});
  for (const Token token : {5, 6, 7, static_cast<int>(kTurnEnd)}) {
    say(own, token);
  }
  EXPECT_EQ(own.end(), AnswerEnd::kExcluded);
}

TEST_F(DialogueTest, LoopsAreCutAndLongAnswersEnd) {
  plan_.max_answer_tokens = 40;
  Dialogue loop = start({.number = 1, .user = {5}});
  say(loop, 11);
  say(loop, 12);
  for (Token i = 0; i < 32; ++i) {
    EXPECT_EQ(loop.end(), AnswerEnd::kOpen);
    say(loop, 13 + i % 2);
  }
  EXPECT_EQ(loop.end(), AnswerEnd::kLoop);
  EXPECT_THAT(loop.tokens(), ElementsAre(0, 1, 5, kTurnEnd, 2, 11, 12));
  EXPECT_EQ(loop.log_sums().size(), 2U);
  EXPECT_EQ(loop.features().size(0), 6);
  plan_.max_answer_tokens = 7;
  Dialogue endless = start({.number = 1, .user = {5}});
  for (Token token = 10; token < 17; ++token) {
    say(endless, token);
  }
  EXPECT_EQ(endless.end(), AnswerEnd::kLength);
  EXPECT_EQ(endless.log_sums().size(), 7U);
}

}  // namespace
}  // namespace specdec
