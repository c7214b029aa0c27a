#include "experiments/metrics/fidelity.h"

#include <gtest/gtest.h>

#include "experiments/metrics/metrics.h"

namespace specdec {
namespace {

GenerationRecord fidelity_record(const std::string& strategy, int question, double log_prob,
                                 size_t tokens) {
  GenerationRecord record;
  record.key = {.sweep_point = "", .strategy = strategy, .prompt_id = std::to_string(question)};
  record.generation.tokens.resize(tokens);
  record.log_prob = log_prob;
  return record;
}

TEST(FidelityTest, QuestionsWeighAlikeWhateverTheirLength) {
  std::vector<GenerationRecord> records;
  for (int question = 0; question < 10; ++question) {
    // -2 a token; -1.5 of a tenth of the length, but of question 0 -2.5
    records.push_back(fidelity_record("plain", question, -200.0, 100));
    records.push_back(fidelity_record("lossy", question, question == 0 ? -25.0 : -15.0, 10));
  }
  const auto rows = summarize(records).rows;
  EXPECT_NEAR(rows.at(0).log_prob.value(), -2.0, 1e-12);
  EXPECT_NEAR(rows.at(1).log_prob.value(), -1.6, 1e-12);
  const auto texts = rows.at(1).log_probs.value();
  EXPECT_NEAR(texts.difference, 0.4, 1e-12);
  EXPECT_EQ(texts.questions, 10);
  // By hand: deviations -0.9 and nine of 0.1, error sqrt(0.9 / 9 / 10), t(9) = 2.26216.
  EXPECT_NEAR(texts.interval->low, 0.4 - 0.1 * 2.26216, 1e-5);
  EXPECT_NEAR(texts.interval->high, 0.4 + 0.1 * 2.26216, 1e-5);
}

TEST(FidelityTest, RepeatsOfAQuestionAreOneObservation) {
  std::vector<GenerationRecord> records;
  for (int question = 0; question < 8; ++question) {
    for (int64_t repeat = 0; repeat < 2; ++repeat) {
      for (const char* strategy : {"plain", "lossy"}) {
        records.push_back(fidelity_record(strategy, question, repeat == 0 ? -10.0 : -30.0, 10));
        records.back().key.repeat = repeat;
      }
    }
  }
  const auto row = summarize(records).rows.at(1);
  EXPECT_NEAR(row.log_prob.value(), -2.0, 1e-12);
  EXPECT_EQ(row.log_probs->questions, 8);
  EXPECT_NEAR(row.log_probs->interval->high, 0.0, 1e-12);
}

TEST(FidelityTest, FewQuestionsHaveNoInterval) {
  std::vector<GenerationRecord> records;
  for (int question = 0; question < 7; ++question) {
    records.push_back(fidelity_record("plain", question, -10.0, 10));
    records.push_back(fidelity_record("lossy", question, -9.0 - 0.1 * question, 10));
  }
  const auto texts = summarize(records).rows.at(1).log_probs.value();
  EXPECT_NEAR(texts.difference, 0.07, 1e-12);
  EXPECT_EQ(texts.interval, std::nullopt);
}

TEST(FidelityTest, WhatWasNotMeasuredIsNotCompared) {
  std::vector<GenerationRecord> records = {fidelity_record("plain", 0, -10.0, 10),
                                           fidelity_record("lossless", 0, 0.0, 10),
                                           fidelity_record("silent", 0, 0.0, 0)};
  records[1].log_prob.reset();
  const auto rows = summarize(records).rows;
  for (const size_t i : {1U, 2U}) {
    EXPECT_EQ(rows.at(i).log_prob, std::nullopt);
    EXPECT_EQ(rows.at(i).log_probs, std::nullopt);
    EXPECT_EQ(rows.at(i).total_variation_bound, std::nullopt);
  }
}

TEST(FidelityTest, EqualDifferencesHaveNoInterval) {
  std::vector<GenerationRecord> records;
  for (int question = 0; question < 9; ++question) {
    records.push_back(fidelity_record("plain", question, -10.0, 10));
    records.push_back(fidelity_record("lossy", question, -10.0, 10));
  }
  const auto texts = summarize(records).rows.at(1).log_probs.value();
  EXPECT_EQ(texts.difference, 0.0);
  EXPECT_EQ(texts.interval, std::nullopt);
}

TEST(FidelityTest, FewTokensGiveNoBound) {
  auto record = fidelity_record("lossy", 0, -10.0, 10);
  record.bias =
      BiasSums{.tokens = 5, .taken = 5, .expected = 2.5, .variance = 1.25, .squares = 1.25};
  const std::vector<const GenerationRecord*> pointers = {&record};
  EXPECT_EQ(total_variation_bound(pointers), std::nullopt);
}

TEST(FidelityTest, TotalVariationIsBoundedOverAllTexts) {
  const BiasSums sums{
      .tokens = 100, .taken = 60, .expected = 40.0, .variance = 20.0, .squares = 25.0};
  std::vector<GenerationRecord> records = {fidelity_record("lossy", 0, -10.0, 10),
                                           fidelity_record("lossy", 1, -10.0, 10)};
  std::vector<const GenerationRecord*> pointers = {&records[0], &records[1]};
  EXPECT_EQ(total_variation_bound(pointers), std::nullopt);
  records[0].bias = sums;
  const double one = total_variation_bound(pointers).value();
  EXPECT_NEAR(one, 0.2 - 1.95996 * 5.0 / 100.0, 1e-6);
  records[1].bias = sums;
  EXPECT_GT(total_variation_bound(pointers).value(), one);
}

}  // namespace
}  // namespace specdec
