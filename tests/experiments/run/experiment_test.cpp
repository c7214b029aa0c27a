#include "experiments/run/experiment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/cli/cli.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/answers.h"
#include "experiments/report/report_text.h"
#include "experiments/run/run_folder.h"
#include "experiments/terminal/interrupt.h"
#include "tests/experiments/run/run_fixture.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using testing::HasSubstr;

class ExperimentTest : public RunFixture {
 protected:
  ExperimentTest() {
    folder_.write("p.jsonl",
                  "{\"tokens\": [2, 5, 9, 5, 9], \"category\": \"a\"}\n"
                  "{\"tokens\": [2, 7, 11], \"category\": \"b\"}\n");
    const auto weights = test_data("gemma3-a").string();
    folder_.write("c.yaml", fmt::format("model: {{weights: {}}}\n"
                                        "prompts: {{file: p.jsonl}}\n"
                                        "max_new_tokens: 12\n"
                                        "stop: {{ignore_eos: true}}\n"
                                        "repeats: 2\n"
                                        "strategies:\n"
                                        "  - type: autoregressive\n"
                                        "  - name: lookup\n"
                                        "    type: speculative\n"
                                        "    draft_length: 3\n"
                                        "    drafter: {{type: prompt_lookup}}\n"
                                        "  - name: draft\n"
                                        "    type: speculative\n"
                                        "    draft_length: 3\n"
                                        "    drafter: {{type: draft_model, weights: {}}}\n",
                                        weights, weights));
  }
};

TEST_F(ExperimentTest, RunsEveryStrategyOnEveryPrompt) {
  const auto report = run();
  const auto all = records();
  EXPECT_EQ(all.size(), 12U);
  std::set<std::string> order;
  for (size_t i = 0; i < all.size(); i += 3) {
    // The strategies take a prompt one right after the other.
    EXPECT_EQ(all[i].key.prompt_id, all[i + 2].key.prompt_id);
    order.insert(all[i].key.strategy);
  }
  EXPECT_GT(order.size(), 1U) << "the order turns";
  for (const auto& record : all) {
    ASSERT_TRUE(record.load.has_value());
    EXPECT_GE(record.load->seconds, record.generation.decode_seconds);
  }
  EXPECT_EQ(report.summary.load.generations(), 12);
  EXPECT_EQ(report.summary.compared, 8);
  EXPECT_TRUE(report.summary.divergences.empty());
  for (const char* name :
       {"config.yaml", "environment.json", "generations.jsonl", "steps.jsonl", "summary.json",
        "summary.csv", "report.html", "spec_bench.md", "answers/lookup.jsonl"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "out" / name)) << name;
  }
}

TEST_F(ExperimentTest, GreedyStrategiesGiveTheSameTokens) {
  (void)run();
  std::map<std::string, std::set<std::vector<Token>>> by_prompt;
  for (const auto& record : records()) {
    EXPECT_EQ(record.generation.tokens.size(), 12U);
    by_prompt[record.key.prompt_id].insert(record.generation.tokens);
  }
  EXPECT_EQ(by_prompt.size(), 2U);
  for (const auto& [id, different] : by_prompt) {
    EXPECT_EQ(different.size(), 1U) << id;
  }
}

TEST_F(ExperimentTest, TheSameSeedGivesTheSameTokensAndCounts) {
  const std::vector<std::string> sets = {"sampling.temperature=1"};
  (void)run(sets, "one");
  (void)run(sets, "two");
  (void)run({"sampling.temperature=1", "seed=1"}, "three");
  EXPECT_EQ(tokens(records("one")), tokens(records("two")));
  EXPECT_NE(tokens(records("one")), tokens(records("three")));
}

TEST_F(ExperimentTest, RepeatsAndPromptsDrawTheirOwnTokens) {
  (void)run({"sampling.temperature=2", "repeats=3"});
  std::set<std::vector<Token>> different;
  for (const auto& record : records()) {
    if (record.key.strategy == "autoregressive") {
      different.insert(record.generation.tokens);
    }
  }
  EXPECT_EQ(different.size(), 6U);
}

TEST_F(ExperimentTest, ResumesWhereItStopped) {
  const std::vector<std::string> sets = {"sampling.temperature=1"};
  (void)run(sets, "whole");
  (void)run(sets, "cut");
  const auto file = folder_.path() / "cut" / "generations.jsonl";
  const std::string text = read_text_file(file, 1 << 20);
  size_t end = 0;
  for (int line = 0; line < 5; ++line) {
    end = text.find('\n', end) + 1;
  }
  std::filesystem::resize_file(file, end + 20);  // five lines and a piece of the sixth
  const auto report = run(sets, "cut");
  EXPECT_EQ(tokens(records("cut")), tokens(records("whole")));
  EXPECT_EQ(records("cut").size(), 12U);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("resumed")));
}

TEST_F(ExperimentTest, AResumedRunKeepsItsThreads) {
  (void)run({}, "threads");
  const auto folder = folder_.path() / "threads";
  auto environment = nlohmann::json::parse(read_text_file(folder / "environment.json", 1 << 20));
  environment["threads"] = 3;
  environment["thread_reason"] = "measured: long ago";
  std::ofstream(folder / "environment.json") << environment.dump();
  std::filesystem::resize_file(folder / "generations.jsonl", 0);
  const int before = at::get_num_threads();
  const auto report = run({}, "threads");
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
  EXPECT_EQ(report.environment.threads, 3);
  EXPECT_EQ(report.environment.thread_reason, "measured: long ago");
}

TEST_F(ExperimentTest, AReportSaysWhereARunWasResumedElsewhere) {
  (void)run({}, "moved");
  const auto folder = folder_.path() / "moved";
  auto environment = nlohmann::json::parse(read_text_file(folder / "environment.json", 1 << 20));
  const auto here = environment["cpu"].get<std::string>();
  environment["cpu"] = "Z80";
  std::ofstream(folder / "environment.json") << environment.dump();
  std::filesystem::remove(folder / "summary.json");
  EXPECT_THAT(run({}, "moved").notes, testing::Not(testing::Contains(HasSubstr("changed"))))
      << "only the report was missing: nothing was measured here";
  const auto records = read_text_file(folder / "generations.jsonl", 1 << 20);
  std::filesystem::resize_file(folder / "generations.jsonl", records.find('\n') + 1);
  const auto report = run({}, "moved");
  const auto said = testing::Contains(HasSubstr("changed environment (cpu: Z80, then " + here));
  EXPECT_THAT(report.notes, said);
  EXPECT_EQ(report.environment.cpu, here);
  EXPECT_THAT(run({}, "moved").notes, said) << "read back from the finished run";
  std::filesystem::remove(folder / "summary.json");
  EXPECT_THAT(run({}, "moved").notes, said) << "and when its report is written again";
}

/// When each file of a folder, and the folder itself, last changed.
std::map<std::string, std::filesystem::file_time_type> change_times(
    const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::file_time_type> times = {
      {"", std::filesystem::last_write_time(folder)}};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    times[entry.path().string()] = entry.last_write_time();
  }
  return times;
}

std::string table_of(const Report& report) {
  std::ostringstream out;
  write_table(out, report);
  return out.str();
}

TEST_F(ExperimentTest, AFinishedRunStartedAgainChangesNothingAndLoadsNothing) {
  // Of this copy only the weights' headers are there the second time.
  const auto model = folder_.path() / "model";
  std::filesystem::copy(test_data("gemma3-a").string(), model);
  const std::vector<std::string> sets = {"model.weights=" + model.string(),
                                         "strategies.draft.drafter.weights=" + model.string(),
                                         "prompts.max_prompt_tokens=4", "trace.depth=2"};
  const auto first = run(sets);
  const auto before = change_times(folder_.path() / "out");
  std::string weights = read_text_file(model / "model.safetensors", size_t{64} << 20U);
  std::fill(weights.end() - 4096, weights.end(), '\xff');
  folder_.write("model/model.safetensors", weights);
  const auto plan = load_experiment(folder_.path() / "c.yaml", sets, components_);
  const auto again =
      run_experiment(plan, {.out = folder_.path() / "out", .quiet = false, .command = "x"}, log_);
  EXPECT_EQ(change_times(folder_.path() / "out"), before);
  EXPECT_EQ(table_of(again), table_of(first));
  EXPECT_EQ(again.notes, first.notes) << "the prompt that was left out";
  EXPECT_EQ(again.environment.date, first.environment.date);
  EXPECT_THAT(log_.str(), HasSubstr("this run is finished"));
  EXPECT_THAT(log_.str(), testing::Not(HasSubstr("loading")));
}

TEST_F(ExperimentTest, ARunThatLacksAnythingIsNotFinished) {
  const std::vector<std::string> sets = {"trace.depth=2", "repeats=1"};
  for (const char* lost : {"summary.json", "report.html", "traces.jsonl", "steps.jsonl"}) {
    (void)run(sets);
    ASSERT_TRUE(std::filesystem::remove(folder_.path() / "out" / lost));
    (void)run(sets);
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "out" / lost)) << lost;
  }
}

TEST_F(ExperimentTest, AnotherConfigNeedsAnotherFolder) {
  (void)run();
  EXPECT_THROW((void)run({"seed=2"}), Error);
  folder_.write("p.jsonl", "{\"tokens\": [2, 5]}\n{\"tokens\": [2, 6]}\n");
  EXPECT_THROW((void)run(), Error);
}

TEST_F(ExperimentTest, OtherWeightsNeedAnotherFolder) {
  const auto copy = folder_.path() / "model";
  std::filesystem::copy(test_data("gemma3-a").string(), copy);
  const std::vector<std::string> sets = {"model.weights=" + copy.string(), "strategies.2.name=d"};
  (void)run(sets);
  std::filesystem::remove(folder_.path() / "out/generations.jsonl");  // something is left to do
  const auto file = copy / "model.safetensors";
  std::string bytes = read_text_file(file, size_t{64} << 20U);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  folder_.write("model/model.safetensors", bytes);
  try {
    (void)run(sets);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("changed since this run began"));
    EXPECT_THAT(error.what(), HasSubstr("use another --out"));
  }
}

TEST_F(ExperimentTest, ASweepRunsUntouchedStrategiesOnce) {
  const auto report = run({"sweep={strategies.lookup.draft_length: [1, 2]}", "repeats=1"});
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const auto& record : records()) {
    ++counts[{record.key.sweep_point, record.key.strategy}];
  }
  EXPECT_EQ(counts.size(), 4U);
  const auto all = records();
  ASSERT_EQ(all.size(), 8U);
  for (size_t i = 0; i < all.size(); i += 4) {
    // The points of a sweep take a prompt one right after the other too: drift hits all alike.
    EXPECT_EQ(all[i].key.prompt_id, all[i + 3].key.prompt_id);
  }
  EXPECT_EQ((counts[{"draft_length=1", "autoregressive"}]), 2);
  EXPECT_EQ((counts[{"draft_length=2", "lookup"}]), 2);
  EXPECT_EQ(counts.count({"draft_length=2", "autoregressive"}), 0U);
  ASSERT_EQ(report.sweep_points.size(), 2U);
  EXPECT_EQ(report.sweep_points[1].values, (std::vector<std::string>{"2"}));
}

TEST_F(ExperimentTest, ASweepOverSamplingRunsAllStrategies) {
  (void)run({"sweep={sampling.temperature: [0, 1]}", "repeats=1"});
  EXPECT_EQ(records().size(), 12U);
}

TEST_F(ExperimentTest, AdaptiveLengthsFreezeTheirCosts) {
  const std::vector<std::string> sets = {"strategies.draft.draft_length={type: adaptive}"};
  (void)run(sets);
  const auto file = folder_.path() / "out" / "cost_curve.json";
  const auto before = read_text_file(file, 1 << 20);
  std::filesystem::remove(folder_.path() / "out" / "generations.jsonl");
  std::filesystem::remove(folder_.path() / "out" / "steps.jsonl");
  (void)run(sets);
  EXPECT_EQ(read_text_file(file, 1 << 20), before);
}

TEST_F(ExperimentTest, LeavesOutPromptsThatAreTooLong) {
  const auto report = run({"prompts.max_prompt_tokens=4"});
  EXPECT_EQ(records().size(), 6U);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("1 prompts left out")));
  EXPECT_THROW((void)run({"prompts.max_prompt_tokens=1"}, "none"), Error);
}

TEST_F(ExperimentTest, TracesEveryDrafterAlongTheFirstStrategysText) {
  const std::vector<std::string> sets = {"sampling.temperature=1", "trace={depth: 4, width: 2}",
                                         "log.overlap=true"};
  const auto report = run(sets);
  const auto traces = load_traces(folder_.path() / "out");
  ASSERT_EQ(traces.size(), 8U) << "two drafters, two prompts, two repeats";
  for (const auto& record : traces) {
    EXPECT_NE(record.key.strategy, "autoregressive");
    EXPECT_EQ(record.verifier, "rejection");
    EXPECT_EQ(record.trace.positions.size(), 11U);
    EXPECT_EQ(record.trace.drawn, record.key.strategy == "draft");
    EXPECT_EQ(record.trace.depth, 4);
  }
  EXPECT_TRUE(load_cost_curve(folder_.path() / "out", "target").has_value());
  for (const auto& record : records()) {
    for (const auto& step : record.generation.steps) {
      EXPECT_EQ(static_cast<int64_t>(step.overlaps.size()), step.drafted);
    }
  }
  // The draft model is the target: each overlap is 1.
  for (const auto& row : report.summary.rows) {
    if (row.strategy == "draft" && row.category.empty()) {
      const auto exact = exact_acceptance(row.counts);
      ASSERT_EQ(exact.size(), 3U);
      EXPECT_NEAR(exact[0].value(), 1.0, 1e-9);
    }
  }
}

TEST_F(ExperimentTest, TracesAreResumed) {
  const std::vector<std::string> sets = {"trace.depth=2"};
  (void)run(sets);
  const auto file = folder_.path() / "out/traces.jsonl";
  const auto text = read_text_file(file, size_t{1} << 24U);
  // A killed process leaves a torn line.
  folder_.write("out/traces.jsonl", text.substr(0, text.size() / 2));
  (void)run(sets);
  auto traces = load_traces(folder_.path() / "out");
  EXPECT_EQ(traces.size(), 8U);
  std::set<GenerationKey> keys;
  for (const auto& record : traces) {
    keys.insert(record.key);
  }
  EXPECT_EQ(keys.size(), 8U);
  folder_.write("out/traces.jsonl", "{\"strategy\": 3}\n" + text);
  EXPECT_THAT([&] { (void)load_traces(folder_.path() / "out"); },
              testing::ThrowsMessage<Error>(HasSubstr("traces.jsonl:1: ")));
}

TEST_F(ExperimentTest, AReportSaysWhichStrategiesWereNeverCertified) {
  auto entry = components_.strategies.entries().at("autoregressive");
  entry.certified = false;
  components_.strategies.add("outside", entry);
  const auto report = run({"strategies.0.type=outside"});
  EXPECT_THAT(report.strategies[0].uncertified, testing::ElementsAre("strategy 'outside'"));
  EXPECT_THAT(report.strategies[1].uncertified, testing::IsEmpty());
  for (const auto* written : {"report.html", "summary.json"}) {
    EXPECT_THAT(read_text_file(folder_.path() / "out" / written, size_t{1} << 24U),
                HasSubstr("outside"))
        << written;
  }
  EXPECT_THAT(
      reader_notes(report),
      testing::Contains(HasSubstr("is unverified: strategy 'outside' was never certified")));
}

TEST_F(ExperimentTest, ALossyTextIsNotTraced) {
  components_.strategies.add(
      "lossy", {.help = "",
                .promise = Promise::kLossy,
                .prepare = components_.strategies.entries().at("autoregressive").prepare});
  EXPECT_THAT(
      [&] {
        (void)run({"strategies.0.type=lossy", "trace.depth=2"});
      },
      testing::ThrowsMessage<ConfigError>(HasSubstr("put a lossless one first")));
}

TEST_F(ExperimentTest, WritesAnswersThatReadBackAsItsCounts) {
  const auto report = run({"repeats=1"});
  for (const auto& row : report.summary.rows) {
    if (!row.category.empty()) {
      continue;
    }
    const auto answers =
        read_answers(folder_.path() / "out/answers" / answers_file_name(row.strategy, ""));
    EXPECT_EQ(answers.size(), 2U);
    const Counts counts = answer_counts(answers);
    EXPECT_EQ(counts.generations, row.counts.generations);
    EXPECT_EQ(counts.tokens, row.counts.tokens);
    EXPECT_EQ(counts.steps, row.counts.steps);
    EXPECT_EQ(counts.committed, row.counts.committed);
    EXPECT_EQ(counts.steps_committing, row.counts.steps_committing);
    EXPECT_EQ(tokens_per_step(counts), tokens_per_step(row.counts));
    EXPECT_NEAR(total_tokens_per_second(counts).value(),
                total_tokens_per_second(row.counts).value(), 1e-6);
  }
}

TEST_F(ExperimentTest, AnUnwritableFolderIsAnErrorBeforeWork) {
  folder_.write("file", "");
  EXPECT_THROW((void)run({}, "file"), Error);
  EXPECT_THROW((void)run({}, "file/below"), Error);
}

TEST_F(ExperimentTest, ChatTurnsFollowTheFirstStrategysReplies) {
  const auto model = folder_.path() / "model";
  write_text_model(model);
  folder_.write("t.jsonl",
                "{\"id\": \"x\", \"turns\": [\"first\", \"second\"]}\n{\"prompt\": \"one\"}\n");
  std::vector<std::string> sets = {"model.weights=" + model.string(), "prompts.file=t.jsonl",
                                   "strategies.draft.drafter.weights=" + model.string(),
                                   "repeats=1"};
  auto first_only = sets;
  first_only.emplace_back("prompts.multi_turn=false");
  const auto report = run(first_only, "first");
  EXPECT_EQ(records("first").size(), 6U);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("only their first was run")));
  EXPECT_EQ(records("first")[0].key.prompt_id, "x/1");
  EXPECT_EQ(records("first")[0].question_id, "x");

  (void)run(sets, "plain");
  const auto plain = records("plain");
  ASSERT_EQ(plain.size(), 9U);
  EXPECT_EQ(plain[3].turn, 1);
  EXPECT_GT(plain[3].prompt_tokens, plain[0].prompt_tokens + 12) << "it holds the first reply";

  sets.insert(sets.end(), {"prompts.chat=true", "sampling.temperature=1"});
  (void)run(sets, "chat");
  const auto all = records("chat");
  ASSERT_EQ(all.size(), 9U);
  std::set<int64_t> second_lengths;
  for (const auto& record : all) {
    if (record.key.prompt_id == "x/2") {
      second_lengths.insert(record.prompt_tokens);
    }
  }
  EXPECT_EQ(second_lengths.size(), 1U) << "all strategies continue the same text";
  EXPECT_GT(*second_lengths.begin(), all[0].prompt_tokens);
}

TEST_F(ExperimentTest, AnswersAreScored) {
  const auto model = folder_.path() / "model";
  write_text_model(model);
  const std::string prompts =
      "{\"turns\": [\"a\", \"b\"], \"scorer\": \"regex\", \"reference\": [\"^\", null]}\n"
      "{\"prompt\": \"c\", \"scorer\": \"regex\", \"reference\": \"not what it says\"}\n"
      "{\"prompt\": \"d\"}\n";
  folder_.write("t.jsonl", prompts);
  const std::vector<std::string> sets = {"model.weights=" + model.string(), "prompts.file=t.jsonl",
                                         "strategies.draft.drafter.weights=" + model.string(),
                                         "repeats=1"};
  const auto report = run(sets);
  std::map<std::string, std::optional<bool>> right;
  for (const auto& record : records()) {
    right[record.key.prompt_id] = record.is_right;
  }
  EXPECT_EQ(right.at("1/1"), true);
  EXPECT_EQ(right.at("1/2"), std::nullopt);
  EXPECT_EQ(right.at("2"), false);
  EXPECT_EQ(right.at("3"), std::nullopt);
  EXPECT_EQ(report.summary.rows.at(1).right_share, 0.5);
  EXPECT_EQ(report.summary.rows.at(1).quality->questions, 2);
  // Other keys are another run.
  folder_.write("t.jsonl",
                prompts.substr(0, prompts.find("not what")) + "x\"}\n{\"prompt\": \"d\"}\n");
  EXPECT_THROW((void)run(sets), Error);
}

TEST_F(ExperimentTest, OnlyExamplesKeepTheirRejectedTokens) {
  const std::vector<std::string> sets = {"sampling.temperature=1",
                                         "strategies.lookup.drafter={type: synthetic}",
                                         "sweep={strategies.lookup.draft_length: [2, 3]}"};
  const auto report = run(sets);
  std::set<std::string> kept;
  for (const auto& record : records()) {
    for (const auto& step : record.generation.steps) {
      int64_t rejected = 0;
      for (const auto& branch : step.rejected) {
        rejected += std::ssize(branch);
      }
      if (rejected > 0) {
        kept.insert(fmt::format("{} {} {} {}", record.key.strategy, record.key.sweep_point,
                                record.key.prompt_id, record.key.repeat));
        EXPECT_EQ(rejected, step.drafted - step.accepted) << "a chain";
      }
    }
  }
  EXPECT_THAT(kept, testing::IsSubsetOf({"lookup draft_length=2 1 0", "lookup draft_length=2 2 0",
                                         "draft draft_length=2 1 0", "draft draft_length=2 2 0"}));
  EXPECT_GE(kept.size(), 1U);
  EXPECT_THAT(read_text_file(folder_.path() / "out/report.html", 1 << 24),
              testing::ContainsRegex("<s>[0-9]+ "));
}

/// Decodes until the interrupt that it raises itself.
TEST_F(ExperimentTest, AnInterruptKeepsWhatIsFinished) {
  const InterruptGuard guard;
  int calls = 0;
  components_.drafters.add(
      "interrupting",
      {.help = "",
       .promise = Promise::kLossless,
       .prepare = [&calls](const ConfigNode&, const RunPlan&) -> DrafterRegistry::Make {
         class Interrupting final : public Drafter {
          public:
           explicit Interrupting(int& calls) : calls_(calls) {}
           Draft propose(const DraftContext& context) override {
             if (++calls_ == 40) {
               (void)std::raise(SIGINT);
             }
             return Draft::root(context.committed.back());
           }

          private:
           int& calls_;
         };
         return [&calls](BuildContext&) { return std::make_unique<Interrupting>(calls); };
       }});
  const std::vector<std::string> sets = {"strategies.lookup.drafter={type: interrupting}"};
  EXPECT_THROW((void)run(sets), Interrupted);
  const auto kept = records();
  EXPECT_GT(kept.size(), 0U);
  EXPECT_LT(kept.size(), 12U);
  const InterruptGuard again;
  (void)run(sets);
  EXPECT_EQ(records().size(), 12U);
  EXPECT_EQ(tokens({kept.begin(), kept.end()}).begin()->second,
            tokens(records()).find(tokens(kept).begin()->first)->second);
}

TEST_F(ExperimentTest, NamesThatLeaveTheRunsAreRefused) {
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

TEST_F(ExperimentTest, CheckFindsWhatTheContextCannotHold) {
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

TEST_F(ExperimentTest, CheckKnowsTrainings) {
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

TEST_F(ExperimentTest, TheCommandLineRunsAndChecks) {
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
