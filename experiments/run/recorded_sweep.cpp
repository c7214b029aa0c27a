#include "experiments/run/recorded_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/config/config_node.h"

namespace specdec {

RecordedSweep::RecordedSweep(const std::filesystem::path& folder) : file_(folder / "config.yaml") {
  if (!std::filesystem::exists(file_)) {
    return;
  }
  const auto errors = std::make_shared<ConfigErrors>();
  sweep_ = read_sweep(ConfigNode(load_config(file_, {}, *errors), errors, folder));
  errors->throw_if_any();
}

std::string RecordedSweep::condition_of(const std::string& label) const {
  if (label.empty()) {
    return "";
  }
  const auto own = std::find_if(sweep_.combinations.begin(), sweep_.combinations.end(),
                                [&](const Combination& each) { return each.label == label; });
  if (own == sweep_.combinations.end()) {
    throw ConfigError(
        fmt::format("{}: its sweep has no point '{}', of which the run holds records, so what was "
                    "measured under the same condition is not known; was the file {}?",
                    file_.string(), label, std::filesystem::exists(file_) ? "edited" : "removed"));
  }
  return own->condition;
}

std::vector<std::string> RecordedSweep::points_alike(const std::string& label) const {
  if (label.empty()) {
    return {label};
  }
  const std::string condition = condition_of(label);
  std::vector<std::string> labels;
  for (const Combination& each : sweep_.combinations) {
    if (each.condition == condition) {
      labels.push_back(each.label);
    }
  }
  return labels;
}

}  // namespace specdec
