#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/metrics/metrics.h"

namespace specdec {

/// A value, and where it lies in the figure. Points that are not finite are left out.
struct PlotPoint {
  double x = 0.0;
  double y = 0.0;
  std::optional<Interval> interval = {};
  std::string label = {};                   ///< in line plots, beside the point if there is room
  std::optional<Interval> x_interval = {};  ///< in line plots, beside the upright one
};

enum class PlotMark {
  kLineAndPoints,
  kPoints,
  kDots,  ///< small and pale: many values beside their mean
  kLine,
  kDashes
};

struct PlotSeries {
  std::string name;
  /// Picks colour and mark, so that a strategy looks the same in all figures; no two of the first
  /// 64 share both.
  size_t style = 0;
  std::vector<PlotPoint> points;
  PlotMark mark = PlotMark::kLineAndPoints;
};

/// Colour of a style as CSS and SVG write it, for tables and figures without gnuplot.
std::string style_color(size_t style);
/// How many styles with lower numbers have the same colour: they differ in mark, dash and pattern.
size_t style_round(size_t style);
/// True where any point has an interval that is drawn.
bool has_intervals(const std::vector<PlotSeries>& all);

/// Lines with marks, or marks alone; intervals stand upright.
struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
  std::vector<std::string> x_names;      ///< when not empty, the tick at x = i is called x_names[i]
  std::optional<double> reference = {};  ///< a dashed line across, at this y
  std::optional<double> y_max = {};      ///< else as the points need; the axis begins at zero
  bool numeric_x = false;                ///< ticks at round numbers instead of at the points
  std::optional<double> x_reference = {};  ///< a dashed line down, at this x
};

/// Bars of the series side by side at each x, which are whole numbers.
struct BarPlot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
};

/// Marks in named rows, the first on top; y of a point is its row, and intervals lie flat.
struct DotPlot {
  std::string title, x_label;
  std::vector<std::string> rows;
  std::vector<PlotSeries> series;        ///< drawn above each other within a row
  std::optional<double> reference = {};  ///< a dashed line down, at this x
  bool legend = true;                    ///< off when rows name the series already
};

/// Bars in named rows, the first on top, each made of the same parts.
struct StackedBarPlot {
  struct Part {
    std::string name;
    std::vector<double> values;  ///< one per row
  };
  std::string title, x_label;
  std::vector<std::string> rows;
  std::vector<Part> parts;
};

/// The figure as one <svg> element to put into a page: text and axes take the page's colour, and
/// names are shown as they are, whatever characters they hold. Drawn by gnuplot in another process;
/// none when that is not installed, fails, or there is nothing to draw.
std::optional<std::string> draw(const LinePlot& plot);
std::optional<std::string> draw(const BarPlot& plot);
std::optional<std::string> draw(const DotPlot& plot);
std::optional<std::string> draw(const StackedBarPlot& plot);

/// True when gnuplot can be run.
bool can_draw();

}  // namespace specdec
