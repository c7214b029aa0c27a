#include "experiments/report/report_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "experiments/report/drawing.h"
#include "experiments/report/svg_plot.h"
#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ReportSample swept_sample() {
  ReportSample sample;
  sample.sweep_keys = {"draft_length", "temperature"};
  for (const char* length : {"1", "2", "4"}) {
    for (const char* temperature : {"0", "1"}) {
      sample.points.push_back({std::string(length) + "/" + temperature, {length, temperature}});
    }
  }
  return sample;
}

std::vector<std::string> ids_of(const ReportFigures& figures) {
  std::vector<std::string> ids;
  for (const ReportFigure& figure : figures.figures) {
    ids.push_back(figure.id);
  }
  return ids;
}

const ReportFigure* find_figure(const ReportFigures& figures, const std::string& id) {
  const auto found = std::find_if(figures.figures.begin(), figures.figures.end(),
                                  [&](const ReportFigure& each) { return each.id == id; });
  return found == figures.figures.end() ? nullptr : &*found;
}

TEST(ReportFiguresTest, RunWithAllDataHasAllFigures) {
  ReportSample sample = swept_sample();
  sample.lossy = true;
  const auto figures = draw_figures(sample_report(sample));
  const auto ids = ids_of(figures);
  EXPECT_THAT(ids, Contains("speedup_map_1"));
  EXPECT_THAT(ids, Contains("tree_1"));
  if (!can_draw()) {
    return;
  }
  EXPECT_THAT(ids,
              testing::IsSupersetOf({"speedup", "questions", "speedup_by_category", "sweep_speedup",
                                     "sweep_tokens_per_step", "speedup_by_tokens", "time_split",
                                     "acceptance", "tokens_added", "cost_curve", "predictions",
                                     "speed_by_log_prob", "speed_by_answers"}));
  EXPECT_TRUE(figures.left_out.empty());
  for (const ReportFigure& figure : figures.figures) {
    EXPECT_THAT(figure.svg, AllOf(StartsWith("<svg role=\"img\""), EndsWith("</svg>")))
        << figure.id;
    EXPECT_FALSE(figure.data.rows.empty()) << figure.id;
    EXPECT_EQ(figure.data.id, figure.id);
  }
}

TEST(ReportFiguresTest, AttentionByAgeIsAShareOfEachLayer) {
  const auto figures = draw_figures(sample_report({}));
  const ReportFigure* figure = find_figure(figures, "attention_ages");
  ASSERT_NE(figure, nullptr);
  ASSERT_EQ(figure->data.rows.size(), 2U);
  EXPECT_EQ(figure->data.rows[0], (Cells{"0", "0.75", "0.25", "-"}));
  EXPECT_EQ(figure->data.rows[1], (Cells{"1", "0.25", "0.25", "0.5"}));
}

TEST(ReportFiguresTest, WhatHasNoDataIsLeftOutWithTheReason) {
  Report report = sample_report({});
  report.details = {};
  const auto figures = draw_figures(report);
  std::string reasons;
  for (const LeftOutFigure& figure : figures.left_out) {
    reasons += figure.title + ": " + figure.reason + "\n";
  }
  EXPECT_THAT(
      reasons,
      AllOf(HasSubstr("How far back attention looks: the cache was not traced"),
            HasSubstr("Tree of drafts with hit rates: drafters were not traced"),
            HasSubstr("Predicted and measured speed-up: no cost curve"),
            HasSubstr("Speed-up along a sweep: the run has none"),
            HasSubstr("Cost of a forward pass over n tokens, v(n): no forward pass was timed")));
}

TEST(ReportFiguresTest, FrontierIsWhatFreePerfectDraftsWouldReach) {
  const auto figures = draw_figures(sample_report({}));
  const ReportFigure* figure = find_figure(figures, "speedup_by_tokens");
  if (figure == nullptr) {
    GTEST_SKIP() << "gnuplot is not installed";
  }
  // v(2) = 1.2 ms, v(1) = 1.1 ms.
  const auto row = std::find_if(
      figure->data.rows.begin(), figure->data.rows.end(),
      [](const Cells& cells) { return cells[0] == "frontier by v(n)" && cells[1] == "2"; });
  ASSERT_NE(row, figure->data.rows.end());
  EXPECT_NEAR(std::stod((*row)[2]), 2.0 * 1.1 / 1.2, 1e-5);
}

TEST(ReportFiguresTest, SpeedStandsAgainstQualityOfLossyStrategies) {
  if (!can_draw()) {
    GTEST_SKIP() << "gnuplot is not installed";
  }
  const auto figures = draw_figures(
      sample_report({.strategies = {"plain", "exact", "loose"}, .questions = 12, .lossy = true}));
  const ReportFigure* texts = find_figure(figures, "speed_by_log_prob");
  ASSERT_NE(texts, nullptr);
  // 2 and 3 tokens a step that takes 1.25 times as long; half of the questions 0.2, half 0.3.
  ASSERT_EQ(texts->data.rows.size(), 3U);
  EXPECT_EQ(texts->data.rows[0], (Cells{"plain", "0.0000", "-", "-", "1.0000", "-", "-"}));
  EXPECT_EQ(texts->data.rows[1][1], "0.0000") << "lossless by its promise";
  EXPECT_EQ(texts->data.rows[1][4], "1.6000");
  EXPECT_EQ(texts->data.rows[2][1], "0.2500");
  EXPECT_EQ(texts->data.rows[2][4], "2.4000");
  EXPECT_LT(std::stod(texts->data.rows[2][2]), 0.25);
  const ReportFigure* answers = find_figure(figures, "speed_by_answers");
  ASSERT_NE(answers, nullptr);
  ASSERT_EQ(answers->data.rows.size(), 2U) << "the other lossless strategy was not scored";
  EXPECT_THAT(answers->data.rows[1][1], StartsWith("-16.6"));
  EXPECT_THAT(answers->caption, HasSubstr("margin, -5 points"));
}

TEST(ReportFiguresTest, IntervalsAreOnlyAnnouncedWhereThereAreAny) {
  if (!can_draw()) {
    GTEST_SKIP() << "gnuplot is not installed";
  }
  for (const int64_t questions : {12, 3}) {
    const auto figures = draw_figures(sample_report({.questions = questions}));
    for (const char* id : {"speedup", "questions", "acceptance"}) {
      const ReportFigure* figure = find_figure(figures, id);
      ASSERT_NE(figure, nullptr);
      EXPECT_THAT(figure->svg, Not(HasSubstr("95 %")));
      EXPECT_THAT(figure->caption,
                  HasSubstr(questions > 3 ? "95 % interval" : "too few questions for intervals"));
    }
  }
}

TEST(ReportFiguresTest, StrategiesThatASweepDoesNotTouchAreLevelLines) {
  if (!can_draw()) {
    GTEST_SKIP() << "gnuplot is not installed";
  }
  Report report = sample_report({.strategies = {"plain", "swept", "fixed"},
                                 .points = {{"k=1", {"1"}}, {"k=2", {"2"}}},
                                 .sweep_keys = {"k"}});
  std::erase_if(report.summary.rows, [](const SummaryRow& row) {
    return row.strategy == "fixed" && row.sweep_point == "k=2";
  });
  const auto figures = draw_figures(report);
  std::string lines;
  for (const Cells& row : find_figure(figures, "sweep_speedup")->data.rows) {
    lines += row[0] + " at " + row[1] + "; ";
  }
  EXPECT_EQ(lines, "swept at 1; swept at 2; fixed (not swept) at 1; fixed (not swept) at 2; ");
  EXPECT_THAT(find_figure(figures, "time_split")->svg,
              AllOf(HasSubstr(">fixed<"), Not(HasSubstr("fixed, k=1"))));
}

TEST(ReportFiguresTest, LosslessRunsHaveNoQualityFigure) {
  const auto figures = draw_figures(sample_report({}));
  EXPECT_EQ(find_figure(figures, "speed_by_log_prob"), nullptr);
  EXPECT_EQ(find_figure(figures, "speed_by_answers"), nullptr);
}

TEST(ReportFiguresTest, AcceptanceHasItsIntervalAndN) {
  const auto figures = draw_figures(sample_report({}));
  const ReportFigure* figure = find_figure(figures, "acceptance");
  if (figure == nullptr) {
    GTEST_SKIP() << "gnuplot is not installed";
  }
  EXPECT_THAT(figure->svg, HasSubstr("n=60"));
  const Cells& second = figure->data.rows.at(1);  // no second token was ever accepted
  EXPECT_EQ(second[2], "0");
  EXPECT_EQ(second[5], "n=60");
  EXPECT_GT(std::stod(second[4]), 0.0);
}

TEST(DrawingTest, HeatMapShowsItsValuesAndEmptyFields) {
  const HeatMap map{.title = "map <of> a test",
                    .x_label = "length",
                    .y_label = "width",
                    .x_names = {"1", "2"},
                    .y_names = {"a", "b"},
                    .values = {{0.5, 2.0}, {std::nullopt, 1.0}}};
  const auto svg = draw(map);
  ASSERT_TRUE(svg.has_value());
  EXPECT_THAT(*svg, AllOf(HasSubstr("map &lt;of&gt; a test"), HasSubstr(">0.50<"),
                          HasSubstr(">2.00<"), HasSubstr("stroke-dasharray"),
                          HasSubstr("rgb(0,114,178)"), Not(HasSubstr("<of>"))));
  EXPECT_EQ(draw(HeatMap{}), std::nullopt);
}

TEST(DrawingTest, TreeShowsHowOftenItsNodesAreHit) {
  TreeDrawing drawing{.title = "tree",
                      .tree = {.sweep_point = "", .strategy = "s", .positions = 0, .nodes = {}},
                      .style = 1};
  EXPECT_EQ(draw(drawing), std::nullopt);
  drawing.tree.positions = 200;
  drawing.tree.nodes = {{.parent = -1, .rank = 0, .depth = 1, .hits = 100},
                        {.parent = 0, .rank = 1, .depth = 2, .hits = 15}};
  const auto svg = draw(drawing);
  ASSERT_TRUE(svg.has_value());
  EXPECT_THAT(*svg, AllOf(HasSubstr(">50 %<"), HasSubstr(">7.5 %<"),
                          HasSubstr("choice 2 at position 2: 15 of 200 positions")));
}

}  // namespace
}  // namespace specdec
