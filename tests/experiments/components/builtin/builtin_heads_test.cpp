// Heads as a config names them: what is refused before anything is loaded, and a run of them all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/mtp_head.h"
#include "experiments/cli/head_inspection.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/run/experiment.h"
#include "experiments/run/run_folder.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// A copy of the golden Gemma 3 with random heads beside it.
class BuiltinHeadsTest : public testing::Test {
 protected:
  BuiltinHeadsTest() {
    fs::copy(SPECDEC_SOURCE_DIR "/tests/data/gemma3-a", path("target"));
    folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9]}\n{\"tokens\": [2, 7]}\n");
    const auto target = load_model(path("target"));
    for (const auto version :
         {EagleVersion::kEagle, EagleVersion::kEagle3, EagleVersion::kPEagle}) {
      EagleConfig config = make_eagle_config(version, LayerStyle::kGemma, *target);
      config.draft_vocab_size = captures_streams(version) ? 99 : config.vocab_size;
      save_eagle_head(*random_eagle_head(config), path(eagle_version_name(version)), at::kFloat);
    }
    save_block_head(*random_block_head(make_block_head_config(*target, 2, 5)), path("dflash"),
                    at::kFloat);
    BlockHeadConfig dspark = make_block_head_config(*target, 1, 4);
    dspark.method = BlockMethod::kDSpark;
    dspark.markov = {.rank = 3, .confidence = true};
    save_block_head(*random_block_head(dspark), path("dspark"), at::kFloat);
    save_mtp_head(*random_mtp_head(*target, 2), *target, path("target"), at::kFloat);
  }

  fs::path path(const std::string& name) const { return folder_.path() / name; }

  /// A config with one speculative strategy for each drafter.
  ExperimentPlan plan(const std::vector<std::string>& drafters, bool include_mtp = true,
                      const std::string& strategy = "speculative") const {
    std::string text = fmt::format(
        "model: {{weights: target, include_mtp: {}}}\n"
        "prompts: {{file: p.jsonl}}\nmax_new_tokens: 16\nwarm_up: 0\nstop: {{ignore_eos: true}}\n"
        "strategies:\n  - type: autoregressive\n",
        include_mtp);
    for (size_t i = 0; i < drafters.size(); ++i) {
      text += fmt::format("  - {{name: s{}, type: {}, draft_length: 3, drafter: {{{}}}}}\n", i,
                          strategy, drafters[i]);
    }
    folder_.write("c.yaml", text);
    return load_experiment(path("c.yaml"), {}, components_);
  }

  std::string plan_error(const std::string& drafter, bool include_mtp = true,
                         const std::string& strategy = "speculative") const {
    return error_message<ConfigError>([&] { plan({drafter}, include_mtp, strategy); });
  }

  TemporaryFolder folder_;
  Components components_ = builtin_components();
};

TEST_F(BuiltinHeadsTest, EveryHeadGivesTheTargetsTokens) {
  std::ostringstream log;
  const Report report = run_experiment(
      plan({"type: eagle, weights: eagle", "type: eagle3, weights: eagle3", "type: mtp",
            "type: mtp, modules: 1, sample: false", "type: self, layers: 2",
            "type: dflash, weights: dflash",
            "type: dspark, weights: dspark, confidence_threshold: 0.1",
            "type: peagle, weights: peagle", "type: self, cache: {type: paged, format: q4}"}),
      {.out = path("out"), .quiet = true, .command = "test"}, log);
  const auto records = load_records(path("out"));
  EXPECT_EQ(records.size(), 20U);
  std::map<std::string, std::set<std::vector<Token>>> by_prompt;
  int64_t drafted = 0;
  for (const GenerationRecord& record : records) {
    by_prompt[record.key.prompt_id].insert(record.generation.tokens);
    for (const StepStatistics& step : record.generation.steps) {
      drafted += step.drafted;
    }
  }
  EXPECT_GT(drafted, 100);
  for (const auto& [id, different] : by_prompt) {
    EXPECT_EQ(different.size(), 1U) << id;
  }
  EXPECT_TRUE(report.summary.divergences.empty());
}

TEST_F(BuiltinHeadsTest, MistakesAreFoundBeforeAnythingIsLoaded) {
  EXPECT_THAT(plan_error("type: eagle"), HasSubstr("weights"));
  EXPECT_THAT(plan_error("type: eagle, weights: eagle3"), HasSubstr("use drafter type eagle3"));
  EXPECT_THAT(plan_error("type: eagle3, weights: target"), HasSubstr("one layer"));
  EXPECT_THAT(plan_error("type: self"), HasSubstr("layers"));
  EXPECT_THAT(plan_error("type: self, layers: 99"), HasSubstr("give 1 to"));
  EXPECT_THAT(plan_error("type: mtp", false), HasSubstr("model.include_mtp"));
  EXPECT_THAT(plan_error("type: mtp, modules: 3"),
              HasSubstr("drafter.modules: is 3, but " + path("target").string() + " holds 2"));
  EXPECT_THAT(plan_error("type: eagle, weights: target"), HasSubstr("drafter type draft_model"));
  EXPECT_THAT(plan_error("type: dflash"), HasSubstr("weights"));
  EXPECT_THAT(plan_error("type: dflash, weights: eagle3"), HasSubstr("use drafter type eagle3"));
  EXPECT_THAT(plan_error("type: eagle3, weights: dflash"), HasSubstr("use drafter type dflash"));
  EXPECT_THAT(plan_error("type: dflash, weights: dspark"), HasSubstr("use drafter type dspark"));
  EXPECT_THAT(plan_error("type: eagle3, weights: peagle"), HasSubstr("use drafter type peagle"));
  EXPECT_THAT(plan_error("type: dspark, weights: dspark, confidence_threshold: 2"),
              HasSubstr("confidence_threshold"));
  EXPECT_THAT(plan_error("type: draft_model, weights: dflash"),
              HasSubstr("Use it as drafter: {type: dflash"));
  fs::remove(path("dflash") / "model.safetensors");
  EXPECT_THAT(plan_error("type: dflash, weights: dflash"), HasSubstr("model.safetensors"));
  fs::remove(path("eagle") / "model.safetensors");
  EXPECT_THAT(plan_error("type: eagle, weights: eagle"), HasSubstr("model.safetensors"));
  fs::remove(path("target") / "mtp.safetensors");
  EXPECT_THAT(plan_error("type: self, layers: 1"),
              AllOf(HasSubstr("include_mtp"), HasSubstr("no multi-token-prediction modules")));
}

/// A config that speaks of other tensors than a head's file holds is a mistake for check and
/// inspect.
TEST_F(BuiltinHeadsTest, TensorsAreComparedWithTheConfig) {
  const auto widen = [&](const std::string& head, const std::string& key) {
    const fs::path file = path(head) / "config.json";
    auto config = nlohmann::json::parse(read_file(file));
    config[key] = config[key].get<int64_t>() + 2;
    folder_.write(head + "/config.json", config.dump());
  };
  const std::map<std::string, std::string> tensors = {{"eagle", "layers.0.mlp.gate_proj.weight"},
                                                      {"eagle3", "midlayer.mlp.gate_proj.weight"},
                                                      {"peagle", "midlayer.mlp.gate_proj.weight"},
                                                      {"dflash", "layers.0.mlp.gate_proj.weight"},
                                                      {"dspark", "layers.0.mlp.gate_proj.weight"}};
  for (const auto& [head, tensor] : tensors) {
    const std::string drafter = fmt::format("type: {0}, weights: {0}", head);
    EXPECT_NO_THROW((void)plan({drafter}));
    EXPECT_NO_THROW((void)inspect_head(path(head), head));
    widen(head, "intermediate_size");
    const std::string complaint =
        fmt::format("{}: tensor '{}' has shape [", path(head).string(), tensor);
    EXPECT_THAT(plan_error(drafter), AllOf(HasSubstr(complaint), HasSubstr("asks for [")));
    EXPECT_THAT(error_message<WeightsError>([&] { (void)inspect_head(path(head), head); }),
                HasSubstr(complaint));
  }
  std::string mtp = read_file(path("target") / "mtp.safetensors");
  mtp.replace(mtp.find("mtp.norm.weight"), 15, "mtp.norm.height");
  folder_.write("target/mtp.safetensors", mtp);
  EXPECT_THAT(plan_error("type: mtp"), HasSubstr("tensor 'mtp.norm.weight' is missing"));
  widen("target", "intermediate_size");
  EXPECT_THAT(plan_error("type: self, layers: 1"),
              HasSubstr("tensor 'model.layers.0.mlp.gate_proj.weight' has shape ["));
}

TEST_F(BuiltinHeadsTest, AHeadIsNoModel) {
  const std::string advice = "is no model itself. Use it as drafter: {type: eagle3, weights: ";
  EXPECT_THAT(plan_error("type: draft_model, weights: eagle3"), HasSubstr(advice));
  fs::copy(path("eagle3") / "config.json", path("target") / "config.json",
           fs::copy_options::overwrite_existing);
  EXPECT_THAT(plan_error("type: self, layers: 1"), HasSubstr(advice));
}

/// Beam search asks its drafter for several sequences in turn.
TEST_F(BuiltinHeadsTest, BeamSearchRefusesHeadsBeforeAnythingIsLoaded) {
  for (const char* drafter :
       {"type: eagle, weights: eagle", "type: eagle3, weights: eagle3", "type: mtp",
        "type: dflash, weights: dflash",
        "type: cascade, drafters: [{type: suffix}, {type: eagle, weights: eagle}]"}) {
    EXPECT_THAT(plan_error(drafter, true, "speculative_beam"),
                HasSubstr("strategies[1].drafter: follows the target's hidden states"))
        << drafter;
  }
  (void)plan({"type: self, layers: 1"}, true, "speculative_beam");
}

}  // namespace
}  // namespace specdec
