#include "experiments/metrics/speedup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/randomness.h"
#include "experiments/metrics/metrics.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

/// 10 tokens of the steps and one of the prefill, `tokens_per_step` at a time.
GenerationRecord speedup_record(const std::string& strategy, const std::string& question,
                                double seconds, int64_t tokens_per_step = 1) {
  GenerationRecord record;
  record.key.strategy = strategy;
  record.key.prompt_id = question;
  record.question_id = question;
  record.generation.prefill_seconds = 1.0;
  record.generation.decode_seconds = seconds;
  record.generation.tokens.resize(11);
  for (int64_t left = 10; left > 0; left -= tokens_per_step) {
    record.generation.steps.push_back({.committed = std::min(left, tokens_per_step)});
  }
  return record;
}

std::vector<GenerationPair> pairs_of(const std::vector<GenerationRecord>& first,
                                     const std::vector<GenerationRecord>& other) {
  std::vector<const GenerationRecord*> a;
  std::vector<const GenerationRecord*> b;
  for (const auto& record : first) {
    a.push_back(&record);
  }
  for (const auto& record : other) {
    b.push_back(&record);
  }
  return pair_generations(a, b);
}

QuestionPair question(double first_seconds, int64_t first_tokens, double other_seconds,
                      int64_t other_tokens) {
  return {.first = {.decode_seconds = first_seconds,
                    .total_seconds = first_seconds + 1.0,
                    .committed = first_tokens,
                    .tokens = first_tokens,
                    .steps = first_tokens},
          .other = {.decode_seconds = other_seconds,
                    .total_seconds = other_seconds + 1.0,
                    .committed = other_tokens,
                    .tokens = other_tokens,
                    .steps = other_tokens}};
}

TEST(SpeedupTest, IsTheGeometricMeanOfTheQuestionsRatios) {
  const std::vector<QuestionPair> questions = {question(1.0, 10, 0.5, 10),
                                               question(24.0, 30, 1.0, 10)};
  const auto speedup = decode_speedup(questions).value();
  EXPECT_DOUBLE_EQ(speedup.ratio, 4.0);  // of 2 and 8
  EXPECT_DOUBLE_EQ(speedup.of_totals, (25.0 / 40.0) / (1.5 / 20.0));
  EXPECT_EQ(speedup.questions, 2);
  EXPECT_EQ(speedup.interval, std::nullopt);
}

TEST(SpeedupTest, EndToEndHoldsThePrefill) {
  const std::vector<QuestionPair> questions = {question(3.0, 10, 1.0, 10)};
  EXPECT_DOUBLE_EQ(decode_speedup(questions)->ratio, 3.0);
  EXPECT_DOUBLE_EQ(end_to_end_speedup(questions)->ratio, 2.0);
  EXPECT_DOUBLE_EQ(end_to_end_speedup(questions)->of_totals, 2.0);
}

TEST(SpeedupTest, NeedsAQuestionWithTokensAndTime) {
  EXPECT_EQ(decode_speedup({}), std::nullopt);
  const std::vector<QuestionPair> questions = {question(0.0, 10, 0.5, 10),
                                               question(1.0, 10, 0.5, 0)};
  EXPECT_EQ(decode_speedup(questions), std::nullopt);
  // A question that ended with the prefill's token has no decode speed-up, but an end-to-end one.
  std::vector<QuestionPair> short_answer = {question(0.0, 1, 0.0, 1)};
  short_answer[0].first.committed = short_answer[0].other.committed = 0;
  EXPECT_EQ(decode_speedup(short_answer), std::nullopt);
  EXPECT_DOUBLE_EQ(end_to_end_speedup(short_answer)->ratio, 1.0);
  // Beside questions that were decoded it is behind neither speed-up.
  const std::vector<QuestionPair> both = {question(3.0, 10, 1.0, 10), short_answer[0]};
  EXPECT_EQ(decode_speedup(both)->questions, 1);
  EXPECT_EQ(end_to_end_speedup(both)->questions, 1);
  EXPECT_DOUBLE_EQ(end_to_end_speedup(both)->ratio, 2.0);
}

TEST(SpeedupTest, PairingRemovesWhatQuestionsShare) {
  // Questions differ tenfold in cost, but every one is exactly twice as fast.
  std::vector<QuestionPair> questions;
  for (int i = 1; i <= 10; ++i) {
    questions.push_back(question(1.0 * i, 10, 0.5 * i, 10));
  }
  const auto interval = decode_speedup(questions)->interval.value();
  EXPECT_NEAR(interval.low, 2.0, 1e-12);
  EXPECT_NEAR(interval.high, 2.0, 1e-12);
}

TEST(SpeedupTest, PairsAreTheSameTurnAndRepeat) {
  std::vector<GenerationRecord> first = {speedup_record("plain", "a", 1.0),
                                         speedup_record("plain", "a", 2.0)};
  first[1].key.repeat = 1;
  std::vector<GenerationRecord> other = {speedup_record("fast", "a", 0.5),
                                         speedup_record("fast", "b", 0.5)};
  other[0].key.repeat = 1;
  const auto pairs = pairs_of(first, other);
  ASSERT_THAT(pairs, SizeIs(1));
  EXPECT_EQ(pairs[0].first, &first[1]);
  EXPECT_TRUE(equal_texts(pairs[0]));
  other[0].generation.tokens[3] = 7;
  EXPECT_FALSE(equal_texts(pairs[0]));
}

/// Random numbers in (0, 1) and standard normal ones, the same in every run.
class SpeedupNoise {
 public:
  double uniform() {
    random_.seek(position_++, Purpose::kSample);
    const int64_t high = random_.draw(thousand_);
    return (1000.0 * static_cast<double>(high) + static_cast<double>(random_.draw(thousand_)) +
            0.5) /
           1e6;
  }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * M_PI * uniform());
  }

 private:
  CounterRandomness random_{17};
  std::vector<double> thousand_ = std::vector<double>(1000, 1.0);
  int64_t position_ = 0;
};

/// Two turns and two repeats a question. Questions come from two kinds of text whose ratios differ,
/// and vary within each; turns, repeats and the clock add noise of their own.
std::vector<GenerationRecord> simulated_run(int questions, SpeedupNoise& noise) {
  std::vector<GenerationRecord> records;
  for (int q = 0; q < questions; ++q) {
    const double kind = noise.uniform() < 0.3 ? std::log(2.0) : std::log(1.3);
    const double ratio = kind + 0.2 * noise.normal();
    for (int part = 0; part < 4; ++part) {
      for (const char* strategy : {"plain", "fast"}) {
        const double slower = strategy[0] == 'p' ? ratio : 0.0;
        auto record = speedup_record(strategy, std::to_string(q),
                                     std::exp(slower + 0.05 * noise.normal()), 10);
        record.key.prompt_id += part % 2 == 0 ? "/1" : "/2";
        record.key.repeat = part / 2;
        records.push_back(std::move(record));
      }
    }
  }
  return records;
}

/// The intervals that a report prints are right in 95 of 100 experiments, few questions or many.
TEST(SpeedupTest, IntervalsCoverTheTruth) {
  SpeedupNoise noise;
  const double truth = std::exp(0.3 * std::log(2.0) + 0.7 * std::log(1.3));
  for (const auto& [questions, datasets] : {std::pair{8, 4000}, {20, 2000}, {60, 1500}}) {
    int covered = 0;
    for (int dataset = 0; dataset < datasets; ++dataset) {
      const auto summary = summarize(simulated_run(questions, noise));
      const auto& speedup = summary.rows.at(1).speedup.value();
      ASSERT_EQ(speedup.questions, questions);
      covered += speedup.interval->low <= truth && truth <= speedup.interval->high ? 1 : 0;
    }
    EXPECT_THAT(100.0 * covered / datasets, AllOf(Ge(93.0), Le(97.0))) << questions;
  }
}

/// Ten arms that are all as fast as the first strategy: the fastest seems faster, and its own
/// interval says so far too often.
TEST(SpeedupTest, TheIntervalOfTheSelectedArmIsCorrected) {
  SpeedupNoise noise;
  constexpr int kArms = 10;
  constexpr int kDatasets = 2000;
  int corrected = 0;
  int uncorrected = 0;
  for (int dataset = 0; dataset < kDatasets; ++dataset) {
    std::optional<Speedup> fastest;
    for (int arm = 0; arm < kArms; ++arm) {
      std::vector<QuestionPair> questions;
      for (int i = 0; i < 12; ++i) {
        questions.push_back(question(std::exp(0.2 * noise.normal()), 10, 1.0, 10));
      }
      const auto speedup = decode_speedup(questions);
      fastest = !fastest || speedup->ratio > fastest->ratio ? speedup : fastest;
    }
    const auto covers = [](const Interval& interval) {
      return interval.low <= 1.0 && 1.0 <= interval.high;
    };
    uncorrected += covers(*fastest->interval) ? 1 : 0;
    corrected += covers(*selected_interval(*fastest, kArms)) ? 1 : 0;
  }
  EXPECT_LT(uncorrected, 0.85 * kDatasets);
  EXPECT_GE(corrected, 0.95 * kDatasets);
}

TEST(SpeedupTest, OneArmNeedsNoCorrection) {
  std::vector<QuestionPair> questions;
  for (int i = 1; i <= 9; ++i) {
    questions.push_back(question(1.0 + 0.1 * i, 10, 1.0, 10));
  }
  const auto speedup = decode_speedup(questions).value();
  EXPECT_DOUBLE_EQ(selected_interval(speedup, 1)->low, speedup.interval->low);
  EXPECT_LT(selected_interval(speedup, 5)->low, speedup.interval->low);
  questions.resize(7);
  EXPECT_EQ(selected_interval(*decode_speedup(questions), 5), std::nullopt);
}

/// A strategy that adds 2 tokens a step, so many times as fast on these questions.
std::optional<ImpossibleSpeedup> impossible_at(double times, const std::vector<Token>& texts = {},
                                               int questions = 8) {
  std::vector<GenerationRecord> first;
  std::vector<GenerationRecord> other;
  for (int i = 0; i < questions; ++i) {
    first.push_back(speedup_record("plain", std::to_string(i), 3.0 + 0.01 * i));
    other.push_back(speedup_record("fast", std::to_string(i), 3.0 / times, 2));
    if (!texts.empty()) {
      other.back().generation.tokens = texts;
    }
  }
  return impossible_speedup(pairs_of(first, other));
}

TEST(SpeedupTest, WhatTokensPerStepCannotExplainIsFlagged) {
  EXPECT_EQ(impossible_at(1.9), std::nullopt);
  const auto flagged = impossible_at(2.2);
  ASSERT_TRUE(flagged.has_value());
  EXPECT_DOUBLE_EQ(flagged->step_ratio, 2.0);
  EXPECT_GT(flagged->low, 2.0);
  EXPECT_EQ(flagged->questions, 8);
  EXPECT_EQ(impossible_at(2.2, std::vector<Token>(11, 5)), std::nullopt) << "other texts may be";
}

TEST(SpeedupTest, WithoutAnIntervalTheSpeedupItselfIsCompared) {
  EXPECT_EQ(impossible_at(2.05, {}, 1), std::nullopt) << "few times differ by as much";
  const auto flagged = impossible_at(2.2, {}, 1);
  ASSERT_TRUE(flagged.has_value());
  EXPECT_DOUBLE_EQ(flagged->low, 2.2);
  EXPECT_DOUBLE_EQ(flagged->step_ratio, 2.0);
  EXPECT_EQ(flagged->questions, 1);
  EXPECT_EQ(impossible_at(2.2, std::vector<Token>(11, 5), 1), std::nullopt) << "no equal texts";
}

TEST(SpeedupTest, SummaryFlagsWhatIsImpossible) {
  std::vector<GenerationRecord> records;
  for (int i = 0; i < 8; ++i) {
    records.push_back(speedup_record("plain", std::to_string(i), 3.0 + 0.01 * i));
    records.push_back(speedup_record("fast", std::to_string(i), 1.0, 2));
    records.push_back(speedup_record("fair", std::to_string(i), 2.0, 2));
  }
  const Summary summary = summarize(records);
  EXPECT_EQ(summary.rows.at(0).impossible, std::nullopt);
  EXPECT_TRUE(summary.rows.at(1).impossible.has_value());
  EXPECT_EQ(summary.rows.at(2).impossible, std::nullopt);
  EXPECT_NEAR(summary.rows.at(2).end_to_end->ratio, 4.035 / 3.0, 1e-3);
}

}  // namespace
}  // namespace specdec
