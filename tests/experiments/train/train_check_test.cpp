#include "experiments/train/train_check.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"
#include "experiments/train/answer_plan.h"
#include "experiments/train/training_folder.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

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

/// The folder of the checkpoint that users download for it; "" = it comes with the repository.
std::string download_of(const fs::path& config) {
  for (const char* model : {"smollm2", "gemma3"}) {
    if (config.filename().string().rfind(std::string(model) + "_", 0) == 0) {
      return std::string("models/") + model;
    }
  }
  return "";
}

TEST(TrainCheckTest, EveryTrainingThatComesWithItIsInOrder) {
  const std::vector<fs::path> files = train_configs();
  EXPECT_GE(files.size(), 12U);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (!download_of(file).empty()) {
      continue;
    }
    std::vector<std::string> overrides = {"out=" +
                                          (fs::temp_directory_path() / "specdec_none").string()};
    if (name == "target_final.yaml") {  // goes on from what target.yaml has trained
      overrides.insert(overrides.end(), {"initial=models/target", "tokenizer.from=models/target"});
    }
    EXPECT_THAT(check_training(file, overrides).summary, HasSubstr("trains a")) << name;
  }
}

TEST(TrainCheckTest, MistakesSayWhatToDo) {
  const auto message = [](const std::string& name, std::vector<std::string> sets) {
    sets.insert(sets.begin(), "out=" + (fs::temp_directory_path() / "specdec_none").string());
    return error_message<ConfigError>([&] { (void)check_training("configs/train/" + name, sets); });
  };
  EXPECT_THAT(message("draft.yaml", {"sequence_length=1025", "model.max_position_embeddings=2048"}),
              HasSubstr("sequence_length: is 1025, more than the teacher's "
                        "max_position_embeddings (1024)"));
  EXPECT_THAT(message("gemma4.yaml", {"sequence_length=1025"}), HasSubstr("more than the model's"));
  EXPECT_THAT(message("medusa.yaml", {"sequence_length=1025"}),
              HasSubstr("more than the target's"));
  EXPECT_THAT(message("draft.yaml", {"initial=models/draft"}), HasSubstr("--set model=null"));
  EXPECT_EQ(message("draft.yaml", {"initial=models/draft", "model=null"}), "no error");
  EXPECT_EQ(message("gemma4_moe.yaml", {"model.experts=null", "balance_share=0"}), "no error");
  const std::string experts = message("gemma4_moe.yaml", {"model.experts={chosen: 2, count: x}"});
  EXPECT_THAT(experts, testing::Not(HasSubstr("of 0 experts")));
}

TEST(TrainCheckTest, RefusesTheFoldersThatTrainRefuses) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "other");
  folder.write("other/notes.txt", "mine");
  const auto message = [](const fs::path& out) {
    return error_message<ConfigError>(
        [&] { (void)check_training("configs/train/eagle.yaml", {"out=" + out.string()}); });
  };
  EXPECT_THAT(message(folder.path() / "other"),
              HasSubstr("this folder holds other files ('notes.txt') and no training"));
  EXPECT_THAT(message("models/heads/eagle"),
              HasSubstr("this folder holds finished weights already ('model.safetensors')"));
  EXPECT_THAT(message(folder.path() / "other/notes.txt/below"),
              HasSubstr("cannot be made or written: Not a directory"));
  if (fs::exists("/proc/self")) {
    EXPECT_THAT(message("/proc/x"), HasSubstr("/proc/x: cannot be made or written: "));
  }
  EXPECT_EQ(message(folder.path() / "a/b/"), "no error");
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1)
      << "a check leaves nothing behind";
}

TEST(TrainCheckTest, FoldersOfATrainingAreNotForeign) {
  const auto refused = [](const std::string& file, FolderWork work) {
    const TemporaryFolder folder;
    folder.write("a.txt", "mine");
    folder.write(file, "");
    return refused_training_folder(folder.path(), work);
  };
  for (const char* file : {"training.state", "training.jsonl"}) {
    EXPECT_EQ(refused(file, FolderWork::kTraining), "") << file;
    EXPECT_THAT(refused(file, FolderWork::kAnswers), HasSubstr("and no recorded answers")) << file;
  }
  for (const char* file : {"answers.json", "answers.json.aB3xYz"}) {
    EXPECT_EQ(refused(file, FolderWork::kAnswers), "") << file;
    EXPECT_THAT(refused(file, FolderWork::kTraining), HasSubstr("and no training")) << file;
  }
}

TEST(TrainCheckTest, FilesOfAnotherModelAreNoTraining) {
  for (const char* file :
       {"config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
        "adapter_config.json", "training.json", "masses_of_planets.csv"}) {
    const TemporaryFolder folder;
    folder.write(file, "{}");
    EXPECT_THAT(refused_training_folder(folder.path(), FolderWork::kTraining),
                HasSubstr("('" + std::string(file) + "') and no training"));
  }
}

TEST(TrainCheckTest, FinishedWeightsOfEveryKindAreRefused) {
  for (const char* file : {"model.safetensors", "model.safetensors.index.json", "mtp.safetensors",
                           "adapter_model.safetensors", "pytorch_model.bin"}) {
    const TemporaryFolder folder;
    folder.write("training.jsonl", "{}");
    folder.write(file, "weights");
    for (const FolderWork work : {FolderWork::kTraining, FolderWork::kAnswers}) {
      EXPECT_THAT(refused_training_folder(folder.path(), work),
                  HasSubstr("finished weights already ('" + std::string(file) + "')"));
    }
    folder.write("training.state", "");
    EXPECT_EQ(refused_training_folder(folder.path(), FolderWork::kTraining), "")
        << "stopped while its stored weights were evaluated";
  }
}

TEST(TrainCheckTest, WarnsOfAWarmUpWithoutAnEnd) {
  const auto warnings = [](const std::string& steps) {
    const std::string out = "out=" + (fs::temp_directory_path() / "specdec_none").string();
    return check_training("configs/train/eagle.yaml", {out, "steps=50", "warm_up_steps=" + steps})
        .warnings;
  };
  EXPECT_THAT(
      warnings("50"),
      testing::ElementsAre(HasSubstr("warm_up_steps: is 50, but the training has 50 steps")));
  EXPECT_THAT(warnings("49"), testing::IsEmpty());
}

TEST(TrainCheckTest, TrainingsForADownloadLackNothingElse) {
  for (const fs::path& file : train_configs()) {
    const std::string download = download_of(file);
    if (download.empty() || fs::exists(download)) {
      continue;
    }
    const std::string message = error_message<ConfigError>([&] { (void)check_training(file, {}); });
    EXPECT_THAT(message, HasSubstr("target.weights")) << file;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
  }
}

}  // namespace
}  // namespace specdec
