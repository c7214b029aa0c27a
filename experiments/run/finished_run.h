#pragma once
#include <iosfwd>
#include <optional>

#include "experiments/run/experiment.h"

namespace specdec {

/// The report of a run that is finished: `options.out` holds this very config, every generation and
/// trace of it, and the files of the report. nullopt: there is something left to do. Loads no
/// model. Files of the report that have other figures than this program computes of the records,
/// since another version made them, are made anew; nothing else is written. The log says what was
/// found. Throws Error when records are damaged.
std::optional<Report> finished_report(const ExperimentPlan& plan, const RunOptions& options,
                                      std::ostream& log);

}  // namespace specdec
