#include "experiments/train/train_check.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"
#include "experiments/train/answer_plan.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Every file of configs/train; tests run at the repository's root, as its users do.
std::vector<fs::path> train_configs() {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator("configs/train")) {
    if (!describes_answers(file.path(), {})) {
      files.push_back(file.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(TrainCheckTest, EveryTrainingThatComesWithItIsInOrder) {
  const std::vector<fs::path> files = train_configs();
  EXPECT_GE(files.size(), 12U);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (name.rfind("smollm2", 0) == 0) {
      continue;  // for a checkpoint that users download
    }
    std::vector<std::string> overrides = {"out=" +
                                          (fs::temp_directory_path() / "specdec_none").string()};
    if (name == "target_final.yaml") {  // goes on from what target.yaml has trained
      overrides.insert(overrides.end(), {"initial=models/target", "tokenizer.from=models/target"});
    }
    EXPECT_THAT(check_training(file, overrides).summary, HasSubstr("trains a")) << name;
  }
}

TEST(TrainCheckTest, TrainingsForADownloadLackNothingElse) {
  for (const fs::path& file : train_configs()) {
    if (file.filename().string().rfind("smollm2", 0) != 0 || fs::exists("models/smollm2")) {
      continue;
    }
    const std::string message = error_message<ConfigError>([&] { (void)check_training(file, {}); });
    EXPECT_THAT(message, HasSubstr("target.weights")) << file;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
  }
}

}  // namespace
}  // namespace specdec
