#include <fmt/format.h>

#include <algorithm>
#include <ostream>

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

}  // namespace

void write_table(std::ostream& out, const Report& report) {
  const auto warnings = measurement_warnings(report);
  for (const std::string& warning : warnings) {
    out << "Warning: " << one_line(warning, kLineCharacters) << "\n";
  }
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
    header.emplace_back("sweep");
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
      cells.push_back(is_swept(report.summary.rows, row.strategy)
                          ? one_line(row.sweep_point, kNameCharacters)
                          : "-");
    }
    for (const ReportColumn& column : report_columns(report)) {
      if (column.in_terminal) {
        cells.push_back(column.cell(row));
      }
    }
    rows.push_back(std::move(cells));
  }
  write_aligned(out, rows, names);
  if (fastest_arm(report)) {
    out << "Result: " << one_line(headline(report), kLineCharacters) << "\n";
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
