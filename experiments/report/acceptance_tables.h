#pragma once
#include <string>

#include "experiments/report/report_tables.h"

namespace specdec {

/// " Lower bounds for ...": strategies whose rates by position are those of trees; "" without any.
std::string tree_sentence(const Report& report);
/// Acceptance by position of the draft; a row for each strategy and position.
ReportTable positions_table(const Report& report);
/// Acceptance by the length of the context; a row for each strategy that drafts and bucket of
/// lengths. Empty where all contexts are in one bucket.
ReportTable contexts_table(const Report& report);

}  // namespace specdec
