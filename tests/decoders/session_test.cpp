#include "decoders/session.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/error.h"
#include "tests/support/fake_model.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

constexpr int64_t kSessionVocab = 4;

/// Logits of one token that put all the mass on another.
ForwardResult only(Token token) {
  Tensor logits = at::full({1, kSessionVocab}, -1.0, at::kDouble);
  logits[0][token] = 2.0;
  return {.logits = logits};
}

/// A session that is fed tokens one at a time.
class SessionTest : public testing::Test {
 protected:
  Session& begin(Task task, int64_t max_length = 64) {
    task_ = std::move(task);
    model_ = std::make_unique<FakeModel>(kSessionVocab, random_table(kSessionVocab, 1), max_length);
    request_ = std::make_unique<Request>(task_.request(random_));
    session_ = std::make_unique<Session>(*request_, *model_);
    return *session_;
  }

  /// Commits tokens as a chain that the verifier accepted whole, the last as the bonus token.
  void commit_chain(const Tokens& tokens) {
    Draft draft = Draft::root(session_->newest());
    VerifyResult result{.path = {0}, .next = tokens.back()};
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      result.path.push_back(draft.add(tokens[i], draft.size() - 1));
    }
    session_->target_probs(draft,
                           {.logits = at::zeros({draft.size(), kSessionVocab}, at::kDouble)});
    session_->commit(draft, result);
  }

  Generation finish() { return std::move(*session_).finish(); }

  Task task_;
  CounterRandomness random_{1};
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Request> request_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, StopsAtEndIdsAndDropsWhatFollows) {
  begin({.prompt = {0}, .stop = {.end_ids = {2, 3}, .stop_ids = {3}}});
  session_->commit_prefill(only(1));
  EXPECT_FALSE(session_->finished());
  commit_chain({0, 3, 1, 1});
  EXPECT_TRUE(session_->finished());
  const Generation generation = finish();
  EXPECT_EQ(generation.tokens, (Tokens{1, 0, 3}));
  EXPECT_EQ(generation.stop_reason, StopReason::kEndOfSequence);
  ASSERT_EQ(generation.steps.size(), 1U);
  // The token after the end was verified and accepted, but there is no text where it stands.
  EXPECT_EQ(generation.steps[0].drafted, 2);
  EXPECT_EQ(generation.steps[0].accepted, 2);
  EXPECT_EQ(generation.steps[0].committed, 2);
  EXPECT_EQ(generation.steps[0].depth, 2);
}

TEST_F(SessionTest, AnEndWithinTheAcceptedPathOfATreeCountsOnce) {
  std::vector<Tokens> streamed;
  begin({.prompt = {0}, .stop = {.end_ids = {2}}});
  request_->on_tokens = [&](TokenSpan tokens) {
    streamed.emplace_back(tokens.begin(), tokens.end());
  };
  request_->log_overlaps = true;
  session_->commit_prefill(only(1));
  Draft draft = Draft::root(1);
  draft.add(0, 0);
  draft.add(3, 0);
  draft.add(2, 1);  // the end
  draft.add(1, 2);
  draft.add(2, 3);  // accepted too, as is what follows it
  draft.add(1, 4);
  session_->target_probs(draft, {.logits = at::zeros({draft.size(), kSessionVocab}, at::kDouble)});
  session_->commit(draft, {.path = {0, 1, 3, 5}, .next = 2});
  const Generation generation = finish();
  EXPECT_EQ(generation.tokens, (Tokens{1, 0, 2}));
  EXPECT_EQ(streamed, (std::vector<Tokens>{{1}, {0, 2}}));
  EXPECT_EQ(generation.gaps.size(), 3U);
  ASSERT_EQ(generation.steps.size(), 1U);
  EXPECT_EQ(generation.steps[0].drafted, 4) << "two levels of the tree";
  EXPECT_EQ(generation.steps[0].accepted, 2);
  EXPECT_EQ(generation.steps[0].committed, 2);
  EXPECT_EQ(generation.steps[0].depth, 2);
  EXPECT_EQ(generation.steps[0].overlaps.size(), 3U) << "nodes whose children are within them";
}

TEST_F(SessionTest, AnEndThatIsTheBonusTokenCutsNothing) {
  begin({.prompt = {0}, .stop = {.end_ids = {2}}});
  session_->commit_prefill(only(1));
  commit_chain({0, 3, 2});
  const Generation generation = finish();
  ASSERT_EQ(generation.steps.size(), 1U);
  EXPECT_EQ(generation.steps[0].drafted, 2);
  EXPECT_EQ(generation.steps[0].accepted, 2);
  EXPECT_EQ(generation.steps[0].committed, 3);
}

TEST_F(SessionTest, RejectedBranchesBeginAfterTheLastAcceptedToken) {
  begin({.prompt = {0}, .stop = {.end_ids = {2}}});
  request_->log_rejected = true;
  session_->commit_prefill(only(1));
  commit_chain({0, 3, 1});  // nothing is rejected
  Draft draft = Draft::root(1);
  draft.add(0, 0);
  draft.add(3, 0);  // rejected before the last accepted token
  draft.add(1, 1);
  draft.add(3, 1);
  draft.add(0, 3);
  draft.add(1, 3);  // a sibling of a first child
  const Tensor logits = at::zeros({draft.size(), kSessionVocab}, at::kDouble);
  session_->target_probs(draft, {.logits = logits});
  session_->commit(draft, {.path = {0, 1}, .next = 1});
  Draft end = Draft::root(1);
  end.add(2, 0);  // the end
  end.add(3, 1);
  session_->target_probs(end, {.logits = logits.narrow(0, 0, 3)});
  session_->commit(end, {.path = {0, 1}, .next = 0});
  const Generation generation = finish();
  ASSERT_EQ(generation.steps.size(), 3U);
  EXPECT_TRUE(generation.steps[0].rejected.empty());
  EXPECT_EQ(generation.steps[1].rejected, (std::vector<Tokens>{{1, 0}, {3}}));
  EXPECT_TRUE(generation.steps[2].rejected.empty()) << "no text stands behind an end";
}

TEST_F(SessionTest, StopsAtStopIds) {
  begin({.prompt = {0}, .stop = {.end_ids = {2}, .stop_ids = {3}}});
  session_->commit_prefill(only(3));
  EXPECT_EQ(finish().stop_reason, StopReason::kStopId);
}

TEST_F(SessionTest, StopIdsInThePromptDoNotCount) {
  begin({.prompt = {2, 3}, .stop = {.end_ids = {2}, .stop_ids = {3}}});
  session_->commit_prefill(only(1));
  EXPECT_FALSE(session_->finished());
}

TEST_F(SessionTest, FindsStopStringsAcrossTokenBorders) {
  const LetterTokenizer letters({"a", "xb", "cc", ""});
  const StopRule stop{.stop_strings = {"zzzzzzzzzzzzz", "abc"}};
  begin({.prompt = {0}, .stop = stop, .tokenizer = &letters});
  session_->commit_prefill(only(1));  // xb
  commit_chain({2, 0, 3});            // cc a -
  EXPECT_FALSE(session_->finished());
  const LetterTokenizer others({"ba", "b", "cd", "a"});
  begin({.prompt = {0}, .stop = stop, .tokenizer = &others});
  session_->commit_prefill(only(0));  // ba
  commit_chain({1, 2, 3});            // b cd a
  const Generation generation = finish();
  EXPECT_EQ(generation.tokens, (Tokens{0, 1, 2}));
  EXPECT_EQ(generation.stop_reason, StopReason::kStopString);
}

TEST_F(SessionTest, StopStringsIgnoreThePromptAndMatchInsideATokenToo) {
  const LetterTokenizer letters({"a", "b", "-ab-", ""});
  begin({.prompt = {0}, .stop = {.stop_strings = {"ab"}}, .tokenizer = &letters});
  session_->commit_prefill(only(1));
  EXPECT_FALSE(session_->finished()) << "the prompt's a and the output's b do not make ab";
  commit_chain({2, 1});
  EXPECT_EQ(finish().tokens, (Tokens{1, 2}));
}

TEST_F(SessionTest, TokensBeyondTheTokenizerHaveNoText) {
  const LetterTokenizer letters({"a", "b"});
  begin({.prompt = {0}, .stop = {.stop_strings = {"ab"}}, .tokenizer = &letters});
  session_->commit_prefill(only(0));
  commit_chain({3, 1});
  EXPECT_EQ(finish().stop_reason, StopReason::kStopString);
}

TEST_F(SessionTest, LeavesRoomForTheBonusToken) {
  begin({.prompt = {0, 1}, .stop = {.max_new_tokens = 5}});
  EXPECT_EQ(session_->draft_limits().depth, 4);
  session_->commit_prefill(only(1));
  EXPECT_EQ(session_->draft_limits().depth, 3);
  commit_chain({1, 1, 1});
  EXPECT_EQ(session_->draft_limits().depth, 0);
  commit_chain({1});
  EXPECT_TRUE(session_->finished());
  EXPECT_EQ(session_->draft_limits().depth, 0);
  EXPECT_EQ(finish().stop_reason, StopReason::kMaxNewTokens);
}

TEST_F(SessionTest, FitsTheModel) {
  begin({.prompt = {0, 1}, .stop = {.max_new_tokens = 50}}, 4);
  session_->commit_prefill(only(1));
  EXPECT_EQ(session_->draft_limits().depth, 1);  // 2 kept, the newest, one drafted
  commit_chain({1, 1});
  const Generation generation = finish();
  EXPECT_EQ(generation.tokens.size(), 3U);
  EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
}

TEST_F(SessionTest, EachNodeIsPenalisedForItsOwnPath) {
  begin({.prompt = {0}, .sampling = {.temperature = 1.0, .repetition_penalty = 2.0}});
  session_->commit_prefill(only(1));
  Draft draft = Draft::root(session_->newest());
  draft.add(2, 0);
  draft.add(3, 0);
  draft.add(0, 1);
  const Tensor logits = at::tensor({1.0, 2.0, 3.0, 4.0}).repeat({4, 1});
  TargetProbs& probs = session_->target_probs(draft, {.logits = logits});
  const std::vector<Tokens> histories = {{0, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 2, 0}};
  for (int64_t node = 0; node < 4; ++node) {
    std::vector<double> distribution(kSessionVocab);
    target_distribution(logits[node], histories[static_cast<size_t>(node)], task_.sampling,
                        distribution);
    EXPECT_EQ(probs.after(node).row(), distribution) << "node " << node;
  }
}

TEST_F(SessionTest, GreedyTokensHaveTheGapOfTheirNode) {
  begin({.prompt = {0}});
  session_->commit_prefill(only(1));
  Draft draft = Draft::root(1);
  draft.add(3, 0);
  draft.add(2, 0);
  const Tensor logits = at::tensor({0.0, 0.0, 5.0, 1.0,  //
                                    9.0, 0.0, 0.0, 0.0,  //
                                    0.0, 7.5, 0.0, 7.0})
                            .view({3, kSessionVocab});
  session_->target_probs(draft, {.logits = logits});
  session_->commit(draft, {.path = {0, 2}, .next = 1});
  EXPECT_EQ(finish().gaps, (std::vector<double>{3.0, 4.0, 0.5}));
}

TEST_F(SessionTest, SampledTokensHaveNoGaps) {
  begin({.prompt = {0}, .sampling = {.temperature = 1.0}});
  session_->commit_prefill(only(1));
  EXPECT_TRUE(finish().gaps.empty());
}

TEST_F(SessionTest, WithoutAGrammarNoMassesAreComputed) {
  for (const double temperature : {0.0, 1.0}) {
    begin({.prompt = {0}, .sampling = {.temperature = temperature}});
    session_->commit_prefill(only(1));
    commit_chain({2, 3, 1});
    session_->commit_next(only(2));
    const Generation generation = finish();
    EXPECT_EQ(generation.tokens.size(), 5U);
    EXPECT_TRUE(generation.log_allowed.empty());
    EXPECT_TRUE(generation.log_probs.empty());
  }
}

TEST_F(SessionTest, MassesAreThoseOfTheRowThatATokenWasTakenFrom) {
  Task task{.prompt = {0}, .stop = {.end_ids = {3}}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(ba)*");
  begin(std::move(task));
  session_->commit_prefill(
      {.logits = at::tensor({0.5, 1.0, 9.0, 0.25}).unsqueeze(0)});  // b, or the end
  Draft draft = Draft::root(1);
  draft.add(0, 0);
  draft.add(1, 1);
  const Tensor logits = at::tensor({1.0, 2.0, 0.0, 3.0,  //
                                    2.0, 3.0, 1.5, 0.0,  //
                                    0.0, 1.0, 4.0, 9.0})
                            .view({3, kSessionVocab});
  session_->target_probs(draft, {.logits = logits});
  session_->commit(draft, {.path = {0, 1, 2}, .next = 2});
  session_->commit_next({.logits = at::tensor({2.0, 1.0, 0.5, 0.0}).unsqueeze(0)});
  const Generation generation = finish();
  ASSERT_EQ(generation.tokens, (Tokens{1, 0, 1, 2, 0}));
  const auto log_share = [](std::vector<double> all, const Tokens& some) {
    double sum = 0.0;
    double part = 0.0;
    for (size_t token = 0; token < all.size(); ++token) {
      sum += std::exp(all[token]);
      part += std::count(some.begin(), some.end(), static_cast<Token>(token)) == 0
                  ? 0.0
                  : std::exp(all[token]);
    }
    return std::log(part / sum);
  };
  const std::vector<std::vector<double>> rows = {
      {0.5, 1.0, 9.0, 0.25}, {1, 2, 0, 3}, {2, 3, 1.5, 0}, {0, 1, 4, 9}, {2, 1, 0.5, 0}};
  const std::vector<Tokens> allowed = {{1, 3}, {0, 2}, {1, 3}, {0, 2}, {0, 2}};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(generation.log_allowed[i], log_share(rows[i], allowed[i]), 1e-12) << i;
    EXPECT_NEAR(generation.log_probs[i], log_share(rows[i], {generation.tokens[i]}), 1e-12) << i;
  }
}

TEST_F(SessionTest, StreamsWhatEachStepCommits) {
  task_ = {.prompt = {0}, .stop = {.max_new_tokens = 4}};
  Request request = task_.request(random_);
  std::vector<Tokens> streamed;
  request.on_tokens = [&](TokenSpan tokens) {
    streamed.emplace_back(tokens.begin(), tokens.end());
  };
  model_ = std::make_unique<FakeModel>(kSessionVocab, random_table(kSessionVocab, 1));
  session_ = std::make_unique<Session>(request, *model_);
  session_->commit_prefill(only(1));
  commit_chain({2, 3, 1});
  EXPECT_EQ(streamed, (std::vector<Tokens>{{1}, {2, 3, 1}}));
}

TEST_F(SessionTest, TimesAddUp) {
  begin({.prompt = {0}});
  session_->commit_prefill(only(1));
  session_->drafted();
  session_->verified();
  commit_chain({1, 1});
  session_->verified();
  session_->commit_next(only(1));
  const Generation generation = finish();
  ASSERT_EQ(generation.steps.size(), 2U);
  EXPECT_GT(generation.prefill_seconds, 0.0);
  double sum = 0.0;
  for (const StepStatistics& step : generation.steps) {
    sum += step.draft_seconds + step.verify_seconds + step.other_seconds;
    EXPECT_GT(step.verify_seconds, 0.0);
  }
  EXPECT_DOUBLE_EQ(generation.decode_seconds, sum);
  EXPECT_EQ(generation.steps[1].draft_seconds, 0.0);
  EXPECT_EQ(generation.steps[1].committed, 1);
}

TEST_F(SessionTest, RefusesWhatCannotBeAnswered) {
  EXPECT_THROW(begin({.prompt = {0}, .stop = {.max_new_tokens = 0}}), ConfigError);
  EXPECT_THROW(begin({.prompt = {0}, .stop = {.stop_strings = {"a"}}}), ConfigError);
  EXPECT_THROW(begin({.prompt = {0}, .sampling = {.top_p = 0.0}}), ConfigError);
  const LetterTokenizer letters({"a"});
  EXPECT_THROW(begin({.prompt = {0}, .stop = {.stop_strings = {""}}, .tokenizer = &letters}),
               ConfigError);
}

TEST_F(SessionTest, AGrammarOfALargerVocabularyIsRefused) {
  Task task{.prompt = {0}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", "ba", ""}, "(a|b)*");
  EXPECT_THAT([&] { begin(task); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr(
                                        "vocabulary of 5 tokens, and the model has 4")));
}

TEST_F(SessionTest, MisuseIsABug) {
  begin({.prompt = {0}, .stop = {.max_new_tokens = 1}});
  session_->commit_prefill(only(1));
  EXPECT_THROW(session_->commit_next(only(1)), InternalError);
  EXPECT_THROW(session_->target_probs(Draft::root(1), {.logits = at::zeros({2, kSessionVocab})}),
               InternalError);
  EXPECT_THROW(session_->commit(Draft::root(1), {.path = {}, .next = 1}), InternalError);
}

TEST(StopReasonTest, HasNames) {
  EXPECT_EQ(stop_reason_name(StopReason::kEndOfSequence), "end_of_sequence");
  EXPECT_EQ(stop_reason_name(StopReason::kStopId), "stop_id");
  EXPECT_EQ(stop_reason_name(StopReason::kStopString), "stop_string");
  EXPECT_EQ(stop_reason_name(StopReason::kMaxNewTokens), "max_new_tokens");
  EXPECT_EQ(stop_reason_name(StopReason::kContextFull), "context_full");
}

}  // namespace
}  // namespace specdec
