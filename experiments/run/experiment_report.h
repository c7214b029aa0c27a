#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/run/experiment_config.h"
#include "experiments/run/run_folder.h"

namespace specdec {

/// What a report says before anything was run: names, config, sweep, strategies and what of the
/// prompts is not used.
Report describe_plan(const ExperimentPlan& plan);

/// Prompts that are too long, by the name of the group of arms that left them out.
using LeftOutPrompts = std::map<std::string, std::set<std::string>>;
/// Notes that name the prompts that were left out, with the points of the sweep where only some of
/// the `groups` left them out.
std::vector<std::string> left_out_notes(const LeftOutPrompts& left_out, size_t groups);

/// What the figures of a run are made from: its records, or with `loops: cut` their beginnings.
std::vector<GenerationRecord> measured_records(const ExperimentPlan& plan,
                                               std::span<const GenerationRecord> records);
/// The conditions of a plan's sweep; the function outlives the plan.
ConditionOf plan_conditions(const ExperimentPlan& plan);
/// The summary of a run's records (see in_plan_order), by what its config says of quality and
/// loops.
Summary summarize_run(const ExperimentPlan& plan, std::span<const GenerationRecord> records);

/// What a report shows beside its summary, of a run's records as they were made and of what else
/// its folder holds.
ReportDetails run_details(const ExperimentPlan& plan, const std::filesystem::path& folder,
                          std::span<const GenerationRecord> as_made);

/// Writes summary.json and .csv, report.html with its tables and figures, spec_bench.md and the
/// answer files into a run's folder. `records`: see in_plan_order. Throws Error when a file cannot
/// be written.
void write_report_files(RunFolder& folder, const Report& report,
                        std::span<const GenerationRecord> records);
/// True when the folder holds them all.
bool has_report_files(const std::filesystem::path& folder);

}  // namespace specdec
