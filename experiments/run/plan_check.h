#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/run/experiment_config.h"

namespace specdec {

/// What the models' contexts leave of a plan.
struct PlanCheck {
  std::vector<std::string> mistakes;  ///< what cannot happen as the config has it
  std::vector<std::string> warnings;
  std::vector<int64_t> left_out;  ///< prompts that each group of arms leaves out, in order
};

/// Encodes the first turn of every prompt and compares it and max_new_tokens with the target's
/// context. `run` leaves out prompts that do not fit and ends texts where the context does; this
/// says so before. Loads no weights.
PlanCheck check_plan(const ExperimentPlan& plan);

/// Names the sampling keys that are set and that no point of the sweep reads, since it draws
/// nothing; "" = none.
std::string unused_sampling_text(const ExperimentPlan& plan);

}  // namespace specdec
