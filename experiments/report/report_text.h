#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {

/// "1.83 (1.71 to 1.95)"; "1.83" without an interval; "-" for none.
std::string interval_text(std::optional<double> value, const std::optional<Interval>& interval);
/// "1.83 (1.71 to 1.95)"; "1 (reference)" for the first strategy; "-" for none.
std::string speedup_text(const SummaryRow& row);
std::string end_to_end_text(const SummaryRow& row);
/// How many questions the row compares and why not all: "9 of 12: 2 not run, 1 without decode
/// steps"; "12" for all.
std::string questions_text(const SummaryRow& row);
/// The same without the reasons: "9 of 12".
std::string question_counts_text(const SummaryRow& row);
/// "62.1 % (55.0 to 68.7)"; "62.1 %" without an interval; "-" for none.
std::string share_text(std::optional<double> share, const std::optional<Interval>& interval);
/// Acceptance at a position (from 0) of those that reached it: "62.1 % (55.0 to 68.7)".
std::string position_text(const SummaryRow& row, size_t position);

/// Which table over all prompts has a column on the page; terminal and categories have them all.
enum class ColumnTable { kResults, kMore, kQuality, kGrammar };

/// A column of the tables: what it is called, what it means in plain words, and its cells.
struct ReportColumn {
  std::string title;
  std::string definition;
  bool in_terminal = false;  ///< narrow enough, and wanted, there
  std::string (*cell)(const SummaryRow& row);
  ColumnTable table = ColumnTable::kResults;
  /// The terminal's cells, where they are shorter.
  std::string (*terminal_cell)(const SummaryRow& row) = nullptr;
};
/// Columns of a report's tables; those of a grammar, of thinking, of scorers, schemas and lossy
/// texts only where there are any.
std::vector<ReportColumn> report_columns(const Report& report);

/// Rows over all prompts at each strategy's fastest point of each condition of the sweep.
std::vector<const SummaryRow*> fastest_rows(const Report& report);
/// Place of a strategy in the report's list, or after it when it is not there.
size_t strategy_index(const Report& report, const std::string& name);
/// True when rows have the strategy at several points of the sweep; one that the sweep does not
/// touch was run at the first alone, whose label says nothing of it.
bool is_swept(std::span<const SummaryRow> rows, const std::string& strategy);
/// "draft_model", or "draft_model, draft_length=4" where the sweep touches it. `rows` as is_swept.
std::string arm_name(std::span<const SummaryRow> rows, const std::string& strategy,
                     const std::string& sweep_point);
std::string row_name(const Report& report, const SummaryRow& row);
/// What a reader should know before trusting a figure: measurement_warnings, lossy strategies, few
/// questions, intervals that contain 1, uncommitted changes; then the run's own notes.
std::vector<std::string> reader_notes(const Report& report);
/// Every count and metric of a row; what cannot be computed is null.
nlohmann::ordered_json row_json(const SummaryRow& row);
/// Interval of the difference of right answers, in points.
std::optional<Interval> interval_in_points(const QualityComparison& quality);
/// A cell of a CSV file, in quotes where it must be.
std::string quote_csv(const std::string& text);
/// One sentence on how many greedy generations left the first strategy's tokens, per strategy.
std::vector<std::string> divergence_lines(const Report& report);

}  // namespace specdec
