#pragma once
#include <optional>

#include "experiments/run/experiment.h"

namespace specdec {

/// The report of a run that is finished: `options.out` holds this very config, every generation and
/// trace of it, and the files of the report. nullopt: there is something left to do. Only reads,
/// and loads no model. Throws Error when records are damaged.
std::optional<Report> finished_report(const ExperimentPlan& plan, const RunOptions& options);

}  // namespace specdec
