#pragma once
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/components/components.h"
#include "experiments/run/experiment.h"
#include "experiments/run/run_folder.h"
#include "tests/support/temporary_folder.h"

namespace specdec {

/// Runs of the config c.yaml, which tests write into `folder_`.
class RunFixture : public testing::Test {
 protected:
  Report run(const std::vector<std::string>& sets = {}, const std::string& out = "out") {
    const auto plan = load_experiment(folder_.path() / "c.yaml", sets, components_);
    return run_experiment(plan, {.out = folder_.path() / out, .quiet = true, .command = "test"},
                          log_);
  }
  std::vector<GenerationRecord> records(const std::string& out = "out") const {
    return load_records(folder_.path() / out);
  }
  static std::map<GenerationKey, std::vector<Token>> tokens(
      const std::vector<GenerationRecord>& records) {
    std::map<GenerationKey, std::vector<Token>> all;
    for (const auto& record : records) {
      all[record.key] = record.generation.tokens;
    }
    return all;
  }

  TemporaryFolder folder_;
  Components components_ = builtin_components();
  std::ostringstream log_;
};

}  // namespace specdec
