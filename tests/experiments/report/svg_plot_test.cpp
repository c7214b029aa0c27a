#include "experiments/report/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "experiments/report/gnuplot.h"

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
