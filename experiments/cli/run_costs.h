#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "experiments/simulate/simulate.h"

namespace specdec {

/// What a run tells of the costs of a strategy's steps at a point of its sweep.
struct RunCosts {
  std::optional<StepCosts> costs = {};
  std::string reason = {};  ///< why there are none
  /// Tokens per second of decoding by the strategies that never drafted, as the run measured them.
  std::optional<double> plain_tokens_per_second = {};
  std::string load = {};  ///< load_note of the run
};

/// Steps of another condition, such as another dtype, tell nothing of this one's. Throws where the
/// run's records or curves are damaged.
RunCosts costs_of_run(const std::filesystem::path& run, const std::string& strategy,
                      const std::string& sweep_point);

/// Plain decoding that the speed-ups of an arm refer to.
struct PlainSpeed {
  std::string arm;
  double tokens_per_second = 0.0;       ///< by the simulated costs
  std::optional<double> measured = {};  ///< see RunCosts; none where a profile gave the costs
  std::string load = {};
};

/// Both speeds; where they differ by more than 20 %, why and under which load the run was made.
std::string plain_speed_text(const PlainSpeed& speed);

}  // namespace specdec
