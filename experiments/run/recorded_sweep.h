#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

/// Labels of the points of a run's sweep at which plain decoding is the same as at `label` (see
/// is_condition), in the sweep's order, by the config.yaml in the run's folder; {""} for "", the
/// label of a run without a sweep. Throws ConfigError where the folder has no config that can be
/// read, or one whose sweep has no such point.
std::vector<std::string> points_alike(const std::filesystem::path& folder,
                                      const std::string& label);

}  // namespace specdec
