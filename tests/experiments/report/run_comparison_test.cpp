#include "experiments/report/run_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

std::vector<GenerationRecord> twice_as_fast(std::vector<GenerationRecord> records) {
  for (GenerationRecord& record : records) {
    record.generation.decode_seconds /= 2.0;
  }
  return records;
}

TEST(RunComparisonTest, SharedGenerationsArePaired) {
  const auto a = sample_records({});
  const auto b = twice_as_fast(a);
  const auto comparison = compare_runs({"runs/a", a}, {"runs/b", b});
  ASSERT_EQ(comparison.arms.size(), 2);
  EXPECT_EQ(comparison.shared, 24);
  for (const ComparedArm& arm : comparison.arms) {
    ASSERT_TRUE(arm.b_over_a.has_value()) << arm.name;
    EXPECT_NEAR(arm.b_over_a->ratio, 2.0, 1e-12);
  }
  EXPECT_TRUE(comparison.notes.empty());
  const auto json = comparison_json(comparison);
  EXPECT_NEAR(json.at("arms").at(1).at("b_over_a").get<double>(), 2.0, 1e-12);
  EXPECT_EQ(json.at("arms").at(1).at("tokens_per_step_difference"), 0.0);
  EXPECT_EQ(json.at("arms").at(1).at("a").at("tokens_per_step"), 2.0);
}

TEST(RunComparisonTest, OnlyWhatBothHaveCountsInB_A) {
  auto a = sample_records({});
  auto b = twice_as_fast(a);
  b[0].generation.decode_seconds *= 100.0;
  b[0].key.prompt_id = "another";
  b[1].prompt_tokens += 1;  // of equal name, but not the same prompt
  b[1].generation.decode_seconds *= 100.0;
  const auto comparison = compare_runs({"a", a}, {"b", b});
  EXPECT_EQ(comparison.shared, 22);
  EXPECT_EQ(comparison.unlike, 1);
  EXPECT_NEAR(comparison.arms[0].b_over_a->ratio, 2.0, 1e-12);
  EXPECT_THAT(comparison.notes, Contains(HasSubstr("1 generations of equal names were left out")));
}

TEST(RunComparisonTest, DifferencesAreListedAndNearTiesCounted) {
  auto a = sample_records({});
  for (GenerationRecord& record : a) {
    record.generation.gaps.assign(record.generation.tokens.size(), 2.0);
  }
  auto b = a;
  // The first three of one arm: a near tie, a near tie of B alone, a shorter text.
  const auto change = [&](size_t i, double gap_a, double gap_b) {
    a[i].generation.gaps[1] = gap_a;
    b[i].generation.gaps[1] = gap_b;
    b[i].generation.tokens[1] += 1;
  };
  change(0, 1e-4, 2e-4);
  change(1, 0.5, 2e-4);
  b[2].generation.tokens.resize(1);
  b[2].generation.gaps.resize(1);
  b[2].generation.stop_reason = StopReason::kEndOfSequence;
  const auto comparison = compare_runs({"a", a}, {"b", b});
  const auto json = comparison_json(comparison);
  int64_t ties = 0;
  std::vector<nlohmann::ordered_json> differences;
  for (const auto& arm : json.at("arms")) {
    ties += arm.at("near_ties").get<int64_t>();
    EXPECT_EQ(arm.at("differences").size(), arm.at("unlike_greedy_texts").get<size_t>());
    differences.insert(differences.end(), arm.at("differences").begin(),
                       arm.at("differences").end());
  }
  EXPECT_EQ(ties, 1);
  ASSERT_EQ(differences.size(), 3);
  for (const auto& each : differences) {
    EXPECT_EQ(each.at("position"), 1);
    EXPECT_NE(each.at("token_a"), each.at("token_b"));
  }
  EXPECT_EQ(differences_table(comparison, 2).rows.size(), 2);
  EXPECT_THAT(differences_table(comparison, 2).caption, HasSubstr("1 more are in --json"));
  std::ostringstream out;
  write_comparison(out, comparison);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("near tie"), HasSubstr("Where greedy texts differ"),
                               HasSubstr("0.0001"), HasSubstr("ended")));
  std::ostringstream page;
  write_comparison_html(page, comparison);
  EXPECT_THAT(page.str(), HasSubstr("Where greedy texts differ"));
}

TEST(RunComparisonTest, TextsThatRanOutOfRoomAreCountedApart) {
  auto a = sample_records({.strategies = {"plain"}});
  for (GenerationRecord& record : a) {
    record.generation.gaps.assign(record.generation.tokens.size(), 1.0);
  }
  auto b = a;
  const auto shorten = [](GenerationRecord& record, StopReason reason) {
    record.generation.tokens.resize(4);
    record.generation.gaps.resize(4);
    record.generation.stop_reason = reason;
  };
  shorten(a[0], StopReason::kMaxNewTokens);
  shorten(b[1], StopReason::kContextFull);
  shorten(b[2], StopReason::kEndOfSequence);  // ended by its text: another one
  b[3].generation.tokens[1] += 1;
  shorten(b[3], StopReason::kMaxNewTokens);  // other tokens before its end
  const auto comparison = compare_runs({"a", a}, {"b", b});
  EXPECT_EQ(comparison.arms[0].cut_short, 2);
  EXPECT_EQ(comparison.arms[0].unlike.size(), 2);
  EXPECT_EQ(comparison_table(comparison).rows[0].back(), "8 of 12, 2 as far as both go");
  EXPECT_EQ(comparison_json(comparison).at("arms").at(0).at("texts_equal_as_far_as_both_go"), 2);
}

TEST(RunComparisonTest, ArmsOfOneRunAreListedAndNoted) {
  const auto a = sample_records({.strategies = {"plain", "old"}});
  const auto b = sample_records({.strategies = {"plain", "new"}});
  const auto comparison = compare_runs({"a", a}, {"b", b});
  EXPECT_THAT(comparison.notes, testing::ElementsAre("Only in A: old.", "Only in B: new."));
  std::ostringstream out;
  write_comparison(out, comparison);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("A: a\nB: b\n"), HasSubstr("old"), HasSubstr("new"),
                               HasSubstr("tokens/step B"), testing::Not(HasSubstr("acceptance"))));
}

TEST(RunComparisonTest, OnlySweptStrategiesShowTheirPoint) {
  const auto a = sample_records({.strategies = {"plain"}});
  auto b =
      sample_records({.strategies = {"plain", "fast"}, .points = {{"k=1", {"1"}}, {"k=2", {"2"}}}});
  std::erase_if(b, [](const GenerationRecord& record) {
    return record.key.strategy == "plain" && record.key.sweep_point == "k=2";
  });
  std::vector<std::string> names;
  for (const ComparedArm& arm : compare_runs({"b", b}, {"b", b}).arms) {
    names.push_back(arm.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("plain", "fast, k=1", "fast, k=2"));
  names.clear();
  for (const ComparedArm& arm : compare_runs({"a", a}, {"b", b}).arms) {
    names.push_back(arm.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("plain", "plain, k=1", "fast, k=1", "fast, k=2"));
}

TEST(RunComparisonTest, SpeedUpsAreOverTheSameConditionOnly) {
  auto records = sample_records({.strategies = {"plain", "fast"},
                                 .points = {{"t=0, k=1", {}}, {"t=1, k=1", {}}, {"t=1, k=2", {}}}});
  std::erase_if(records, [](const GenerationRecord& record) {
    return record.key.strategy == "plain" && record.key.sweep_point == "t=1, k=2";
  });
  for (GenerationRecord& record : records) {
    if (record.key.strategy == "plain" && record.key.sweep_point == "t=1, k=1") {
      record.generation.decode_seconds *= 10.0;
    }
  }
  const auto condition_of = [](const std::string& point) { return point.substr(0, 3); };
  const auto comparison = compare_runs({"a", records, condition_of}, {"b", records});
  const ComparedArm& arm = comparison.arms.back();
  EXPECT_EQ(arm.name, "fast, t=1, k=2");
  EXPECT_NEAR(arm.a->speedup.value().ratio, 16.0, 1e-9) << "not 1.6, which is that over t=0";
  EXPECT_FALSE(arm.b->speedup.has_value()) << "its conditions are not known";
}

TEST(RunComparisonTest, GreedyTextsAreCompared) {
  auto a = sample_records({});
  for (GenerationRecord& record : a) {
    record.generation.gaps.assign(record.generation.tokens.size(), 1.0);
  }
  auto b = a;
  b[0].generation.tokens[3] += 1;
  const auto comparison = compare_runs({"a", a}, {"b", b});
  EXPECT_EQ(comparison.arms[0].texts, 12);
  EXPECT_EQ(comparison.arms[0].unlike.size(), 1);
  EXPECT_EQ(comparison_table(comparison).rows[0].back(), "11 of 12");
}

TEST(RunComparisonTest, PageEscapesNames) {
  const auto a = sample_records({.strategies = {"<script>alert(1)"}});
  std::ostringstream out;
  write_comparison_html(out, compare_runs({"<a>", a}, {"<b>", a}));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("&lt;script&gt;alert(1)"), HasSubstr("A: &lt;a&gt;"),
                               testing::Not(HasSubstr("<script>alert"))));
}

}  // namespace
}  // namespace specdec
