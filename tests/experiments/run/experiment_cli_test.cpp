// run and check of experiments, as commands.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/cli/cli.h"
#include "experiments/config/config_file.h"
#include "experiments/run/experiment.h"
#include "tests/experiments/run/experiment_fixture.h"

namespace specdec {
namespace {

using testing::HasSubstr;

class ExperimentCliTest : public ExperimentFixture {};

TEST_F(ExperimentCliTest, NamesThatLeaveTheRunsAreRefused) {
  std::ostringstream out;
  std::ostringstream err;
  const auto config = (folder_.path() / "c.yaml").string();
  for (const char* name : {"../../evil", "a/b", "/tmp/x", ".", "..", "''"}) {
    err.str("");
    EXPECT_EQ(
        run_cli({"run", config, "--set", fmt::format("name={}", name)}, components_, out, err), 2);
    EXPECT_THAT(err.str(), HasSubstr("name: '")) << name;
    EXPECT_THAT(err.str(), HasSubstr("cannot be the name of a folder in runs/")) << name;
  }
  EXPECT_EQ(run_cli({"run", config, "--out", ""}, components_, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("--out: the folder's name is empty"));
}

TEST_F(ExperimentCliTest, CheckFindsWhatTheContextCannotHold) {
  std::ostringstream out;
  std::ostringstream err;
  const auto config = (folder_.path() / "c.yaml").string();
  const auto check = [&](const std::string& set) {
    out.str("");
    err.str("");
    return run_cli({"check", config, "--set", set}, components_, out, err);
  };
  EXPECT_EQ(check("max_new_tokens=511"), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("warning: 2 of 2 prompts leave less than max_new_tokens (511)"));
  EXPECT_EQ(check("max_new_tokens=512"), 2);
  EXPECT_THAT(err.str(), HasSubstr("max_new_tokens: 512 is more than the model can write: it takes "
                                   "512 tokens"));
  EXPECT_EQ(check("model={weights: " + test_data("gemma3-a").string() + ", max_length: 5}"), 2);
  EXPECT_THAT(err.str(), HasSubstr("prompts: 1 of 2 do not fit the model's context of 5 tokens"));
  EXPECT_THAT(err.str(), HasSubstr("1 (5 tokens). Raise model.max_length (this model takes up to "
                                   "512), or leave them out with prompts.max_prompt_tokens"));
  EXPECT_EQ(check("prompts.max_prompt_tokens=4"), 0) << "left out on purpose";
  EXPECT_THAT(out.str(), HasSubstr("3 strategies, 1 prompt (1 more is longer than "
                                   "prompts.max_prompt_tokens), 2 repeats: all right"));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("warning")));
  EXPECT_EQ(check("prompts.max_prompt_tokens=2"), 2);
  EXPECT_THAT(err.str(), HasSubstr("prompts.max_prompt_tokens: leaves out all 2 prompts"));
}

TEST_F(ExperimentCliTest, CheckAdvisesNoContextThatTheModelLacks) {
  std::string line = "{\"tokens\": [2";
  for (int i = 0; i < 512; ++i) {
    line += ", 5";
  }
  folder_.write("p.jsonl", line + "]}\n{\"tokens\": [2]}\n");
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(run_cli({"check", (folder_.path() / "c.yaml").string()}, components_, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("1 (513 tokens). This model takes no longer ones: shorten them, "
                                   "or leave them out with prompts.max_prompt_tokens"));
}

/// Commands with a config and further arguments.
class CacheRoomCliTest : public ExperimentFixture {
 protected:
  int call(const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command, (folder_.path() / "c.yaml").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (command == "run") {
      arguments.insert(arguments.end(), {"--quiet", "--out", (folder_.path() / "out").string()});
      std::filesystem::remove_all(folder_.path() / "out");
    }
    out_.str("");
    err_.str("");
    return run_cli(arguments, components_, out_, err_);
  }
  std::ostringstream out_, err_;
};

TEST_F(CacheRoomCliTest, SamplingKeysWithoutEffectAreNamed) {
  const std::string wanted = "warning: sampling.min_p, sampling.top_k: no effect at temperature 0";
  const std::string keys = "sampling={temperature: 0, top_k: 5, min_p: 0.1}";
  EXPECT_EQ(call("check", {"--set", keys}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr(wanted));
  EXPECT_EQ(call("run", {"--set", keys}), 0) << err_.str();
  EXPECT_EQ(err_.str(), "") << "--quiet";
  const std::string config = (folder_.path() / "c.yaml").string();
  EXPECT_EQ(run_cli({"run", config, "--set", keys, "--out", (folder_.path() / "said").string()},
                    components_, out_, err_),
            0);
  EXPECT_THAT(err_.str(), HasSubstr(wanted));
  EXPECT_EQ(call("check", {"--set", keys, "--set", "sweep={sampling.temperature: [0, 0.8]}"}), 0);
  EXPECT_THAT(out_.str(), testing::Not(HasSubstr("no effect"))) << "a point of the sweep draws";
}

// A page holds 16 tokens: the longest prompt has 5, and the last token is never fed.
TEST_F(CacheRoomCliTest, CheckRefusesATextThatTheCacheDoesNotHold) {
  const std::string cache = "model.cache={type: paged, max_pages: 1}";
  for (const char* command : {"check", "run"}) {
    EXPECT_EQ(call(command, {"--set", cache}), 0) << command << err_.str();
    EXPECT_EQ(call(command, {"--set", cache, "--set", "max_new_tokens=13"}), 2) << command;
  }
  EXPECT_EQ(call("check", {"--set", cache, "--set", "max_new_tokens=13"}), 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("model.cache: holds 16 tokens of a row, and prompt '1' with max_new_tokens "
                        "takes 17 (5 + 12): raise its limit (max_pages or megabytes"));
  EXPECT_EQ(call("check", {"--set", "max_new_tokens=500"}), 0) << "a cache without a limit";
  EXPECT_EQ(call("check", {"--set", "model.cache={type: paged, page_size: 4, window_slack: 16}",
                           "--set", "max_new_tokens=500"}),
            0)
      << err_.str();
  const std::string tiered = "model.cache={type: tiered, memory_megabytes: 1, megabytes: ";
  EXPECT_EQ(call("check", {"--set", tiered + "2}", "--set", "max_new_tokens=500"}), 0)
      << err_.str();
  EXPECT_EQ(call("check", {"--set", tiered + "1}", "--set", "max_new_tokens=500"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("model.cache: holds 448 tokens of a row, and prompt '1' with "
                                    "max_new_tokens takes 504 (5 + 499): raise its megabytes, or"));
}

TEST_F(CacheRoomCliTest, CheckRefusesWhatADraftersOwnCacheDoesNotHold) {
  const std::string cache = "strategies.draft.drafter.cache={type: paged, max_pages: 1}";
  for (const char* command : {"check", "run"}) {
    EXPECT_EQ(call(command, {"--set", cache, "--set", "max_new_tokens=14"}), 0)
        << command << err_.str();
    EXPECT_EQ(call(command, {"--set", cache, "--set", "max_new_tokens=40"}), 2) << command;
  }
  EXPECT_EQ(call("check", {"--set", cache, "--set", "max_new_tokens=15"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("strategies[2].drafter.cache: holds 16 tokens of a row, and "
                                    "prompt '1' with max_new_tokens takes 17 (5 + 12)"));
  EXPECT_THAT(err_.str(), testing::Not(HasSubstr("model.cache")));
}

TEST_F(CacheRoomCliTest, CheckRefusesADraftersTiersThatNoDiskHolds) {
  const std::string cache =
      "strategies.draft.drafter.cache={type: tiered, megabytes: 1073741824, disk: " +
      folder_.path().string() + "}";
  EXPECT_EQ(call("check", {"--set", cache}), 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("strategies[2].drafter.cache: " + folder_.path().string() + ": has "));
  EXPECT_THAT(err_.str(), HasSubstr("MiB in all, less than the 1073741824 MiB"));
}

TEST_F(CacheRoomCliTest, ARunSaysWhoseTiersFindNoDisk) {
  if (!std::filesystem::is_directory("/proc")) {
    GTEST_SKIP() << "the system has no folder that takes no files";
  }
  EXPECT_EQ(call("run", {"--set", "strategies.draft.drafter.cache={type: tiered, disk: /proc}"}),
            2);
  EXPECT_THAT(err_.str(), HasSubstr(": strategies[2].drafter.cache: /proc: no file can be made"));
}

TEST_F(CacheRoomCliTest, MistakesOfAnOptionNameIt) {
  EXPECT_EQ(call("check", {"--cache", "{type: paged, format: q4}"}), 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("--cache {type: paged, format: q4}: model.cache.format: q4 changes"));
  EXPECT_THAT(err_.str(), testing::Not(HasSubstr("--set")));
  EXPECT_EQ(call("check", {"--dtype", "float64", "--kv-dtype", "bfloat16"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--kv-dtype bfloat16: model.kv_dtype: "));
  EXPECT_EQ(call("check", {"--cache", "paged", "--set", "model.cache.page_size=x"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--set model.cache.page_size=x: model.cache.page_size: "));
}

TEST_F(ExperimentCliTest, CheckKnowsTrainings) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += fmt::format("The king said {} words to the queen.\n", i);
  }
  folder_.write("text.txt", text);
  const auto config =
      folder_
          .write("train.yaml", "out: model\ntarget: {weights: " + test_data("gemma3-a").string() +
                                   "}\nhead: {type: eagle}\nsteps: 30\n"
                                   "data: [{kind: prose, file: text.txt}]\n")
          .string();
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(run_cli({"check", config}, components_, out, err), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("trains a head of type eagle for "));
  EXPECT_THAT(out.str(), HasSubstr("30 steps"));
  EXPECT_EQ(run_cli({"check", config, "--set", "stepz=3", "--set", "head.type=eagel"}, components_,
                    out, err),
            2);
  EXPECT_THAT(err.str(), HasSubstr("stepz: unknown key; did you mean 'steps'?"));
  EXPECT_THAT(err.str(), HasSubstr("unknown type 'eagel'"));
  folder_.write("text.txt", "short\n");
  EXPECT_EQ(run_cli({"check", config}, components_, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("too short to hold out"));
  EXPECT_EQ(run_cli({"run", config}, components_, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("specdec train " + config));
  EXPECT_EQ(run_cli({"train", (folder_.path() / "c.yaml").string()}, components_, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("describes no training"));
}

TEST_F(ExperimentCliTest, TheCommandLineRunsAndChecks) {
  std::ostringstream out;
  std::ostringstream err;
  const auto config = (folder_.path() / "c.yaml").string();
  ASSERT_EQ(run_cli({"check", config}, components_, out, err), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("3 strategies, 2 prompts, 2 repeats"));
  out.str("");
  const auto folder = (folder_.path() / "from_cli").string();
  ASSERT_EQ(
      run_cli({"run", config, "--out", folder, "--set", "repeats=1", "--set", "seed=3", "--quiet"},
              components_, out, err),
      0)
      << err.str();
  EXPECT_EQ(err.str(), "");
  for (const char* name : {"autoregressive", "lookup", "draft"}) {
    EXPECT_THAT(out.str(), HasSubstr(name));
  }
  EXPECT_EQ(records("from_cli").size(), 6U);
  out.str("");
  const auto json = (folder_.path() / "summary").string();
  ASSERT_EQ(run_cli({"run", config, "--out", folder, "--set", "repeats=1", "--set", "seed=3",
                     "--quiet", "--json", json},
                    components_, out, err),
            0)
      << err.str();
  EXPECT_THAT(out.str(), HasSubstr("lookup"));
  EXPECT_EQ(nlohmann::json::parse(read_text_file(json))["name"], "c");
}

}  // namespace
}  // namespace specdec
