#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "experiments/metrics/environment.h"
#include "experiments/metrics/metrics.h"
#include "experiments/report/report_details.h"

namespace specdec {

/// A strategy as its config names it.
struct ReportStrategy {
  std::string name;
  std::string description;  ///< one line: type and main options
  bool lossy = false;
  bool reproducible = true;  ///< false when it adapts to live timing
  /// Parts that were never certified, "drafter 'bigram'": the strategy is unverified.
  std::vector<std::string> uncertified = {};
};

/// A value of a swept key: the x axis of the sweep's figure.
struct ReportSweepPoint {
  std::string label;                ///< as in GenerationKey::sweep_point
  std::vector<std::string> values;  ///< of sweep_keys, in order
  /// The label's part that changes plain decoding too, "temperature=0.8", and the rest, which is
  /// chosen: "draft_length=4".
  std::string condition = {}, choice = {};
  std::vector<std::string> lossless = {};  ///< strategies that are lossy, but not at this point
};

/// What write_* show; data only. `summary` is summarize() of the run's records.
struct Report {
  std::string name;
  std::string description;
  std::string command;      ///< that repeats the run
  std::string config_yaml;  ///< resolved
  Environment environment;
  std::vector<ReportStrategy> strategies;  ///< the first is what the others are compared with
  std::vector<std::string> sweep_keys;     ///< empty when there is no sweep
  std::vector<ReportSweepPoint> sweep_points;
  std::vector<std::string> notes;  ///< of the run: resumed, interrupted, left out, ...
  Summary summary;
  ReportDetails details;
};

/// A table for a terminal: warnings of the measurement, strategies in rows, then categories, the
/// headline, divergences in one line, notes.
void write_table(std::ostream& out, const Report& report);
/// summary.json: every count and metric; what cannot be computed is null.
void write_json(std::ostream& out, const Report& report);
/// summary.csv: one line per sweep point, strategy and category, with the sweep's keys as columns;
/// what cannot be computed is empty.
void write_csv(std::ostream& out, const Report& report);
/// report.html: self-contained; a script sorts its tables, and without scripts it reads as well.
/// Most figures are drawn by gnuplot; where that is missing or fails the page says so.
void write_html(std::ostream& out, const Report& report);

/// A file beside others, such as "tables/results.csv".
struct ReportFile {
  std::string name;
  std::string text;
};
/// report.html and what it links: every table as CSV and LaTeX, every figure as SVG and its data
/// as CSV and LaTeX.
std::vector<ReportFile> report_files(const Report& report);

}  // namespace specdec
