#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/run/sweep.h"

namespace specdec {

/// The sweep of a run, by the config.yaml in its folder; a folder without one has no sweep.
class RecordedSweep {
 public:
  /// Throws ConfigError for a config that cannot be read.
  explicit RecordedSweep(const std::filesystem::path& folder);

  /// The condition of a point by its label (see is_condition); "" for "", the label of a run
  /// without a sweep. Throws ConfigError for a point that the sweep does not have.
  std::string condition_of(const std::string& label) const;
  /// Labels of the points of the same condition, at which plain decoding is the same, in the
  /// sweep's order; {""} for "". Throws as condition_of.
  std::vector<std::string> points_alike(const std::string& label) const;

 private:
  std::filesystem::path file_;
  Sweep sweep_;
};

}  // namespace specdec
