#pragma once
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/report/report_tables.h"

namespace specdec {

/// A figure of a report, with what to look for in it and the numbers in it.
struct ReportFigure {
  std::string id;  ///< name of its files
  std::string title;
  std::string svg;
  std::string caption;  ///< plain text
  ReportTable data;
};

/// A figure that the report could have, and why it has not.
struct LeftOutFigure {
  std::string title;
  std::string reason;
};

struct ReportFigures {
  std::vector<ReportFigure> figures;  ///< in the order to read them
  std::vector<LeftOutFigure> left_out;
};

/// The figures that a report has data for. Without gnuplot only those that it is not needed for.
ReportFigures draw_figures(const Report& report);

}  // namespace specdec
