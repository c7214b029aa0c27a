#include "experiments/cli/config_kind.h"

#include <fmt/format.h>

#include "core/error.h"
#include "experiments/train/answer_plan.h"
#include "experiments/train/train_config.h"

namespace specdec {

void refuse_training(const std::string& file, const std::vector<std::string>& overrides) {
  if (describes_training(file, overrides)) {
    throw ConfigError(fmt::format(
        "{0}: describes a training, not an experiment; start it with: specdec train {0}", file));
  }
  if (describes_answers(file, overrides)) {
    throw ConfigError(
        fmt::format("{0}: describes answers to train on, not an experiment; make them "
                    "with: specdec answers {0}",
                    file));
  }
}

}  // namespace specdec
