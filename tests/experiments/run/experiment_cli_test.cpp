// run and check of experiments, as commands.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

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
  EXPECT_THAT(err.str(), HasSubstr("1 (5 tokens)"));
  EXPECT_EQ(check("prompts.max_prompt_tokens=4"), 0) << "left out on purpose";
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("warning")));
  EXPECT_EQ(check("prompts.max_prompt_tokens=2"), 2);
  EXPECT_THAT(err.str(), HasSubstr("prompts.max_prompt_tokens: leaves out all 2 prompts"));
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
