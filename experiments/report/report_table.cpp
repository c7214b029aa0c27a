#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "experiments/report/conditions.h"
#include "experiments/report/headline.h"
#include "experiments/report/report.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr size_t kNameCharacters = 36;
constexpr size_t kLineCharacters = 500;

bool has_sweep(const Report& report) {
  return std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                     [](const SummaryRow& row) { return !row.sweep_point.empty(); });
}

/// Columns of the sweep's keys; of a report that does not know them, one of its points.
Cells sweep_names(const Report& report) {
  return report.sweep_keys.empty() ? Cells{"sweep"} : sweep_header(report);
}

Cells sweep_values(const Report& report, const SummaryRow& row) {
  return !report.sweep_keys.empty()                    ? sweep_cells(report, row)
         : is_swept(report.summary.rows, row.strategy) ? Cells{row.sweep_point}
                                                       : Cells{"-"};
}

/// Conditions in rows, strategies in columns, below an empty line.
void write_pivot(std::ostream& out, const Report& report) {
  std::vector<Cells> rows = pivot_rows(report);
  if (rows.empty()) {
    return;
  }
  rows.insert(rows.begin(), pivot_header(report));
  for (Cells& row : rows) {
    for (std::string& cell : row) {
      cell = one_line(cell, kNameCharacters);
    }
  }
  out << "\n";
  write_aligned(out, rows, report.sweep_keys.size());
}

/// A row for each strategy, category or point of the sweep.
void write_rows(std::ostream& out, const Report& report) {
  const bool sweep = has_sweep(report);
  // Categories at every point of a sweep would be too much for a terminal; the page has them.
  const bool categories =
      !sweep && std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                            [](const SummaryRow& row) { return !row.category.empty(); });
  Cells header;
  if (categories) {
    header.emplace_back("prompts");
  }
  header.emplace_back("strategy");
  if (sweep) {
    const Cells keys = sweep_names(report);
    header.insert(header.end(), keys.begin(), keys.end());
  }
  const size_t names = header.size();
  for (const ReportColumn& column : report_columns(report)) {
    if (column.in_terminal) {
      header.push_back(column.title);
    }
  }
  std::vector<Cells> rows = {header};
  for (const SummaryRow& row : report.summary.rows) {
    if (!categories && !row.category.empty()) {
      continue;
    }
    Cells cells;
    if (categories) {
      cells.push_back(row.category.empty() ? "all" : one_line(row.category, kNameCharacters));
    }
    cells.push_back(one_line(row.strategy, kNameCharacters));
    if (sweep) {
      for (const std::string& value : sweep_values(report, row)) {
        cells.push_back(one_line(value, kNameCharacters));
      }
    }
    for (const ReportColumn& column : report_columns(report)) {
      if (column.in_terminal) {
        cells.push_back(
            (column.terminal_cell != nullptr ? column.terminal_cell : column.cell)(row));
      }
    }
    rows.push_back(std::move(cells));
  }
  write_aligned(out, rows, names);
}

}  // namespace

void write_table(std::ostream& out, const Report& report) {
  const auto warnings = measurement_warnings(report);
  for (const std::string& warning : warnings) {
    out << "Warning: " << one_line(warning, kLineCharacters) << "\n";
  }
  write_rows(out, report);
  write_pivot(out, report);
  if (std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.speedup.has_value(); })) {
    for (const std::string& line : headlines(report)) {
      out << "Result: " << one_line(line, kLineCharacters) << "\n";
    }
  }
  for (const std::string& line : divergence_lines(report)) {
    out << "Divergence: " << one_line(line, kLineCharacters) << "\n";
  }
  const auto notes = reader_notes(report);  // begins with the warnings
  for (size_t i = warnings.size(); i < notes.size(); ++i) {
    out << "Note: " << one_line(notes[i], kLineCharacters) << "\n";
  }
}

}  // namespace specdec
