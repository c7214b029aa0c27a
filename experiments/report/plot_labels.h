#pragma once
#include <string>
#include <vector>

#include "experiments/report/svg_plot.h"

namespace specdec {

/// Axes of a figure, in their own units, and how many pixels they are long.
struct PlotArea {
  Interval x, y;
  double width = 425.0;
  double height = 200.0;
};

/// gnuplot's commands that write the labels of points beside them, each where it covers no mark,
/// line, interval or other label; one without such a place is left out.
std::string label_commands(const std::vector<PlotSeries>& all, const PlotArea& area);

}  // namespace specdec
