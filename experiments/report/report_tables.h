#pragma once
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {

/// A table as the page shows it and as files hold it.
struct ReportTable {
  std::string id;       ///< name of its files
  std::string caption;  ///< plain text
  Cells header;
  std::vector<Cells> rows;
  size_t names = 1;            ///< the first columns are text
  std::vector<size_t> styles;  ///< colour of each row (see style_color); empty = none
};

/// A small mark of a strategy's style beside its name.
std::string style_mark(size_t style);
/// HTML of a table as an element of a page; its columns can be sorted where scripts run.
std::string table_html(const ReportTable& table);
/// Comma-separated values. A cell "1.83 (1.71 to 1.95)" becomes three columns, "62.1 %" a number;
/// "-" is empty.
std::string table_csv(const ReportTable& table);
/// LaTeX for the package booktabs, to be put in with \input.
std::string table_latex(const ReportTable& table);

/// Where two greedy generations differ first: position, both gaps, both tokens ("ended" for none).
Cells divergence_cells(const Divergence& divergence);

/// The tables of a report that have rows: results, quality, grammar and further results, over all
/// prompts and by category; speed-ups by condition and strategy; acceptance by position, questions,
/// divergences.
std::vector<ReportTable> report_tables(const Report& report);

}  // namespace specdec
