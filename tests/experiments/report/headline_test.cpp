#include "experiments/report/headline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "experiments/report/conditions.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

SummaryRow arm(const std::string& strategy, double ratio, int64_t questions,
               double log_error = 0.02) {
  const auto speedup = [&](double value) {
    const GeometricMean mean{.value = value, .log_error = log_error, .count = questions};
    return Speedup{.ratio = value,
                   .interval = geometric_interval(mean),
                   .questions = questions,
                   .of_totals = value,
                   .log_error = log_error};
  };
  return {.sweep_point = "",
          .strategy = strategy,
          .category = "",
          .questions = questions,
          .speedup = speedup(ratio),
          .end_to_end = speedup(0.9 * ratio)};
}

/// Plain decoding and these, on a machine of 2 cores that nothing else uses.
Report report_with(std::vector<SummaryRow> arms) {
  Report report;
  report.environment.cores = 2;
  report.environment.threads = 1;
  report.summary.rows.push_back(
      {.sweep_point = "", .strategy = "plain", .category = "", .is_first = true});
  for (SummaryRow& each : arms) {
    report.summary.rows.push_back(std::move(each));
  }
  return report;
}

std::string table_of(const Report& report) {
  std::ostringstream out;
  write_table(out, report);
  return out.str();
}

TEST(HeadlineTest, OneArmIsNotSelected) {
  const std::string text = headline(report_with({arm("fast", 2.0, 12)}));
  // exp(0.02 t(11)) = 1.045
  EXPECT_EQ(text,
            "fast decoded 2.00 times as fast as plain (95 % interval 1.91 to 2.09), 1.80 times end "
            "to end (95 % interval 1.72 to 1.88) over 12 questions.");
}

TEST(HeadlineTest, TheFastestOfSeveralIsMarkedAndItsIntervalWidened) {
  Report report = report_with({arm("slow", 1.2, 12), arm("fast", 2.0, 12), arm("mid", 1.5, 12)});
  report.summary.rows.push_back(arm("of a category", 9.0, 12));
  report.summary.rows.back().category = "prose";
  const auto fastest = fastest_arm(report).value();
  EXPECT_EQ(fastest.row->strategy, "fast");
  EXPECT_EQ(fastest.arms, 3);
  EXPECT_LT(fastest.interval->low, fastest.row->speedup->interval->low);
  EXPECT_GT(fastest.interval->high, fastest.row->speedup->interval->high);
  EXPECT_LT(fastest.end_to_end_interval->low, fastest.row->end_to_end->interval->low);
  EXPECT_THAT(headline(report),
              AllOf(HasSubstr("selected as the fastest of 3 strategies and settings"),
                    HasSubstr("corrected")));
  EXPECT_THAT(table_of(report), HasSubstr("Result: fast decoded 2.00 times"));
  std::ostringstream out;
  write_json(out, report);
  const auto json = nlohmann::json::parse(out.str()).at("headline");
  EXPECT_EQ(json.at("selected_among"), 3);
  EXPECT_NEAR(json.at("speedup_interval_95_simultaneous").at(0).get<double>(),
              fastest.interval->low, 1e-12);
}

/// Two temperatures, at each of them two draft lengths; the lossy strategy is the fastest.
Report two_conditions() {
  Report report;
  report.sweep_keys = {"sampling.temperature", "strategies.fast.draft_length"};
  report.strategies = {{.name = "plain", .description = ""},
                       {.name = "fast", .description = ""},
                       {.name = "loose", .description = "", .lossy = true}};
  for (const auto& [temperature, length, ratio] :
       {std::tuple{"0", "2", 1.4}, {"0", "4", 2.0}, {"0.8", "2", 1.5}, {"0.8", "4", 1.1}}) {
    const std::string condition = std::string("temperature=") + temperature;
    const std::string choice = std::string("draft_length=") + length;
    const std::string label = condition + ", " + choice;
    report.sweep_points.push_back({label, {temperature, length}, condition, choice});
    if (std::string(length) == "2") {
      SummaryRow plain = arm("plain", 1.0, 12);
      plain.speedup = plain.end_to_end = std::nullopt;
      plain.is_first = true;
      plain.counts.committed = 100;
      plain.counts.decode_seconds = 2.0;
      plain.sweep_point = label;
      report.summary.rows.push_back(plain);
      report.summary.rows.push_back(arm("loose", 3.0, 12));
      report.summary.rows.back().sweep_point = label;
    }
    report.summary.rows.push_back(arm("fast", ratio, 12));
    report.summary.rows.back().sweep_point = label;
  }
  return report;
}

TEST(HeadlineTest, ConditionsAreNotChosen) {
  const Report report = two_conditions();
  const auto all = fastest_arms(report);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].condition, "temperature=0");
  EXPECT_DOUBLE_EQ(all[0].row->speedup->ratio, 2.0) << "lossy strategies are no headline";
  EXPECT_EQ(all[0].arms, 2);
  EXPECT_DOUBLE_EQ(all[1].row->speedup->ratio, 1.5);
  EXPECT_DOUBLE_EQ(all[1].interval->low, selected_interval(*all[1].row->speedup, 2)->low);
  const auto sentences = headlines(report);
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_THAT(sentences[0], StartsWith("At temperature=0, fast, draft_length=4 decoded 2.00"));
  EXPECT_THAT(sentences[1],
              AllOf(StartsWith("At temperature=0.8, fast, draft_length=2 decoded 1.50 times"),
                    HasSubstr("fastest of 2 strategies and settings on these")));
  EXPECT_THAT(table_of(report), AllOf(HasSubstr("Result: At temperature=0, "),
                                      HasSubstr("Result: At temperature=0.8, ")));
}

TEST(HeadlineTest, ABestConditionIsCorrectedForAllOfThem) {
  const Report report = two_conditions();
  const auto fastest = fastest_arm(report).value();
  EXPECT_EQ(fastest.arms, 4);
  EXPECT_DOUBLE_EQ(fastest.interval->low, selected_interval(*fastest.row->speedup, 4)->low);
  EXPECT_THAT(headline(report),
              HasSubstr("fastest of 4 strategies and settings under 2 conditions"));
}

TEST(HeadlineTest, OnlyLossyStrategiesHaveNoHeadline) {
  Report report = report_with({arm("loose", 2.0, 12)});
  report.strategies = {{.name = "plain", .description = ""},
                       {.name = "loose", .description = "", .lossy = true}};
  EXPECT_EQ(fastest_arm(report), std::nullopt);
  EXPECT_THAT(headline(report), StartsWith("Only lossy strategies were compared"));
  report.sweep_points = {{"", {}, "", "", {"loose"}}};  // lossy at other points of the sweep
  EXPECT_THAT(headline(report), StartsWith("loose decoded 2.00 times"));
}

TEST(HeadlineTest, APivotHasKeysAsColumns) {
  const Report report = two_conditions();
  EXPECT_EQ(pivot_header(report),
            (Cells{"temperature", "draft_length", "plain, tokens/s", "loose (lossy), speed-up",
                   "fast, speed-up", "questions"}));
  const auto rows = pivot_rows(report);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[1], testing::ElementsAre("0", "4", "50.0", StartsWith("3.00 ("),
                                            StartsWith("2.00 ("), "12"));
  EXPECT_THAT(rows[2], testing::ElementsAre("0.8", "2", "50.0", StartsWith("3.00 ("),
                                            StartsWith("1.50 ("), "12"));
  EXPECT_THAT(table_of(report), HasSubstr("temperature  draft_length  plain, tokens/s"));
  std::ostringstream html;
  write_html(html, report);
  EXPECT_THAT(html.str(), HasSubstr("id=\"table-conditions\""));
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(), AllOf(StartsWith("sweep_point,sampling.temperature,"
                                          "strategies.fast.draft_length,strategy,"),
                               HasSubstr("\n\"temperature=0.8, draft_length=4\",0.8,4,fast,"),
                               HasSubstr("\n\"temperature=0.8, draft_length=2\",0.8,,plain,")));
}

TEST(HeadlineTest, FiguresShowTheFastestSettingOfEachCondition) {
  Report report = two_conditions();
  for (SummaryRow& row : report.summary.rows) {
    row.counts.committed = 100;
    row.counts.decode_seconds = row.speedup ? 1.0 / row.speedup->ratio : 1.0;
  }
  std::vector<std::string> names;
  for (const SummaryRow* row : fastest_rows(report)) {
    names.push_back(row->strategy + " " + row->sweep_point);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"fast temperature=0, draft_length=4",
                                            "fast temperature=0.8, draft_length=2"}));
  EXPECT_EQ(names.size(), 6U);
}

TEST(HeadlineTest, SaysWhatItDoesNotShow) {
  EXPECT_EQ(headline(Report()), "There is nothing to compare yet.");
  EXPECT_THAT(headline(report_with({arm("fast", 2.0, 7)})),
              AllOf(Not(HasSubstr("interval 1")),
                    HasSubstr("too few questions for an interval: 7, and at least 8 are needed.")));
  EXPECT_THAT(headline(report_with({arm("fast", 1.02, 12)})), HasSubstr("The interval contains 1"));
  EXPECT_THAT(headline(report_with({arm("fast", 0.8, 12)})),
              StartsWith("No strategy was faster than plain; fast came nearest, at 0.80 times"));
}

TEST(HeadlineTest, ABusyMachineIsSaidOnTop) {
  Report report = report_with({arm("fast", 2.0, 12)});
  EXPECT_THAT(measurement_warnings(report), IsEmpty());
  report.summary.load.add({.seconds = 10.0, .average = 5.0, .stolen_seconds = 2.0});
  EXPECT_THAT(table_of(report),
              StartsWith("Warning: The machine was busy: the hypervisor took 20.0 "
                         "% of a CPU away; the load average was 5.0 on 2 CPUs."));
  EXPECT_THAT(reader_notes(report).front(), StartsWith("The machine was busy"));
  EXPECT_THAT(table_of(report), Not(HasSubstr("Note: The machine was busy"))) << "said twice";
  std::ostringstream out;
  write_html(out, report);
  const std::string html = out.str();
  EXPECT_LT(html.find("The machine was busy"), html.find("fast decoded"));
}

TEST(HeadlineTest, LossyStrategiesHaveTheirQualityMeasuredOrSaySo) {
  Report report = report_with({arm("lossy", 2.0, 12)});
  report.strategies = {{.name = "plain", .description = ""},
                       {.name = "lossy", .description = "", .lossy = true}};
  EXPECT_THAT(reader_notes(report), Contains(HasSubstr("this report does not measure")));
  auto& quality = report.summary.rows[1].quality;
  quality = QualityComparison{.first_share = 0.5,
                              .share = 0.49,
                              .interval = Interval{-0.03, 0.01},
                              .questions = 400,
                              .conclusion = QualityConclusion::kNotWorse};
  report.summary.rows[1].right_share = 0.49;
  const auto note = [&] { return quality_notes(report, report.strategies[1]).at(0); };
  EXPECT_EQ(note(),
            "lossy is lossy: correct on 49.0 % of 400 questions, plain on 50.0 % (95 % interval of "
            "the difference -3.0 to +1.0 points); it is not worse by more than 5 points.");
  EXPECT_THAT(table_of(report), AllOf(HasSubstr("49.0 %"), HasSubstr("-1.0 (-3.0 to +1.0)")));
  quality->conclusion = QualityConclusion::kWorse;
  EXPECT_THAT(note(), HasSubstr("; it is worse by more than 5 points."));
  quality->conclusion = QualityConclusion::kCannotTell;
  quality->first_share = 0.1;
  EXPECT_THAT(note(), HasSubstr("; with a baseline below 20 % a loss would not show, so the "));
  quality->first_share = 0.95;
  EXPECT_THAT(note(), HasSubstr("; with a baseline above 90 % the questions are too easy to show "
                                "that it is not worse by more than 5 points."));
  quality->first_share = 0.5;
  quality->arms = 3;
  quality->corrected = Interval{-0.06, 0.02};
  EXPECT_THAT(note(), HasSubstr("(95 % interval of the difference -6.0 to +2.0 points, corrected "
                                "for 3 lossy strategies and settings (Bonferroni))"));
  quality->arms = 1;
  quality->interval.reset();
  quality->conclusion = QualityConclusion::kUndecided;
  EXPECT_THAT(note(),
              HasSubstr("plain on 50.0 %; these questions do not settle whether it is worse"));
  std::ostringstream out;
  write_json(out, report);
  const auto row = nlohmann::json::parse(out.str()).at("rows").at(1);
  EXPECT_EQ(row.at("quality").at("conclusion"), "undecided");
  EXPECT_EQ(row.at("right_share"), 0.49);
}

TEST(HeadlineTest, LossyTextsAreMeasuredOnBothSides) {
  Report report = report_with({arm("lossy", 2.0, 12)});
  report.strategies = {{.name = "plain", .description = ""},
                       {.name = "lossy", .description = "", .lossy = true}};
  report.summary.rows[0].log_prob = -2.5;
  SummaryRow& row = report.summary.rows[1];
  row.log_prob = -2.2;
  row.log_probs =
      LogProbComparison{.difference = 0.3, .interval = Interval{0.1, 0.5}, .questions = 12};
  row.total_variation_bound = 0.0341;
  const auto note = [&] { return quality_notes(report, report.strategies[1]).at(0); };
  EXPECT_EQ(note(),
            "lossy is lossy: its texts are more likely than plain's, by 0.300 nats per token (95 % "
            "interval +0.100 to +0.500): not better, but closer to the modes; the total variation "
            "from the target is at least 0.034 per token (95 % confidence).");
  EXPECT_THAT(table_of(report), AllOf(HasSubstr("+0.300 (+0.100 to +0.500)"), HasSubstr("0.034")));
  row.log_probs->difference = -0.3;
  row.log_probs->interval = Interval{-0.5, -0.1};
  EXPECT_THAT(note(),
              AllOf(HasSubstr("less likely than plain's, by 0.300 nats"), Not(HasSubstr("modes"))));
  row.log_probs->interval = Interval{-0.7, 0.1};
  row.total_variation_bound = 0.0;
  EXPECT_THAT(note(), AllOf(HasSubstr("(95 % interval -0.700 to +0.100), which is not significant"),
                            HasSubstr("does not prove that there is none.")));
  std::ostringstream out;
  write_json(out, report);
  const auto json = nlohmann::json::parse(out.str()).at("rows");
  EXPECT_EQ(json.at(0).at("log_prob_per_token"), -2.5);
  EXPECT_EQ(json.at(1).at("log_prob_comparison").at("questions"), 12);
  EXPECT_EQ(json.at(1).at("total_variation_at_least"), 0.0);
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(),
              AllOf(HasSubstr("log_prob_difference_low_95"), HasSubstr(",-2.2,-0.3,-0.7,0.1,0,")));
}

TEST(HeadlineTest, TheMarginIsTheConfigs) {
  Report report = report_with({arm("lossy", 2.0, 12)});
  report.strategies = {{.name = "plain", .description = ""},
                       {.name = "lossy", .description = "", .lossy = true}};
  report.summary.rows[1].quality = QualityComparison{
      .questions = 9, .margin = 0.025, .conclusion = QualityConclusion::kNotWorse};
  EXPECT_THAT(quality_notes(report, report.strategies[1]).at(0),
              HasSubstr("not worse by more than 2.5 points"));
}

TEST(HeadlineTest, AnImpossibleSpeedupIsAFaultOfTheMeasurement) {
  Report report = report_with({arm("fast", 2.0, 12)});
  report.summary.rows[1].impossible =
      ImpossibleSpeedup{.low = 1.9, .step_ratio = 1.5, .questions = 11};
  EXPECT_THAT(
      measurement_warnings(report),
      Contains(AllOf(HasSubstr("cannot explain the speed-up of fast"), HasSubstr("11 questions"),
                     HasSubstr("at least 1.90"), HasSubstr("only 1.50 times"))));
}

/// The row of a strategy of which so many of 100 drafted tokens were accepted.
SummaryRow arm_of_steps(SummaryRow row, int64_t accepted) {
  row.counts.steps = 100;
  row.counts.committed = 100 + accepted;
  row.counts.drafted = 100;
  row.counts.accepted = accepted;
  return row;
}

TEST(HeadlineTest, WithoutAnAcceptedTokenASpeedupIsNoise) {
  Report report = report_with({arm_of_steps(arm("suffix", 1.24, 1), 0)});
  EXPECT_FALSE(fastest_arm(report).has_value());
  EXPECT_THAT(headline(report), HasSubstr("No drafted token was accepted"));
  const std::string noise =
      "No token that suffix drafted was accepted, so its speed-up of 1.24 is noise";
  EXPECT_THAT(measurement_warnings(report), Contains(HasSubstr(noise)));
  report.summary.rows[1].impossible =
      ImpossibleSpeedup{.low = 1.24, .step_ratio = 1.0, .questions = 1};
  EXPECT_THAT(measurement_warnings(report), Contains(HasSubstr(noise)));
  EXPECT_EQ(measurement_warnings(report).size(), 1U);
  EXPECT_THAT(table_of(report), Not(HasSubstr("suffix decoded 1.24 times")));
  // Beside one that does speculate, that one is the headline.
  report.summary.rows.push_back(arm_of_steps(arm("draft", 1.1, 1), 50));
  EXPECT_THAT(headline(report), StartsWith("draft decoded 1.10 times"));
  EXPECT_FALSE(is_noise(report.summary.rows[2]));
  EXPECT_FALSE(is_noise(arm_of_steps(arm("slow", 0.9, 1), 0))) << "drafting costs time";
  EXPECT_FALSE(is_noise(arm("plain", 1.3, 1))) << "beside a slow first strategy";
}

TEST(HeadlineTest, AnImpossibleSpeedupOfFewQuestionsHasNoLimit) {
  Report report = report_with({arm_of_steps(arm("fast", 2.0, 3), 150)});
  report.summary.rows[1].impossible =
      ImpossibleSpeedup{.low = 2.0, .step_ratio = 1.5, .questions = 3};
  EXPECT_THAT(measurement_warnings(report),
              Contains(AllOf(HasSubstr("on the 3 questions"), HasSubstr("texts it is 2.00, but"))));
}

}  // namespace
}  // namespace specdec
