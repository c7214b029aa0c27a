#include "experiments/metrics/quality.h"

#include <gtest/gtest.h>

#include "core/randomness.h"
#include "experiments/metrics/metrics.h"

namespace specdec {
namespace {

/// Right answers of plain decoding and of another strategy, a question each.
struct Scores {
  bool first = false, other = false;
};

std::vector<GenerationRecord> scored_records(const std::vector<Scores>& scores) {
  std::vector<GenerationRecord> records;
  for (size_t i = 0; i < scores.size(); ++i) {
    GenerationRecord record;
    record.key = {.sweep_point = "", .strategy = "plain", .prompt_id = std::to_string(i)};
    record.is_right = scores[i].first;
    records.push_back(record);
    record.key.strategy = "lossy";
    record.is_right = scores[i].other;
    records.push_back(record);
  }
  return records;
}

std::optional<QualityComparison> quality_of(const std::vector<Scores>& scores) {
  const auto records = scored_records(scores);
  return summarize(records).rows.at(1).quality;
}

/// Scores of so many questions of each outcome.
std::vector<Scores> outcomes(int both, int neither, int only_first, int only_other) {
  std::vector<Scores> scores(static_cast<size_t>(both), {true, true});
  scores.insert(scores.end(), static_cast<size_t>(neither), {false, false});
  scores.insert(scores.end(), static_cast<size_t>(only_first), {true, false});
  scores.insert(scores.end(), static_cast<size_t>(only_other), {false, true});
  return scores;
}

TEST(QualityTest, ComparesPairedAnswers) {
  const auto quality = quality_of(outcomes(120, 60, 12, 8)).value();
  EXPECT_EQ(quality.questions, 200);
  EXPECT_NEAR(quality.first_share, 0.66, 1e-12);
  EXPECT_NEAR(quality.share, 0.64, 1e-12);
  // By hand: mean -4 / 202, variance 21 / 202 - mean^2, t(199) = 1.97196.
  EXPECT_NEAR(quality.interval->low, -0.064453, 1e-5);
  EXPECT_NEAR(quality.interval->high, 0.024849, 1e-5);
  EXPECT_EQ(quality.conclusion, QualityConclusion::kUndecided);
}

TEST(QualityTest, ConclusionsFollowTheMargin) {
  EXPECT_EQ(quality_of(outcomes(400, 190, 5, 5))->conclusion, QualityConclusion::kNotWorse);
  EXPECT_EQ(quality_of(outcomes(300, 200, 100, 0))->conclusion, QualityConclusion::kWorse);
  EXPECT_EQ(quality_of(outcomes(10, 10, 0, 0))->conclusion, QualityConclusion::kUndecided)
      << "20 questions without a difference are no proof";
  EXPECT_EQ(quality_of(outcomes(400, 200, 0, 0))->conclusion, QualityConclusion::kNotWorse);
  EXPECT_EQ(quality_of(outcomes(10, 590, 0, 0))->conclusion, QualityConclusion::kCannotTell);
  EXPECT_EQ(quality_of(outcomes(590, 10, 0, 0))->conclusion, QualityConclusion::kCannotTell);
}

TEST(QualityTest, ALossShowsWhateverTheBaseline) {
  const auto destroyed = quality_of(outcomes(0, 0, 60, 0)).value();
  EXPECT_EQ(destroyed.conclusion, QualityConclusion::kWorse);
  EXPECT_EQ(destroyed.interval->low, -1.0) << "no share can fall by more";
  EXPECT_EQ(quality_of(outcomes(0, 0, 0, 60))->interval->high, 1.0);
  // Right on 95 %: a large loss is one, a small one is undecided, and no loss proves little.
  EXPECT_EQ(quality_of(outcomes(300, 30, 270, 0))->conclusion, QualityConclusion::kWorse);
  EXPECT_EQ(quality_of(outcomes(560, 10, 25, 5))->conclusion, QualityConclusion::kUndecided);
  EXPECT_EQ(quality_of(outcomes(585, 10, 0, 5))->conclusion, QualityConclusion::kCannotTell);
  // Right on 18 %: all of it is lost, which shows; or a quarter, which need not.
  EXPECT_EQ(quality_of(outcomes(0, 492, 108, 0))->conclusion, QualityConclusion::kWorse);
  EXPECT_EQ(quality_of(outcomes(80, 492, 28, 0))->conclusion, QualityConclusion::kCannotTell);
}

TEST(QualityTest, ConclusionsAreCorrectedForTheNumberOfArms) {
  const auto records = scored_records(outcomes(300, 270, 22, 8));
  const auto quality = [&](int64_t arms) {
    return summarize(records, {.lossy_arms = arms}).rows.at(1).quality.value();
  };
  EXPECT_EQ(quality(1).conclusion, QualityConclusion::kNotWorse);
  EXPECT_EQ(quality(1).corrected->low, quality(1).interval->low);
  EXPECT_EQ(quality(0).arms, 1);
  EXPECT_EQ(quality(20).conclusion, QualityConclusion::kUndecided);
  EXPECT_EQ(quality(20).interval->low, quality(1).interval->low);
  EXPECT_LT(quality(20).corrected->low, -0.05);
  EXPECT_GT(quality(20).corrected->high, quality(1).interval->high);
}

TEST(QualityTest, TheMarginCanBeAnother) {
  const auto records = scored_records(outcomes(400, 190, 5, 5));  // -1.05 to +1.05 points
  const auto quality = [&](double margin) {
    return summarize(records, {.quality_margin = margin}).rows.at(1).quality.value();
  };
  EXPECT_EQ(quality(0.02).conclusion, QualityConclusion::kNotWorse);
  EXPECT_EQ(quality(0.005).conclusion, QualityConclusion::kUndecided);
  EXPECT_EQ(quality(0.005).margin, 0.005);
}

TEST(QualityTest, FewQuestionsHaveNoInterval) {
  const auto quality = quality_of(outcomes(3, 3, 1, 0)).value();
  EXPECT_EQ(quality.interval, std::nullopt);
  EXPECT_EQ(quality.conclusion, QualityConclusion::kUndecided);
}

TEST(QualityTest, NothingScoredIsNothingCompared) {
  auto records = scored_records(outcomes(10, 10, 0, 0));
  for (auto& record : records) {
    record.is_right.reset();
  }
  const auto summary = summarize(records);
  EXPECT_EQ(summary.rows.at(1).quality, std::nullopt);
  EXPECT_EQ(summary.rows.at(1).right_share, std::nullopt);
}

TEST(QualityTest, RepeatsOfAQuestionAreOneObservation) {
  auto records = scored_records(outcomes(4, 4, 1, 0));
  const size_t count = records.size();
  for (size_t i = 0; i < count; ++i) {
    auto again = records[i];
    again.key.repeat = 1;
    records.push_back(again);
  }
  const auto quality = summarize(records).rows.at(1).quality.value();
  EXPECT_EQ(quality.questions, 9);
  EXPECT_NEAR(quality.interval->low, quality_of(outcomes(4, 4, 1, 0))->interval->low, 1e-12);
}

/// A strategy that is exactly as bad as the margin must seldom pass for "not worse".
TEST(QualityTest, AStrategyAtTheMarginSeldomPasses) {
  CounterRandomness random(3);
  const std::vector<double> weights = {0.50, 0.30, 0.125, 0.075};  // 5 points worse
  int passed = 0;
  constexpr int kRuns = 600;
  for (int run = 0; run < kRuns; ++run) {
    random.seek(run, Purpose::kSample);
    std::vector<Scores> scores;
    for (int i = 0; i < 100; ++i) {
      const int64_t outcome = random.draw(weights);
      scores.push_back({outcome == 0 || outcome == 2, outcome == 0 || outcome == 3});
    }
    passed += quality_of(scores)->conclusion == QualityConclusion::kNotWorse ? 1 : 0;
  }
  EXPECT_LE(passed, kRuns / 20);  // 2.5 % are expected
}

/// Ten questions of plain decoding in two formats: right and valid as the flags of the point say.
TEST(QualityTest, ArmsOfASweepAreComparedWithThePlainArm) {
  std::vector<GenerationRecord> records;
  for (const std::string point : {"dtype=float32", "dtype=q4_0"}) {
    for (const std::string strategy : {"plain", "lossy"}) {
      for (int question = 0; question < 10; ++question) {
        GenerationRecord record;
        record.key = {
            .sweep_point = point, .strategy = strategy, .prompt_id = std::to_string(question)};
        const bool loses = point == "dtype=q4_0" || strategy == "lossy";
        record.is_right = loses ? question < 4 : question < 6;
        record.is_valid = loses ? question < 7 : question < 9;
        records.push_back(record);
      }
    }
  }
  const auto rows = summarize(records).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_FALSE(rows[0].plain) << "it is the plain arm";
  EXPECT_FALSE(rows[2].quality) << "the first strategy at its point";
  for (const size_t row : {1U, 2U, 3U}) {
    ASSERT_TRUE(rows[row].plain) << row;
    EXPECT_NEAR(rows[row].plain->right->share, 0.4, 1e-12);
    EXPECT_NEAR(rows[row].plain->right->first_share, 0.6, 1e-12);
    EXPECT_NEAR(rows[row].plain->valid->share, 0.7, 1e-12);
    EXPECT_NEAR(rows[row].plain->valid->first_share, 0.9, 1e-12);
    EXPECT_LT(rows[row].plain->valid->interval->low, -0.2);
  }
  EXPECT_NEAR(rows[3].quality->share, rows[3].quality->first_share, 1e-12) << "both lose alike";
  EXPECT_NEAR(rows[1].valid_share.value(), 0.7, 1e-12);
  EXPECT_NEAR(rows[1].validity->first_share, 0.9, 1e-12);
  records.resize(20);
  EXPECT_FALSE(summarize(records).rows[1].plain) << "its first strategy is the plain arm anyway";
}

}  // namespace
}  // namespace specdec
