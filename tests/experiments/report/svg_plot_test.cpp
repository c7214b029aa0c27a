#include "experiments/report/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <vector>

#include "experiments/report/gnuplot.h"
#include "experiments/report/plot_labels.h"
#include "experiments/report/plot_series.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class SvgPlotTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_draw()) {
      GTEST_SKIP() << "gnuplot is not installed";
    }
  }
};

LinePlot lines(const std::string& name) {
  return {
      .title = "title of " + name,
      .x_label = "position",
      .y_label = "share",
      .series = {{.name = name, .style = 1, .points = {{1, 0.5}, {2, 0.25, Interval{0.2, 0.3}}}}},
      .x_names = {},
      .reference = 1.0,
      .y_max = {}};
}

TEST(GnuplotTest, QuotesWhatCouldEndOrBreakAString) {
  EXPECT_EQ(quote_for_gnuplot("plain", 10), "'plain'");
  EXPECT_EQ(quote_for_gnuplot("it's \"`id`\"", 20), "'it''s \"`id`\"'");
  EXPECT_EQ(quote_for_gnuplot("a\nb\tc\x7f", 20), "'a b c '");
  EXPECT_EQ(quote_for_gnuplot("\xff\xc3\xa9", 20), "'?\xc3\xa9'");
  EXPECT_EQ(quote_for_gnuplot("abcdef", 6), "'abcdef'");
  EXPECT_EQ(quote_for_gnuplot("abcdefg", 6), "'abcde…'");
  EXPECT_EQ(quote_for_gnuplot("", 6), "''");
}

TEST_F(SvgPlotTest, FailingScriptGivesNone) {
  EXPECT_EQ(run_gnuplot("this is no command"), std::nullopt);
  EXPECT_EQ(run_gnuplot("exit status 3"), std::nullopt);
}

TEST_F(SvgPlotTest, DrawsAnElementForAPage) {
  const auto svg = draw(lines("name"));
  ASSERT_TRUE(svg.has_value());
  EXPECT_THAT(*svg, AllOf(StartsWith("<svg role=\"img\""), EndsWith("</svg>"),
                          HasSubstr("<title>title of name</title>"), HasSubstr("position"),
                          HasSubstr("share"), Not(HasSubstr("<?xml")), Not(HasSubstr("<script")),
                          Not(HasSubstr("black")), Not(HasSubstr("  0,   0,   0"))));
}

TEST_F(SvgPlotTest, NamesAreShownAndNeverRun) {
  const auto victim = std::filesystem::temp_directory_path() / "specdec_plot_victim";
  std::filesystem::remove(victim);
  const std::string touch = "touch " + victim.string();
  const std::string name = "</text><script>' `" + touch + "` \"\n!" + touch + "\\";
  LinePlot plot = lines(name);
  plot.x_label = plot.y_label = name;
  plot.x_names = {name, name, name};
  const auto svg = draw(plot);
  ASSERT_TRUE(svg.has_value());
  EXPECT_FALSE(std::filesystem::exists(victim));
  EXPECT_THAT(*svg, AllOf(Not(HasSubstr("<script")), HasSubstr("&lt;script&gt;")));
}

TEST_F(SvgPlotTest, NamesKeepWhatIsMarkupToGnuplot) {
  const auto svg = draw(lines("a_b^{2}@x"));
  ASSERT_TRUE(svg.has_value());
  EXPECT_THAT(*svg, HasSubstr("a_b^{2}@x</text>"));
}

TEST_F(SvgPlotTest, NothingToDrawGivesNone) {
  EXPECT_EQ(draw(LinePlot{}), std::nullopt);
  EXPECT_EQ(draw(DotPlot{}), std::nullopt);
  EXPECT_EQ(draw(StackedBarPlot{}), std::nullopt);
  LinePlot plot = lines("name");
  plot.series[0].points = {{1, NAN}, {INFINITY, 1}};
  EXPECT_EQ(draw(plot), std::nullopt);
  EXPECT_EQ(
      draw(StackedBarPlot{
          .title = "t", .x_label = "x", .rows = {"a"}, .parts = {{.name = "p", .values = {0.0}}}}),
      std::nullopt);
}

TEST_F(SvgPlotTest, OnePointOfZeroIsDrawn) {
  LinePlot plot = lines("name");
  plot.series[0].points = {{3, 0}};
  plot.reference.reset();
  EXPECT_TRUE(draw(plot).has_value());
}

TEST_F(SvgPlotTest, DotsAndBarsNameTheirRows) {
  DotPlot dots{.title = "dots", .x_label = "x", .rows = {"first row", "second row"}, .series = {}};
  for (size_t i = 0; i < 9; ++i) {
    dots.series.push_back({.name = "series " + std::to_string(i),
                           .style = i,
                           .points = {{1.0 + static_cast<double>(i), 0, Interval{1, 2}}, {2, 1}}});
  }
  const auto figure = draw(dots);
  ASSERT_TRUE(figure.has_value());
  EXPECT_THAT(*figure,
              AllOf(HasSubstr("first row"), HasSubstr("second row"), HasSubstr("series 8")));
  const auto bars = draw(StackedBarPlot{.title = "bars",
                                        .x_label = "ms",
                                        .rows = {"row one", "row two"},
                                        .parts = {{"part one", {1, 2}}, {"part two", {3, 0}}}});
  ASSERT_TRUE(bars.has_value());
  EXPECT_THAT(*bars, AllOf(HasSubstr("row one"), HasSubstr("part two")));
}

TEST(PlotSeriesTest, NoTwoStylesShareColourAndMark) {
  const std::regex drawn_as("lc rgb '(#......)' lw 2 pt ([0-9]+)");
  std::set<std::string> seen;
  for (size_t style = 0; style < 64; ++style) {
    const auto command =
        plot_command({{.name = "s", .style = style, .points = {{1, 1}}}}, "yerrorbars");
    std::smatch match;
    ASSERT_TRUE(std::regex_search(command, match, drawn_as)) << command;
    EXPECT_TRUE(seen.insert(match[0]).second) << style;
  }
}

/// Where label_commands puts its labels, in pixels.
std::vector<std::pair<double, double>> label_places(const std::vector<PlotSeries>& all) {
  const PlotArea area{.x = {0.0, 10.0}, .y = {0.0, 1.0}, .width = 500.0, .height = 200.0};
  const std::string script = label_commands(all, area);
  const std::regex place("at first ([-0-9.e]+), first ([-0-9.e]+) center");
  std::vector<std::pair<double, double>> places;
  for (std::sregex_iterator at(script.begin(), script.end(), place), end; at != end; ++at) {
    places.emplace_back(50.0 * std::stod((*at)[1]), 200.0 * std::stod((*at)[2]));
  }
  return places;
}

TEST(PlotLabelsTest, LabelsCoverNeitherEachOtherNorPoints) {
  std::vector<PlotSeries> all;
  for (size_t i = 0; i < 4; ++i) {
    const double y = 0.4 + 0.04 * static_cast<double>(i);  // 8 pixels apart
    all.push_back({.name = "s", .style = i, .points = {{2, y, {}, "n=1000"}, {6, y, {}, "n=100"}}});
  }
  const auto places = label_places(all);
  EXPECT_GE(places.size(), 4U);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(std::abs(places[i].first - places[j].first) > 30.0 ||
                  std::abs(places[i].second - places[j].second) > 11.9);
    }
    for (const PlotSeries& series : all) {
      for (const PlotPoint& point : series.points) {
        EXPECT_TRUE(std::abs(places[i].first - 50.0 * point.x) > 15.0 ||
                    std::abs(places[i].second - 200.0 * point.y) > 10.9);
      }
    }
  }
  const auto alone = label_places({{.name = "s", .points = {{5, 0.5, {}, "n=1"}}}});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_NEAR(alone[0].first, 250.0, 1e-6);
  EXPECT_NEAR(alone[0].second, 112.0, 1e-6) << "above its point";
  // Twenty points at one place: no room for all.
  all.assign(20, {.name = "s", .points = {{5, 0.5, {}, "n=1"}}});
  EXPECT_LT(label_places(all).size(), 9U);
}

TEST(GnuplotTest, WithoutGnuplotThereIsNoFigure) {
  const char* path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  ::setenv("PATH", "/nonexistent", 1);
  const bool drawable = can_draw();
  const auto svg = draw(lines("name"));
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_FALSE(drawable);
  EXPECT_EQ(svg, std::nullopt);
}

}  // namespace
}  // namespace specdec
