#pragma once
#include "experiments/report/report.h"
#include "experiments/run/experiment_config.h"
#include "experiments/run/run_folder.h"

namespace specdec {

/// What a report says before anything was run: names, config, sweep, strategies and what of the
/// prompts is not used.
Report describe_plan(const ExperimentPlan& plan);

/// What the figures of a run are made from: its records, or with `loops: cut` their beginnings.
std::vector<GenerationRecord> measured_records(const ExperimentPlan& plan,
                                               std::span<const GenerationRecord> records);
/// The summary of a run's records, by what its config says of quality and loops.
Summary summarize_run(const ExperimentPlan& plan, std::span<const GenerationRecord> records);

/// Writes summary.json and .csv, report.html with its tables and figures, spec_bench.md and the
/// answer files into a run's folder. Throws Error when a file cannot be written.
void write_report_files(RunFolder& folder, const Report& report);
/// True when the folder holds them all.
bool has_report_files(const std::filesystem::path& folder);

}  // namespace specdec
