#pragma once
#include <string>
#include <vector>

#include "experiments/report/report.h"

namespace specdec {

/// A figure of a report, with what to look for in it.
struct ReportFigure {
  std::string svg;
  std::string caption;  ///< plain text
};

/// The figures that a report has data for, in the order to read them; none without gnuplot.
std::vector<ReportFigure> draw_figures(const Report& report);

}  // namespace specdec
