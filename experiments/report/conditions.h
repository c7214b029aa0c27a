#pragma once
#include <string>
#include <vector>

#include "experiments/metrics/reference_points.h"
#include "experiments/report/report.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {

/// What a sweep sets that changes plain decoding too, such as the temperature, is a condition;
/// strategies and their options are chosen under each.

/// The condition of a point of the sweep: "temperature=0.8"; "" where none is swept.
std::string condition_of(const Report& report, const std::string& sweep_point);
/// The same as a function; the report must outlive it.
ConditionOf conditions_by(const Report& report);
/// Conditions of the report's rows, in order of appearance.
std::vector<std::string> conditions_of(const Report& report);
/// "draft_model", or "draft_model, draft_length=4" where its own options are swept: a row's name
/// beside its condition.
std::string choice_name(const Report& report, const SummaryRow& row);
/// True when the row's strategy does not keep the target's distribution at this point of the sweep.
bool is_lossy_row(const Report& report, const SummaryRow& row);

/// Headings of the sweep's keys: the last part of each, unless two end alike.
Cells sweep_header(const Report& report);
/// The row's values of the keys; "-" for a key that does not touch its strategy.
Cells sweep_cells(const Report& report, const SummaryRow& row);

/// Speed-ups with the points of the sweep in rows and strategies in columns; without rows unless
/// there are several conditions. What a strategy's own options do not touch stands in every row of
/// its condition.
Cells pivot_header(const Report& report);
std::vector<Cells> pivot_rows(const Report& report);

}  // namespace specdec
