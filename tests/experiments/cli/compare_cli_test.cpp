#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/formats/strict_json.h"
#include "experiments/metrics/run_records.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A folder with what `specdec run` records: one strategy on four prompts.
std::string write_run(const TemporaryFolder& folder, double seconds, const std::string& cpu) {
  std::string generations;
  std::string steps;
  for (const char* prompt : {"p1", "p2", "p3", "p4"}) {
    GenerationRecord record;
    record.key = {"", "plain", prompt, 0};
    record.prompt_tokens = 3;
    record.generation.tokens = {5, 6, 7};
    record.generation.decode_seconds = 2.0 * seconds;
    record.load = MachineLoad{.seconds = 1.0, .others_seconds = cpu == "2" ? 1.5 : 0.0};
    record.generation.steps = {{.committed = 1, .verify_seconds = seconds},
                               {.committed = 1, .verify_seconds = seconds}};
    const RecordLines lines = write_record_lines(record);
    generations += lines.generation;
    steps += lines.steps;
  }
  folder.write("generations.jsonl", generations);
  folder.write("steps.jsonl", steps);
  folder.write("config.yaml", "name: run\nseed: " + cpu + "\n");
  folder.write("environment.json", "{\"cpu\": \"" + cpu + "\", \"cores\": 4, \"threads\": 1}");
  return folder.path().string();
}

TEST(CompareCliTest, PrintsBothRunsAndWhatDiffers) {
  const TemporaryFolder a;
  const TemporaryFolder b;
  const auto result = cli({"compare", write_run(a, 0.2, "1"), write_run(b, 0.1, "2")});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tokens/s A"), HasSubstr("B/A"), HasSubstr("2.00"),
                                HasSubstr("Note: cpu: \"1\" in A, \"2\" in B."),
                                HasSubstr("Note: config, only in A: seed: 1"),
                                HasSubstr("Note: A and B ran at different times"),
                                HasSubstr("Note: B: the machine was busy: other processes used "
                                          "1.50 of 4 CPUs. Its times are noisy."),
                                Not(HasSubstr("Note: A: the machine was busy"))));
}

TEST(CompareCliTest, ARunWithItselfIsSaid) {
  const TemporaryFolder folder;
  const std::string run = write_run(folder, 0.2, "1");
  const auto result = cli({"compare", run, run + "/."});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Note: A and B are the same run"),
                                Not(HasSubstr("ran at different times"))));
}

TEST(CompareCliTest, WholeTextsOfARunThatCutsLoopsAreSaidWhereverTheyArePrinted) {
  const TemporaryFolder folder;
  const std::string run = write_run(folder, 0.2, "1");
  EXPECT_THAT(cli({"import", run}).out, Not(HasSubstr("Note: ")));
  folder.write("config.yaml", "name: run\nloops: cut\n");
  const std::string note = run +
                           " has loops: cut; unlike its report, these figures are of whole "
                           "texts.\n";
  EXPECT_THAT(cli({"compare", run, run}).out, HasSubstr("Note: " + note));
  EXPECT_THAT(cli({"import", "mine=" + run}).out, HasSubstr("Note: " + note));
  const auto json = cli({"import", run, "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out).size(), 1U);
  EXPECT_EQ(json.err, "Note: " + note);
}

TEST(CompareCliTest, HelpExplainsTheRatio) {
  const auto help = cli({"compare", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("B/A is the speed of B relative to A"));
}

TEST(CompareCliTest, WritesJsonAndAPage) {
  const TemporaryFolder a;
  const TemporaryFolder b;
  const TemporaryFolder out;
  const auto run_a = write_run(a, 0.2, "1");
  const auto run_b = write_run(b, 0.1, "1");
  const auto file = (out.path() / "c.json").string();
  const auto page = (out.path() / "c.html").string();
  const auto to_file = cli({"compare", run_a, run_b, "--json", file, "--html", page});
  ASSERT_EQ(to_file.code, 0) << to_file.err;
  EXPECT_THAT(to_file.out, HasSubstr("tokens/s A"));
  EXPECT_THAT(read_file(page), HasSubstr("Two runs compared"));
  const auto printed = cli({"compare", run_a, run_b, "--json"});
  ASSERT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(nlohmann::json::parse(printed.out), nlohmann::json::parse(read_file(file)));
  EXPECT_NEAR(nlohmann::json::parse(printed.out).at("arms").at(0).at("b_over_a").get<double>(), 2.0,
              1e-9);
  EXPECT_EQ(cli({"compare", run_a, run_b, "--json", "-"}).out, printed.out);
  EXPECT_EQ(cli({"compare", "--json", run_a, run_b}).out, printed.out) << "RUN is no FILE";
  EXPECT_EQ(cli({"compare", run_a, run_b, "--json", "/no/such/folder/c.json"}).code, 2);
}

TEST(CompareCliTest, APageReplacesNothingElse) {
  const TemporaryFolder a;
  const auto run = write_run(a, 0.2, "1");
  const auto refused = [&](const std::string& page) {
    const auto result = cli({"compare", run, run, "--html", page});
    EXPECT_EQ(result.code, 2) << page;
    return result.err;
  };
  const std::string config = run + "/config.yaml";
  const std::string before = read_file(config);
  EXPECT_THAT(refused(config), HasSubstr("holds no page, so it is not overwritten"));
  EXPECT_EQ(read_file(config), before);
  EXPECT_THAT(refused(run), HasSubstr("is a folder"));
  EXPECT_THAT(refused(run + "/no/c.html"), HasSubstr("lies in no folder that is there"));
  EXPECT_THAT(refused(""), HasSubstr("is empty: name a file"));
  const std::string page = run + "/c.html";
  EXPECT_EQ(cli({"compare", run, run, "--html", page}).code, 0);
  EXPECT_EQ(cli({"compare", run, run, "--html", page}).code, 0) << "a page is made anew";
}

TEST(CompareCliTest, SpeedUpsAreOverTheConditionOfTheConfigsSweep) {
  const TemporaryFolder a;
  std::string generations;
  std::string steps;
  const auto add = [&](const std::string& strategy, const std::string& point, double seconds) {
    for (const char* prompt : {"p1", "p2"}) {
      GenerationRecord record;
      record.key = {point, strategy, prompt, 0};
      record.generation.tokens = {5, 6, 7};
      record.generation.decode_seconds = 2.0 * seconds;
      record.generation.steps = {{.committed = 1, .verify_seconds = seconds},
                                 {.committed = 1, .verify_seconds = seconds}};
      const RecordLines lines = write_record_lines(record);
      generations += lines.generation;
      steps += lines.steps;
    }
  };
  const std::string cold = "temperature=0, draft_length=";
  const std::string warm = "temperature=0.8, draft_length=";
  add("plain", cold + "1", 1.0);
  add("plain", warm + "1", 9.0);
  add("fast", cold + "1", 0.5);
  add("fast", warm + "1", 0.5);
  add("fast", warm + "2", 0.5);
  a.write("generations.jsonl", generations);
  a.write("steps.jsonl", steps);
  a.write("config.yaml",
          "strategies: [{name: plain}, {name: fast}]\n"
          "sweep: {sampling.temperature: [0, 0.8], strategies.fast.draft_length: [1, 2]}\n");
  const std::string run = a.path().string();
  const auto speedup = [&] {
    const auto result = cli({"compare", run, run, "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("arms").back().at("a").at("speedup");
  };
  EXPECT_NEAR(speedup().get<double>(), 18.0, 1e-9) << "not 2, which is that over temperature 0";
  const auto refused = [&](const std::string& config) {
    a.write("config.yaml", config);
    const auto result = cli({"compare", run, run});
    EXPECT_EQ(result.code, 2) << config;
    return result.err;
  };
  EXPECT_THAT(refused("strategies: [{name: plain}, {name: fast}]\n"),
              AllOf(HasSubstr("config.yaml: its sweep has no point 'temperature=0"),
                    HasSubstr("was the file edited?")));
  EXPECT_THAT(refused("sweep: ["), HasSubstr("config.yaml")) << "which cannot be read";
  EXPECT_THAT(refused("sweep: 3"), HasSubstr("config.yaml"));
  std::filesystem::remove(a.path() / "config.yaml");
  EXPECT_THAT(cli({"compare", run, run}).err, HasSubstr("was the file removed?"));
}

TEST(CompareCliTest, ADamagedRunIsAnError) {
  const TemporaryFolder a;
  const TemporaryFolder b;
  const auto run_a = write_run(a, 0.2, "1");
  const auto run_b = write_run(b, 0.1, "1");
  b.write("environment.json", "[1]");
  const auto environment = cli({"compare", run_a, run_b});
  EXPECT_EQ(environment.code, 2) << environment.err;
  EXPECT_THAT(environment.err, HasSubstr("environment.json: should hold a JSON object"));
  b.write("environment.json", "{\"cores\": \"four\"}");
  const auto cores = cli({"compare", run_a, run_b});
  EXPECT_EQ(cores.code, 2) << cores.err;
  EXPECT_THAT(cores.err, HasSubstr("environment.json: 'cores' must be a whole number of at least "
                                   "0, but is \"four\"; was it edited?"));
  b.write("generations.jsonl", "{\"tokens\": 3}\n");
  const auto generations = cli({"compare", run_a, run_b});
  EXPECT_EQ(generations.code, 2);
  EXPECT_THAT(generations.err, HasSubstr("generations.jsonl:1: is not a record that this version "
                                         "writes (the key '"));
}

TEST(CompareCliTest, WhatIsNoRunIsAnError) {
  const TemporaryFolder a;
  const TemporaryFolder empty;
  const auto run = write_run(a, 0.2, "1");
  const auto missing = cli({"compare", run, "/no/such/folder"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("is not a folder; compare wants two run folders"));
  const auto other = cli({"compare", empty.path().string(), run});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("is not a run folder (it has no generations.jsonl)"));
  empty.write("generations.jsonl", "");
  EXPECT_THAT(cli({"compare", empty.path().string(), run}).err,
              HasSubstr("holds no finished generation yet"));
  EXPECT_EQ(cli({"compare", run}).code, 2);
}

}  // namespace
}  // namespace specdec
