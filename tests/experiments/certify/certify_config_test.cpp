// `specdec certify --config`: strategies on checkpoints, by statistics and by greedy tokens.
#include "experiments/certify/certify_config.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/error_message.h"
#include "tests/support/planted_verifier.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr int64_t kCertifyVocab = 5;

Components builtin_with_verifier(Bug bug) {
  auto components = builtin_components();
  components.verifiers.add("planted", planted_verifier(bug));
  return components;
}

/// Two tiny random checkpoints, prompts, and a config that names them.
class CertifyConfigTest : public testing::Test {
 protected:
  CertifyConfigTest() {
    save_gemma(unpack(*tiny_gemma(kCertifyVocab, at::kFloat, 1)), folder_.path() / "target",
               at::kFloat);
    save_gemma(unpack(*tiny_gemma(kCertifyVocab, at::kFloat, 2)), folder_.path() / "draft",
               at::kFloat);
    folder_.write("p.jsonl",
                  "{\"id\": \"one\", \"tokens\": [0, 3, 1]}\n"
                  "{\"id\": \"two\", \"tokens\": [0, 4, 4, 2, 1]}\n");
  }

  /// A config with a draft model and this verifier, and more strategies.
  std::string config(double temperature, const std::string& verifier,
                     const std::string& more = "") const {
    const auto text = fmt::format(
        "model: {{weights: target}}\nprompts: {{file: p.jsonl}}\nmax_new_tokens: 12\n"
        "stop: {{ignore_eos: true}}\nsampling: {{temperature: {}}}\nstrategies:\n"
        "  - {{name: tried, type: speculative, draft_length: 3, verifier: {{type: {}}},\n"
        "     drafter: {{type: draft_model, weights: draft}}}}\n{}",
        temperature, verifier, more);
    return folder_.write("c.yaml", text).string();
  }

  static CliResult cli(std::vector<std::string> arguments,
                       const Components& components = builtin_components()) {
    arguments.insert(arguments.begin(), {"certify", "--quiet"});
    return specdec::cli(arguments, components);
  }

  TemporaryFolder folder_;
};

const std::vector<std::string> kSamples = {"--samples", "800", "--tokens", "2"};

std::vector<std::string> sampled(const std::string& config, const std::string& more = "") {
  std::vector<std::string> arguments = {"--config", config};
  arguments.insert(arguments.end(), kSamples.begin(), kSamples.end());
  if (!more.empty()) {
    arguments.push_back(more);
  }
  return arguments;
}

// ---- Strategies that keep their promise ----

TEST_F(CertifyConfigTest, LosslessStrategiesPassGreedy) {
  const auto result = cli({"--config", config(0.0, "exact_match", "  - type: autoregressive\n")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("tried           passed    2 of 2 prompts have the tokens of plain "
                              "decoding (24 tokens, "),
                    HasSubstr("drafted tokens accepted)"),
                    HasSubstr("autoregressive  passed    2 of 2 prompts have the tokens of plain "
                              "decoding (24 tokens)"),
                    HasSubstr("PASSED"), Not(HasSubstr("Sampled:"))));
  const auto json = nlohmann::json::parse(
      cli({"--config", config(0.0, "exact_match", "  - type: autoregressive\n"), "--json"}).out);
  EXPECT_GT(json["tests"][0]["drafted"], 0);
  EXPECT_LE(json["tests"][0]["accepted"], json["tests"][0]["drafted"]);
  EXPECT_FALSE(json["tests"][1].contains("drafted"));
}

TEST_F(CertifyConfigTest, LosslessStrategiesPassSampled) {
  for (const char* verifier : {"rejection", "sample_match"}) {
    const auto result = cli(sampled(config(1.0, verifier), "--json"));
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_TRUE(json["passed"]);
    ASSERT_THAT(json["tests"], SizeIs(3));
    EXPECT_EQ(json["tests"][1]["prompt"], "one");
    EXPECT_EQ(json["tests"][2]["prompt"], "two");
    for (const auto& test : json["tests"]) {
      EXPECT_EQ(test["mode"], "sampled");
      EXPECT_EQ(test["result"], "passed");
      EXPECT_GE(test["adjusted_p_value"], test["p_value"]);
    }
    EXPECT_EQ(json["tests"][1]["samples"], 800);
    EXPECT_GT(json["tests"][1]["degrees"], 5);
  }
}

TEST_F(CertifyConfigTest, OnePromptIsEnough) {
  auto arguments = sampled(config(1.0, "rejection"), "--json");
  arguments.insert(arguments.end(), {"--prompts", "1"});
  EXPECT_THAT(nlohmann::json::parse(cli(arguments).out)["tests"], SizeIs(2));
}

TEST_F(CertifyConfigTest, SaysWhatItSees) {
  const auto file = config(1.0, "rejection", "  - type: autoregressive\n");
  const auto result = cli({"--config", file, "--prompts", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_THAT(json["tests"], SizeIs(4));
  for (const int strategy : {0, 2}) {
    const auto& positions = json["tests"][strategy]["positions"];
    EXPECT_EQ(positions["favoured_by"], strategy == 0 ? "drafter" : "target");
    EXPECT_EQ(positions["tokens"].get<int64_t>(), 11 * positions["texts"].get<int64_t>());
    EXPECT_GT(positions["tokens"], 1500);
    EXPECT_LE(positions["sees_total_variation"], 0.05);
    EXPECT_LE(positions["finds_accept_all_from"], 0.5);
    EXPECT_LE(positions["finds_target_residual_from"], 1.0);
    EXPECT_EQ(positions["total_variation_at_least"], 0.0);
    const auto& cells = json["tests"][strategy + 1];
    EXPECT_GT(cells["samples"], 250);
    EXPECT_NEAR(cells["sees_total_variation"].get<double>(), 0.1, 0.02);
  }
  const auto text = cli({"--config", file, "--prompts", "1", "--samples", "50"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("tokens are rated higher by the drafter, "),
                              HasSubstr("tokens are the target's most likely, "),
                              HasSubstr("  detects a total variation of 0.0"),
                              HasSubstr("a verifier that accepts all: from ")));
}

// ---- Strategies that break it ----

// With the flags that docs/certify.md prints, and few positions.
TEST_F(CertifyConfigTest, BrokenVerifiersFailSampled) {
  for (const Bug bug : {Bug::kAlwaysAccepts, Bug::kResidualFromTarget, Bug::kFirstUnchecked,
                        Bug::kTypicalAcceptance}) {
    const auto result =
        cli({"--config", config(1.0, "planted"), "--samples", "300", "--tokens", "2"},
            builtin_with_verifier(bug));
    EXPECT_EQ(result.code, 1) << static_cast<int>(bug);
    EXPECT_THAT(result.out, AllOf(HasSubstr("tried  FAILED    "),
                                  HasSubstr("tokens are rated higher by the drafter"),
                                  HasSubstr("its total variation from the target is at least 0.")))
        << static_cast<int>(bug);
  }
}

TEST_F(CertifyConfigTest, TheFirstTokensOfSamplesFindOneToo) {
  const auto result =
      cli(sampled(config(1.0, "planted")), builtin_with_verifier(Bug::kAlwaysAccepts));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("tried  FAILED    prompt one: chi-square"),
                    HasSubstr("after Holm; 800 samples detect"), HasSubstr("most off: "),
                    HasSubstr("outputs begin with ["), HasSubstr("expected\n")));
}

TEST_F(CertifyConfigTest, ASharedRandomNumberFails) {
  const auto result =
      cli(sampled(config(1.0, "planted")), builtin_with_verifier(Bug::kSharedRandomNumber));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("tried  FAILED    "), HasSubstr("is drawn twice")));
}

TEST_F(CertifyConfigTest, ABrokenVerifierFailsGreedyAndIsExplained) {
  const auto components = builtin_with_verifier(Bug::kAlwaysAccepts);
  const auto text = cli({"--config", config(0.0, "planted")}, components);
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr("tried  FAILED    "),
                              HasSubstr("  prompt one: after 5 equal tokens plain "),
                              HasSubstr("a mistake of the strategy, not of rounding")));
  const auto json =
      nlohmann::json::parse(cli({"--config", config(0.0, "planted"), "--json"}, components).out);
  EXPECT_FALSE(json["passed"]);
  const auto& difference = json["tests"][0]["differences"][0];
  EXPECT_EQ(difference["cause"], "not_its_best");
  EXPECT_EQ(difference["width"], 4);
  EXPECT_EQ(difference["logit_difference"], 0.0);
  EXPECT_NE(difference["token_plain"], difference["token_other"]);
}

TEST_F(CertifyConfigTest, WhatASecondRunDoesNotShowIsSaid) {
  auto components = builtin_components();
  components.verifiers.add("planted", {.help = "broken once",
                                       .promise = Promise::kLossless,
                                       .prepare = [](const ConfigNode&, const RunPlan&) {
                                         return [built = std::make_shared<int>(0)](BuildContext&) {
                                           return std::make_unique<BuggyVerifier>(
                                               (*built)++ == 0 ? Bug::kAlwaysAccepts : Bug::kNone);
                                         };
                                       }});
  const auto result = cli({"--config", config(0.0, "planted")}, components);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("on this prompt alone, it does not do so again"));
}

// ---- What is not tested, or cannot be ----

TEST_F(CertifyConfigTest, ALossyStrategyIsMeasuredNotTested) {
  const auto json = nlohmann::json::parse(
      cli(sampled(config(1.0, "typical", "  - type: autoregressive\n"), "--json")).out);
  EXPECT_TRUE(json["passed"]);
  EXPECT_EQ(json["tests"][0]["result"], "lossy");
  EXPECT_LT(json["tests"][0]["p_value"], 1e-6);
  EXPECT_GT(json["tests"][0]["positions"]["total_variation_at_least"], 0.01);
  const auto text = cli(sampled(config(1.0, "typical")));
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("(declared lossy, not tested)"),
                              HasSubstr("No strategy here promises to be lossless")));
}

TEST_F(CertifyConfigTest, AnUnverifiedStrategyIsMeasuredNotTested) {
  auto components = builtin_components();
  components.verifiers.add("planted", planted_verifier(Bug::kAlwaysAccepts, Promise::kUnverified));
  const auto text = cli(sampled(config(1.0, "planted")), components);
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("tried  unverified  "),
                              HasSubstr("(declared unverified, not tested)"),
                              HasSubstr("its total variation from the target is at least 0.")));
}

TEST_F(CertifyConfigTest, SearchesAreListedNotTested) {
  const std::string search = "  - {name: search, type: beam_search, num_beams: 2}\n";
  const auto beside = cli({"--config", config(0.0, "exact_match", search)});
  EXPECT_EQ(beside.code, 0) << beside.err;
  EXPECT_THAT(beside.out, HasSubstr("search  search    not tested here"));
  const auto alone = cli({"--config", folder_
                                          .write("s.yaml",
                                                 "model: {weights: target}\n"
                                                 "prompts: {file: p.jsonl}\nstrategies:\n" +
                                                     search)
                                          .string()});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("there is nothing to certify"));
}

TEST_F(CertifyConfigTest, ADistributionOfOneOutputIsNoTest) {
  const auto result = cli(sampled(config(0.001, "rejection")));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("skipped   prompt one: only one output is likely"),
                                HasSubstr("tried  untested  "),
                                HasSubstr("untested: the drafter's distribution is the target's, "),
                                HasSubstr("FAILED: a strategy was not tested")));
}

// So few tokens show nothing, whatever the verifier.
TEST_F(CertifyConfigTest, ATestThatFindsNoWrongVerifierIsNone) {
  const auto file = config(1.0, "rejection");
  const auto result =
      cli({"--config", file, "--detect", "0.5", "--samples", "20", "--prompts", "1"});
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("tried  untested  "), HasSubstr("from p: not found"),
                    HasSubstr("untested: it would need some "), HasSubstr("lower --detect to 0."),
                    HasSubstr("FAILED: a strategy was not tested")));
}

// No text repeats 24 tokens, so there is nothing that a verifier could have got wrong.
TEST_F(CertifyConfigTest, ADrafterThatProposesNothingIsUntested) {
  const auto file = config(1.0, "rejection",
                           "  - {name: rare, type: speculative,\n"
                           "     drafter: {type: prompt_lookup, min_ngram: 24, max_ngram: 24}}\n");
  const auto result =
      cli({"--config", file, "--detect", "0.2", "--samples", "20", "--prompts", "1"});
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("rare   untested  0 of "), HasSubstr("or it proposes nothing; ")));
}

// Equal tokens without a draft are those of plain decoding on both sides.
TEST_F(CertifyConfigTest, AGreedyDrafterThatProposesNothingIsUntested) {
  const auto file = config(0.0, "exact_match",
                           "  - {name: rare, type: speculative,\n"
                           "     drafter: {type: prompt_lookup, min_ngram: 24, max_ngram: 24}}\n");
  const auto result = cli({"--config", file});
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("tried  passed    "),
                    HasSubstr("rare   untested  2 of 2 prompts have the tokens of plain decoding "
                              "(24 tokens, 0 of 0 drafted tokens accepted)"),
                    HasSubstr("untested: its drafter proposed nothing, so no draft was verified"),
                    HasSubstr("FAILED: a strategy was not tested")));
  const auto json = nlohmann::json::parse(cli({"--config", file, "--json"}).out);
  EXPECT_FALSE(json["passed"]);
  EXPECT_EQ(json["tests"][1]["result"], "untested");
  EXPECT_EQ(json["tests"][1]["drafted"], 0);
}

// Costs are made up here: measured ones may decide on no draft.
TEST_F(CertifyConfigTest, AGreedyStrategyThatCostsDecideAboutDrafts) {
  const auto file =
      config(0.0, "exact_match",
             "  - {name: weighed, type: speculative, draft_length: {type: adaptive},\n"
             "     drafter: {type: draft_model, weights: draft}}\n");
  const auto result = cli({"--config", file, "--json"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  const auto weighed = nlohmann::json::parse(result.out)["tests"][1];
  EXPECT_EQ(weighed["result"], "passed");
  EXPECT_GT(weighed["drafted"], 0);
}

// What it draws at first would find no wrong verifier; ten times as much finds one.
TEST_F(CertifyConfigTest, ATestThatSeesTooLittleDrawsMore) {
  const auto file = config(1.0, "rejection");
  const auto result =
      cli({"--config", file, "--detect", "0.25", "--samples", "20", "--prompts", "1"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tried  passed"), Not(HasSubstr("not found"))));
  // 0.25 alone asks for some 90 tokens.
  int drawn = 0;
  int rated = 0;
  const auto line = result.out.find("passed    ") + 10;
  ASSERT_EQ(std::sscanf(result.out.c_str() + line, "%d of %d tokens", &rated, &drawn), 2);
  EXPECT_GT(drawn, 200);
}

TEST_F(CertifyConfigTest, APointOfASweepHasItsName) {
  const auto file = config(0.0, "exact_match", "sweep: {strategies.tried.draft_length: [1, 2]}\n");
  const auto result = cli({"--config", file, "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_THAT(json["tests"], SizeIs(2));
  EXPECT_THAT(json["tests"][0]["sweep_point"].get<std::string>(), HasSubstr("draft_length=1"));
  EXPECT_THAT(json["tests"][1]["sweep_point"].get<std::string>(), HasSubstr("draft_length=2"));
}

TEST_F(CertifyConfigTest, ASweepMayBeGreedyAndSampled) {
  const std::string both = "  - type: autoregressive\nsweep: {sampling.temperature: [0, 1]}\n";
  const auto file = config(0.0, "rejection", both);
  const auto result = cli(sampled(file));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Greedy: "), HasSubstr("Sampled: ")));
}

TEST_F(CertifyConfigTest, TooLongPromptsAreLeftOutAndCounted) {
  const auto file = config(0.0, "exact_match");
  const auto result = cli({"--config", file, "--set", "prompts.max_prompt_tokens=3"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("1 of 1 prompts"), HasSubstr("Left out, being too long: 1 prompt.")));
  const auto none = cli({"--config", file, "--set", "prompts.max_prompt_tokens=2"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("no prompt of"));
}

TEST_F(CertifyConfigTest, AFullContextEndsBoth) {
  const auto file = config(0.0, "exact_match");
  const auto result = cli({"--config", file, "--set", "model.max_length=9"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST_F(CertifyConfigTest, OptionsThatDoNotGoTogetherAreErrors) {
  const auto file = config(1.0, "rejection");
  EXPECT_THAT(cli({"rejection", "--config", file}).err, HasSubstr("not both"));
  const std::vector<std::vector<std::string>> cases = {
      {"rejection", "--config", file},
      {"--config", file, "--seeds", "3"},
      {"--samples", "100"},
      {"--detect", "0.1"},
      {"--config", file, "--detect", "0"},
      {"--tokens", "2"},
      {"--prompts", "2"},
      {"--set", "seed=2"},
      {"--config", file, "--samples", "5"},
      {"--config", (folder_.path() / "none.yaml").string()},
      {"--config", config(1.0, "exact_match")}};
  for (const auto& arguments : cases) {
    const auto result = cli(arguments);
    EXPECT_EQ(result.code, 2) << fmt::format("{}", fmt::join(arguments, " "));
    EXPECT_NE(result.err, "");
  }
}

// ---- The arithmetic ----

TEST(HolmTest, AdjustsStepDown) {
  // Sorted: 4 * 0.005, 3 * 0.01, 2 * 0.03, 1 * 0.04, which may not fall below the one before.
  const auto adjusted = holm_adjusted({0.01, 0.04, 0.03, 0.005});
  ASSERT_THAT(adjusted, SizeIs(4));
  EXPECT_DOUBLE_EQ(adjusted[0], 0.03);
  EXPECT_DOUBLE_EQ(adjusted[1], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.02);
  EXPECT_THAT(holm_adjusted({0.6, 0.7}), ElementsAre(1.0, 1.0));
  EXPECT_THAT(holm_adjusted({}), SizeIs(0));
}

TEST(WorstCellTest, IsTheLargestPartOfTheStatistic) {
  // Expected 50, 30, 20 and 0.5: parts 0.5, 30 / 9, 5 and none (fewer than five are expected).
  const SequenceDistribution distribution = {{{0}, 0.5}, {{1}, 0.3}, {{2, 1}, 0.195}, {{3}, 0.005}};
  const auto worst = worst_cell({{{0}, 45}, {{1}, 20}, {{2, 1}, 30}, {{3}, 5}}, distribution);
  ASSERT_TRUE(worst);
  EXPECT_THAT(worst->beginning, ElementsAre(2, 1));
  EXPECT_DOUBLE_EQ(worst->expected, 19.5);
  EXPECT_EQ(worst->count, 30);
  EXPECT_FALSE(worst_cell({{{3}, 1}}, {{{3}, 1.0}}));
}

TEST_F(CertifyConfigTest, RefusesPromptsThatALibraryMultiplies) {
  ExperimentPlan plan = load_experiment(config(0, "rejection"), {}, builtin_components());
  EXPECT_NO_THROW(refuse_library_products(plan, "c.yaml"));
  plan.points.push_back(plan.points.front());
  plan.points.back().config.model.library_products = true;  // which needs a GPU to be read
  EXPECT_EQ(error_message<ConfigError>([&] { refuse_library_products(plan, "c.yaml"); }),
            "c.yaml: model.prefill_products: library: certify promises the bits of decoding: add "
            "--set model.prefill_products=exact");
}

}  // namespace
}  // namespace specdec
