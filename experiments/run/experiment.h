#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>

#include "experiments/report/report.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

struct RunOptions {
  std::filesystem::path out;  ///< run folder: made, or resumed when it holds this very run
  bool quiet = false;
  std::string command;  ///< that repeats the run, for the report
};

/// Runs every strategy on every prompt, at every point of the sweep, and writes the run folder.
///
/// All strategies that share model, prompts and sampling take a prompt one right after the other,
/// in an order that turns with every prompt, so that drifts of the machine's speed hit them alike.
/// So do the points of a sweep that share the loaded model; other points follow one another, and
/// the report says so.
/// With `chat`, the turns of a prompt follow one another, and the history holds the first
/// strategy's replies for all strategies, so that all continue the same text. Randomness is keyed
/// by seed, prompt, turn, repeat and position: the same config gives the same tokens, also when
/// resumed. Of a run that is finished the report is read from its folder: no model is loaded and no
/// file changes.
///
/// Throws Error: a folder that cannot be written or belongs to another run, weights that changed
/// since the run began, no prompt that fits; Interrupted after Ctrl-C, with all finished
/// generations recorded.
Report run_experiment(const ExperimentPlan& plan, const RunOptions& options, std::ostream& log);

}  // namespace specdec
