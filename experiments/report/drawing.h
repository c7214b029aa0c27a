#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/report_details.h"

namespace specdec {

/// Values over two axes, each in a coloured field: orange below `middle`, blue above.
struct HeatMap {
  std::string title, x_label, y_label;
  std::vector<std::string> x_names, y_names;
  std::vector<std::vector<std::optional<double>>> values;  ///< [y][x]; none = an empty field
  double middle = 1.0;
  int decimals = 2;
};

/// How often each path of a tree is what followed.
struct TreeDrawing {
  std::string title;
  HitTree tree;
  size_t style = 0;
};

/// The figure as one <svg> element like those of svg_plot.h, drawn without gnuplot; none when there
/// is nothing to draw.
std::optional<std::string> draw(const HeatMap& map);
std::optional<std::string> draw(const TreeDrawing& drawing);

}  // namespace specdec
