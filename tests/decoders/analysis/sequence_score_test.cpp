#include "decoders/analysis/sequence_score.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/sampling.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kScoreVocab = 7;

std::vector<double> distribution(const LogitTable& table, TokenSpan history) {
  std::vector<double> masses = table(history);
  double sum = 0.0;
  for (double& mass : masses) {
    mass = std::exp(mass);
    sum += mass;
  }
  for (double& mass : masses) {
    mass /= sum;
  }
  return masses;
}

std::vector<Token> some_tokens(int64_t count) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<Token>((i * i + 3 * i) % kScoreVocab));
  }
  return tokens;
}

TEST(SequenceScoreTest, SumsAreThoseOfTheTables) {
  // Longer than a piece of the reader, and as long as the model takes.
  const std::vector<Token> tokens = some_tokens(601);
  const LogitTable p_table = random_table(kScoreVocab, 1);
  const LogitTable q_table = random_table(kScoreVocab, 2);
  FakeModel p_model(kScoreVocab, p_table, 600);
  FakeModel q_model(kScoreVocab, q_table, 700);
  const SequenceScore score = score_sequence(p_model, tokens, &q_model);
  ASSERT_EQ(score.log_probs.size(), 600U);
  ASSERT_TRUE(score.comparison);
  double total_kl = 0.0;
  double overlap = 0.0;
  int64_t same = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const TokenSpan history(tokens.data(), i);
    const std::vector<double> p = distribution(p_table, history);
    const std::vector<double> q = distribution(q_table, history);
    const auto token = static_cast<size_t>(tokens[i]);
    EXPECT_NEAR(score.log_probs[i - 1], std::log(p[token]), 1e-12);
    EXPECT_NEAR(score.comparison->log_probs[i - 1], std::log(q[token]), 1e-12);
    double kl = 0.0;
    for (size_t x = 0; x < p.size(); ++x) {
      kl += p[x] * std::log(p[x] / q[x]);
      overlap += std::min(p[x], q[x]);
    }
    EXPECT_NEAR(score.comparison->kl[i - 1], kl, 1e-11);
    total_kl += kl;
    same += argmax(p) == argmax(q) ? 1 : 0;
  }
  EXPECT_NEAR(score.comparison->overlap, overlap, 1e-9);
  EXPECT_EQ(score.comparison->same_best, same);
  EXPECT_GT(total_kl, 1.0);
}

TEST(SequenceScoreTest, AnOutputIsScoredAfterItsPrompt) {
  FakeModel model(kScoreVocab, random_table(kScoreVocab, 1), 600);
  const std::vector<Token> tokens = some_tokens(400);
  const std::vector<double> all = score_sequence(model, tokens, nullptr).log_probs;
  double sum = 0.0;
  for (size_t i = 29; i < all.size(); ++i) {
    sum += all[i];
  }
  const TokenSpan span = tokens;
  EXPECT_NEAR(output_log_prob(model, span.first(30), span.subspan(30)), sum, 1e-9);
}

TEST(SequenceScoreTest, AModelEqualsItself) {
  const LogitTable table = random_table(kScoreVocab, 1);
  FakeModel model(kScoreVocab, table);
  FakeModel same(kScoreVocab, table);
  const SequenceScore score = score_sequence(model, some_tokens(20), &same);
  EXPECT_EQ(score.comparison->log_probs, score.log_probs);
  EXPECT_EQ(score.comparison->kl, std::vector<double>(19, 0.0));
  EXPECT_NEAR(score.comparison->overlap, 19.0, 1e-12);
  EXPECT_EQ(score.comparison->same_best, 19);
}

TEST(SequenceScoreTest, ForbiddenTokensHaveNoShareInTheDivergence) {
  const double never = -std::numeric_limits<double>::infinity();
  FakeModel model(2, [=](TokenSpan) { return std::vector<double>{0.0, never}; });
  FakeModel other(2, [](TokenSpan) { return std::vector<double>{0.0, 0.0}; });
  const std::vector<Token> tokens = {0, 0, 0};
  const SequenceScore score = score_sequence(model, tokens, &other);
  EXPECT_NEAR(score.comparison->kl[0], std::log(2.0), 1e-12);
  EXPECT_NEAR(score.comparison->kl[1], std::log(2.0), 1e-12);
}

TEST(SequenceScoreTest, ReadsFromTheFirstTokenAskedFor) {
  const LogitTable table = random_table(kScoreVocab, 3);
  FakeModel model(kScoreVocab, table);
  const std::vector<Token> tokens = some_tokens(9);
  LogProbReader reader(model, tokens, 5);
  std::vector<Tensor> pieces;
  EXPECT_EQ(reader.position(), 5);
  while (!reader.done()) {
    pieces.push_back(reader.next());
  }
  const Tensor all = at::cat(pieces);
  ASSERT_EQ(all.size(0), 4);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<double> expected = distribution(table, TokenSpan(tokens).first(5 + i));
    EXPECT_NEAR(all[static_cast<int64_t>(i)][2].item<double>(), std::log(expected[2]), 1e-12);
  }
}

TEST(SequenceScoreTest, RefusesTokensThatTheModelCannotTake) {
  FakeModel model(kScoreVocab, random_table(kScoreVocab, 1), 10);
  const std::vector<Token> outside = {0, 1, kScoreVocab};
  EXPECT_THAT([&] { score_sequence(model, outside, nullptr); },
              ThrowsMessage<Error>(HasSubstr("token 7 is outside")));
  EXPECT_THAT([&] { score_sequence(model, some_tokens(12), nullptr); },
              ThrowsMessage<Error>(HasSubstr("holds at most 10")));
}

TEST(SequenceScoreTest, BrokenWeightsAreAnError) {
  FakeModel model(2, [](TokenSpan) { return std::vector<double>{0.0, std::nan("")}; });
  const std::vector<Token> tokens = {0, 1};
  EXPECT_THAT([&] { score_sequence(model, tokens, nullptr); },
              ThrowsMessage<Error>(HasSubstr("logits after 1 tokens hold NaN")));
}

}  // namespace
}  // namespace specdec
