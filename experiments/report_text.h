#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/report.h"

namespace specdec {

/// A text that a page shows as it is, in content and in quoted attributes; what a page cannot hold
/// (control characters, broken UTF-8) becomes U+FFFD.
std::string escape_html(std::string_view text);
/// A text for one line of a terminal: control characters and broken UTF-8 become '?'; longer ones
/// end with an ellipsis.
std::string one_line(std::string_view text, size_t max_characters);
/// Characters of UTF-8 text, as a terminal counts columns for most scripts.
size_t count_characters(std::string_view text);

using Cells = std::vector<std::string>;
/// A table for a terminal: columns as wide as their widest cell; the first `left` stand left, the
/// others right. Rows have equal numbers of cells.
void write_aligned(std::ostream& out, const std::vector<Cells>& rows, size_t left);

/// "0.621" with `decimals`; "-" for none.
std::string number_text(std::optional<double> number, int decimals);
/// "62.1 %"; "-" for none.
std::string percent_text(std::optional<double> share);
/// "1.83 (1.71 to 1.95)"; "1 (reference)" for the first strategy; "-" for none.
std::string speedup_text(const SummaryRow& row);

/// A column of the tables: what it is called, what it means in plain words, and its cells.
struct ReportColumn {
  std::string title;
  std::string definition;
  bool in_terminal = false;  ///< narrow enough, and wanted, there
  std::string (*cell)(const SummaryRow& row);
};
/// Those of a grammar only where there is one.
std::vector<ReportColumn> report_columns(const Report& report);

/// Of each strategy the row over all prompts at its fastest point of the sweep.
std::vector<const SummaryRow*> fastest_rows(const Report& report);
/// Place of a strategy in the report's list, or after it when it is not there.
size_t strategy_index(const Report& report, const std::string& name);
/// "draft_model", or "draft_model, draft_length=4" where there is a sweep.
std::string row_name(const SummaryRow& row);
/// What a reader should know before trusting a figure: lossy strategies, few prompts, intervals
/// that hold 1, uncommitted changes; then the run's own notes.
std::vector<std::string> reader_notes(const Report& report);
/// Every count and metric of a row; what cannot be computed is null.
nlohmann::ordered_json row_json(const SummaryRow& row);
/// One sentence on how many greedy generations left the first strategy's tokens, per strategy.
std::vector<std::string> divergence_lines(const Report& report);

}  // namespace specdec
