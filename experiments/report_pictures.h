#pragma once
#include <string>
#include <vector>

#include "experiments/report.h"

namespace specdec {

/// A picture of a report, with what to look for in it.
struct ReportPicture {
  std::string svg;
  std::string caption;  ///< plain text
};

/// The pictures that a report has data for, in the order to read them; none without gnuplot.
std::vector<ReportPicture> draw_pictures(const Report& report);

}  // namespace specdec
