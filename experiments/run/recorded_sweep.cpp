#include "experiments/run/recorded_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/config/config_node.h"
#include "experiments/run/sweep.h"

namespace specdec {

std::vector<std::string> points_alike(const std::filesystem::path& folder,
                                      const std::string& label) {
  if (label.empty()) {
    return {label};
  }
  const auto file = folder / "config.yaml";
  const auto errors = std::make_shared<ConfigErrors>();
  const Sweep sweep = read_sweep(ConfigNode(load_config(file, {}, *errors), errors, folder));
  errors->throw_if_any();
  const auto own = std::find_if(sweep.combinations.begin(), sweep.combinations.end(),
                                [&](const Combination& each) { return each.label == label; });
  if (own == sweep.combinations.end()) {
    throw ConfigError(
        fmt::format("{}: its sweep has no point '{}', of which the run holds records, so what was "
                    "measured under the same condition is not known; was the file edited?",
                    file.string(), label));
  }
  std::vector<std::string> labels;
  for (const Combination& each : sweep.combinations) {
    if (each.condition == own->condition) {
      labels.push_back(each.label);
    }
  }
  return labels;
}

}  // namespace specdec
