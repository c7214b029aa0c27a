#pragma once
#include <limits>
#include <string>
#include <vector>

#include "experiments/report/svg_plot.h"

namespace specdec {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Series with their finite points, those without any left out.
std::vector<PlotSeries> drawn(const std::vector<PlotSeries>& all);
/// gnuplot's data: $points<i> has x, y of series i; $intervals<i> x, y, low, high of those that
/// have one, $x_intervals<i> those along x.
std::string data_blocks(const std::vector<PlotSeries>& all);
/// gnuplot's command for lines, marks and intervals: `bar` is its style for the intervals
/// ("yerrorbars"). Series without a name are not in the legend.
std::string plot_command(const std::vector<PlotSeries>& all, const char* bar);
/// Least and greatest of what is drawn along y (lines) or x (dots), intervals included.
Interval extent(const std::vector<PlotSeries>& all, bool along_x);

}  // namespace specdec
