#include "experiments/report/plot_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/report/gnuplot.h"

namespace specdec {
namespace {

constexpr size_t kSeriesCharacters = 60;

// Okabe and Ito's colours, which people with any colour vision tell apart, their yellow darkened to
// show on a light page and their black left out for dark ones; grey first, for the strategy that
// the others are compared with.
constexpr std::array<const char*, 8> kColors = {"#7A7A7A", "#0072B2", "#D55E00", "#009E73",
                                                "#CC79A7", "#E69F00", "#56B4E9", "#A39800"};
// Filled circle, square, triangle, lozenge, inverted triangle, pentagon; open circle and square.
constexpr std::array<int, 8> kMarks = {7, 5, 9, 13, 11, 15, 6, 4};

/// How gnuplot draws a series: "linespoints lc rgb '#0072B2' ...".
std::string series_style(const PlotSeries& series) {
  const std::string color = style_color(series.style);
  const size_t round = style_round(series.style);
  const int mark = kMarks[(series.style + round) % kMarks.size()];
  switch (series.mark) {
    case PlotMark::kPoints:
      return fmt::format("points lc rgb '{}' pt {} ps 0.9", color, mark);
    case PlotMark::kDots:
      return fmt::format("points lc rgb '#80{}' pt 7 ps 0.45", color.substr(1));
    case PlotMark::kLine:
      return fmt::format("lines lc rgb '{}' lw 1.6 dt {}", color, 1 + round);
    case PlotMark::kDashes:
      return fmt::format("lines lc rgb '{}' lw 1.4 dt {}", color, 2 + round);
    case PlotMark::kLineAndPoints:
      break;
  }
  return fmt::format("linespoints lc rgb '{}' lw 2 pt {} ps 0.8 dt {}", color, mark, 1 + round);
}

bool is_drawn(const PlotPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

bool has_interval(const PlotPoint& point) {
  return point.interval && std::isfinite(point.interval->low) &&
         std::isfinite(point.interval->high);
}

bool any_x_interval(const PlotSeries& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const PlotPoint& point) { return point.x_interval.has_value(); });
}

bool any_interval(const PlotSeries& series) {
  return std::any_of(series.points.begin(), series.points.end(), has_interval);
}

}  // namespace

std::string style_color(size_t style) { return kColors[style % kColors.size()]; }

size_t style_round(size_t style) { return style / kColors.size(); }

bool has_intervals(const std::vector<PlotSeries>& all) {
  return std::any_of(all.begin(), all.end(), any_interval);
}

std::vector<PlotSeries> drawn(const std::vector<PlotSeries>& all) {
  std::vector<PlotSeries> kept;
  for (PlotSeries series : all) {
    std::erase_if(series.points, [](const PlotPoint& point) { return !is_drawn(point); });
    if (!series.points.empty()) {
      kept.push_back(std::move(series));
    }
  }
  return kept;
}

std::string data_blocks(const std::vector<PlotSeries>& all) {
  std::string script;
  for (size_t i = 0; i < all.size(); ++i) {
    script += fmt::format("$points{} << END\n", i);
    for (const PlotPoint& point : all[i].points) {
      script += fmt::format("{} {}\n", point.x, point.y);
    }
    script += fmt::format("END\n$intervals{} << END\n", i);
    for (const PlotPoint& point : all[i].points) {
      if (has_interval(point)) {
        script += fmt::format("{} {} {} {}\n", point.x, point.y, point.interval->low,
                              point.interval->high);
      }
    }
    script += fmt::format("END\n$x_intervals{} << END\n", i);
    for (const PlotPoint& point : all[i].points) {
      if (point.x_interval) {
        script += fmt::format("{} {} {} {}\n", point.x, point.y, point.x_interval->low,
                              point.x_interval->high);
      }
    }
    script += "END\n";
  }
  return script;
}

std::string plot_command(const std::vector<PlotSeries>& all, const char* bar) {
  std::string script = "plot ";
  for (size_t i = 0; i < all.size(); ++i) {
    if (any_interval(all[i])) {
      script += fmt::format("$intervals{} using 1:2:3:4 with {} lc rgb '{}' lw 1.6 pt 0 notitle, ",
                            i, bar, style_color(all[i].style));
    }
    if (any_x_interval(all[i])) {
      script += fmt::format(
          "$x_intervals{} using 1:2:3:4 with xerrorbars lc rgb '{}' lw 1.6 pt 0 notitle, ", i,
          style_color(all[i].style));
    }
    script += fmt::format("$points{} using 1:2 with {} {}", i, series_style(all[i]),
                          all[i].name.empty()
                              ? "notitle"
                              : "title " + quote_for_gnuplot(all[i].name, kSeriesCharacters));
    script += i + 1 < all.size() ? ", " : "\n";
  }
  return script;
}

Interval extent(const std::vector<PlotSeries>& all, bool along_x) {
  Interval extent{.low = kInfinity, .high = -kInfinity};
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      const double value = along_x ? point.x : point.y;
      const Interval own = has_interval(point) ? *point.interval : Interval{value, value};
      extent.low = std::min({extent.low, own.low, value});
      extent.high = std::max({extent.high, own.high, value});
    }
  }
  return extent;
}

}  // namespace specdec
