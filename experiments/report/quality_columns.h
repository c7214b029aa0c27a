#pragma once
#include <vector>

#include "experiments/report/report_text.h"

namespace specdec {

/// Columns of the texts' quality: of right answers, of valid ones, of both beside the plain arm's,
/// and of lossy texts; those that some row has.
std::vector<ReportColumn> quality_columns(const Report& report);

}  // namespace specdec
