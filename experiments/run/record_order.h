#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "experiments/metrics/generation_record.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

// Strategies take turns in going first, prompts are left out and runs resume, so any strategy may
// have the first record of a run. What compares strategies orders the records by their config, so
// that the first record is of the strategy that the others are compared with.

/// A run's records by point of the sweep and strategy, as the plan lists them; those of one
/// strategy as they were made.
std::vector<GenerationRecord> in_plan_order(const ExperimentPlan& plan,
                                            std::span<const GenerationRecord> records);

/// The records of a run's folder (see load_records) by point of the sweep and strategy, as the
/// folder's config.yaml lists strategies, without one as they were made; points in the order in
/// which the strategies, the first one before the others, have records of them.
std::vector<GenerationRecord> load_ordered_records(const std::filesystem::path& folder);

}  // namespace specdec
