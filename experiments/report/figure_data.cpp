#include <fmt/format.h>

#include <cmath>

#include "experiments/report/figure_list.h"

namespace specdec {
namespace {

std::string digits(double number) {
  return std::isfinite(number) ? fmt::format("{:.6g}", number) : "-";
}

ReportTable data_table(Cells header, size_t names) {
  return {.id = "",
          .caption = "",
          .header = std::move(header),
          .rows = {},
          .names = names,
          .styles = {}};
}

/// Points with an x of their own.
ReportTable point_data(const std::string& x_label, const std::string& y_label,
                       const std::vector<PlotSeries>& all) {
  ReportTable table = data_table({"series", x_label, y_label, "low", "high", "remark"}, 1);
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      table.rows.push_back({series.name, digits(point.x), digits(point.y),
                            point.interval ? digits(point.interval->low) : "-",
                            point.interval ? digits(point.interval->high) : "-",
                            point.label.empty() ? "-" : point.label});
    }
  }
  return table;
}

}  // namespace

ReportTable plot_data(const LinePlot& plot) {
  ReportTable table = point_data(plot.x_label, plot.y_label, plot.series);
  for (Cells& row : table.rows) {
    for (size_t i = 0; i < plot.x_names.size(); ++i) {
      row[1] = row[1] == digits(static_cast<double>(i)) ? plot.x_names[i] : row[1];
    }
  }
  return table;
}

ReportTable plot_data(const BarPlot& plot) {
  return point_data(plot.x_label, plot.y_label, plot.series);
}

ReportTable plot_data(const DotPlot& plot) {
  ReportTable table = data_table({"row", "series", plot.x_label, "low", "high"}, 2);
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      const auto row = static_cast<size_t>(std::lround(point.y));
      table.rows.push_back({row < plot.rows.size() ? plot.rows[row] : "", series.name,
                            digits(point.x), point.interval ? digits(point.interval->low) : "-",
                            point.interval ? digits(point.interval->high) : "-"});
    }
  }
  return table;
}

ReportTable plot_data(const StackedBarPlot& plot) {
  Cells header = {"row"};
  for (const StackedBarPlot::Part& part : plot.parts) {
    header.push_back(part.name);
  }
  ReportTable table = data_table(std::move(header), 1);
  for (size_t row = 0; row < plot.rows.size(); ++row) {
    Cells cells = {plot.rows[row]};
    for (const StackedBarPlot::Part& part : plot.parts) {
      cells.push_back(digits(part.values.at(row)));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

ReportTable plot_data(const HeatMap& plot) {
  ReportTable table = data_table({plot.y_label + " \\ " + plot.x_label}, 1);
  table.header.insert(table.header.end(), plot.x_names.begin(), plot.x_names.end());
  for (size_t y = 0; y < plot.y_names.size(); ++y) {
    Cells cells = {plot.y_names[y]};
    for (const auto& value : plot.values.at(y)) {
      cells.push_back(value ? digits(*value) : "-");
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace specdec
