#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/report.h"

namespace specdec {

/// The lossless row over all prompts with the largest decode speed-up.
struct FastestArm {
  const SummaryRow* row = nullptr;
  std::string condition = {};  ///< of the sweep, that it was run under
  /// Number of arms that it was chosen among: lossless strategies and choices of the sweep, and,
  /// over several conditions, these too.
  int64_t arms = 0;
  int64_t conditions = 1;
  /// selected_interval of its speed-ups.
  std::optional<Interval> interval = {}, end_to_end_interval = {};
};

/// True where a row is faster than the first strategy although it drafted and no drafted token was
/// accepted: its speed-up is noise of the measurement, and no headline.
bool is_noise(const SummaryRow& row);
/// One for each condition of the sweep that has anything to compare.
std::vector<FastestArm> fastest_arms(const Report& report);
/// The fastest of all conditions, corrected for them too; none when there is nothing to compare.
std::optional<FastestArm> fastest_arm(const Report& report);

/// fastest_arm in words, marked as chosen among several where it was, with its decode and
/// end-to-end speed-up and corrected intervals.
std::string headline(const Report& report);
/// A headline for each condition; when they are many, that of the whole run alone.
std::vector<std::string> headlines(const Report& report);

/// Reasons to distrust every time of the run: a busy machine, and speed-ups that speculation cannot
/// explain. They stand above the results.
std::vector<std::string> measurement_warnings(const Report& report);

/// What a lossy strategy's speed costs: at each point of the sweep where answers were scored the
/// conclusion of non-inferiority, else that nobody knows.
std::vector<std::string> quality_notes(const Report& report, const ReportStrategy& strategy);

}  // namespace specdec
