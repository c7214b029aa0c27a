#include "experiments/run/experiment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/answers.h"
#include "experiments/report/report_text.h"
#include "experiments/run/run_folder.h"
#include "tests/experiments/run/experiment_fixture.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ExperimentTest : public ExperimentFixture {};

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
    EXPECT_GT(record.cache_bytes.value_or(0), 0);
    EXPECT_GT(record.cache_pages.value_or(0), 0);
    EXPECT_LT(record.cache_fragmentation.value_or(1), 1);
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

TEST_F(ExperimentTest, ACacheThatIsTooSmallSaysWhichOptionRaisesIt) {
  EXPECT_THAT(error_message<Error>([&] {
                (void)run({"model.cache={type: paged, max_pages: 1}", "max_new_tokens=40"});
              }),
              HasSubstr("holds 1 pages of 16 tokens, not 2: raise the cache's limit (max_pages"));
}

TEST_F(ExperimentTest, AContiguousCacheGivesTheSameTokens) {
  (void)run({}, "paged");
  (void)run({"model.cache.type=contiguous"}, "contiguous");
  EXPECT_EQ(tokens(records("paged")), tokens(records("contiguous")));
  EXPECT_EQ(records("contiguous").front().cache_pages, 1);
  EXPECT_GT(records("contiguous").front().cache_fragmentation,
            records("paged").front().cache_fragmentation);
}

TEST_F(ExperimentTest, ATracedCacheGivesTheSameTokensAndAFigure) {
  (void)run({}, "plain");
  const auto report = run({"model.cache={type: tracing}"}, "traced");
  EXPECT_EQ(tokens(records("plain")), tokens(records("traced")));
  for (const GenerationRecord& record : records("traced")) {
    ASSERT_TRUE(record.cache_trace.has_value());
    EXPECT_GE(record.cache_trace->forwards, std::ssize(record.generation.steps));
    for (const KvTrace::Layer& layer : record.cache_trace->layers) {
      const double mass = std::accumulate(layer.mass.begin(), layer.mass.end(), 0.0);
      EXPECT_NEAR(mass, static_cast<double>(layer.nodes), 1e-6);
    }
  }
  EXPECT_FALSE(records("plain").front().cache_trace.has_value());
  EXPECT_EQ(report.details.attention_ages.size(),
            records("traced").front().cache_trace->layers.size());
  const auto html = [&](const char* run) {
    return read_file(folder_.path() / run / "report.html");
  };
  EXPECT_THAT(html("traced"), testing::Not(HasSubstr("the cache was not traced")));
  EXPECT_THAT(html("plain"), HasSubstr("the cache was not traced"));
}

/// Renames a piece of a tokenizer.model; both names have as many bytes.
void rename_piece(const std::filesystem::path& file, const std::string& old_name,
                  const std::string& new_name) {
  std::string bytes = read_file(file);
  bytes.replace(bytes.find(old_name), old_name.size(), new_name);
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST_F(ExperimentTest, StepsWithinThinkingAreReportedApart) {
  constexpr Token kThink = 351;
  const auto model = folder_.path() / "thinker";
  write_text_model(model);
  rename_piece(model / "tokenizer.model", "product", "<think>");
  rename_piece(model / "tokenizer.model", "customer", "</think>");
  folder_.write("p.jsonl", fmt::format("{{\"tokens\": [2, 5, 9, 5, 9, {}]}}\n"
                                       "{{\"tokens\": [2, 7, 11, 7, 11, 7]}}\n",
                                       kThink));
  folder_.write("c.yaml", "model: {weights: " + model.string() +
                              "}\nprompts: {file: p.jsonl}\nmax_new_tokens: 12\n"
                              "stop: {ignore_eos: true}\nstrategies:\n  - type: autoregressive\n"
                              "  - {name: lookup, type: speculative, draft_length: 3, "
                              "drafter: {type: prompt_lookup}}\n");
  const Report report = run();
  for (const GenerationRecord& record : records()) {
    EXPECT_EQ(record.thinking.has_value(), record.key.prompt_id == "1") << record.text;
  }
  for (const SummaryRow& row : report.summary.rows) {
    EXPECT_GT(row.groups.of(Phase::kThinking).steps, 0);
    EXPECT_GT(row.groups.of(Phase::kAnswer).steps, 0);
  }
  std::set<std::string> titles;
  for (const ReportColumn& column : report_columns(report)) {
    titles.insert(column.title);
  }
  EXPECT_TRUE(titles.contains("acceptance, thinking / answer"));
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

TEST_F(ExperimentTest, PointsThatShareTheModelAlternate) {
  const std::vector<std::string> sets = {"sweep={sampling.temperature: [0, 0.8]}"};
  std::ostringstream log;
  const auto report =
      run_experiment(load_experiment(folder_.path() / "c.yaml", sets, components_),
                     {.out = folder_.path() / "out", .quiet = false, .command = "test"}, log);
  const auto all = records();
  ASSERT_EQ(all.size(), 24U);
  std::set<std::string> first_points;
  for (size_t i = 0; i < all.size(); i += 6) {  // three strategies at two temperatures
    first_points.insert(all[i].key.sweep_point);
    std::set<std::string> points;
    for (size_t j = i; j < i + 6; ++j) {
      EXPECT_EQ(all[j].key.prompt_id, all[i].key.prompt_id);
      EXPECT_EQ(all[j].key.repeat, all[i].key.repeat);
      points.insert(all[j].key.sweep_point);
    }
    EXPECT_EQ(points.size(), 2U);
  }
  EXPECT_EQ(first_points.size(), 2U) << "the order turns";
  const std::string text = log.str();
  EXPECT_EQ(text.find("loading "), text.rfind("loading ")) << "the target is loaded once: " << text;
  EXPECT_THAT(report.notes, testing::Not(testing::Contains(HasSubstr("one after the other"))));
}

TEST_F(ExperimentTest, ASharedModelGivesTheTokensOfItsOwn) {
  (void)run({"sweep={sampling.temperature: [0, 0.8]}"});
  (void)run({"sampling.temperature=0.8"}, "alone");
  const auto alone = tokens(records("alone"));
  size_t compared = 0;
  for (const auto& [key, own] : tokens(records())) {
    if (key.sweep_point == "temperature=0.8") {
      EXPECT_EQ(own, alone.at({"", key.strategy, key.prompt_id, key.repeat}));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 12U);
}

TEST_F(ExperimentTest, PointsWithModelsOfTheirOwnFollowOneAnother) {
  const auto report = run({"sweep={model.dtype: [float32, float64]}", "repeats=1"});
  const auto all = records();
  ASSERT_EQ(all.size(), 12U);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].key.sweep_point, i < 6 ? "dtype=float32" : "dtype=float64");
  }
  const auto said = testing::Contains(
      HasSubstr("Points of the sweep that differ in model.dtype ran one after the other"));
  EXPECT_THAT(report.notes, said);
  EXPECT_THAT(run({"sweep={model.dtype: [float32, float64]}", "repeats=1"}).notes, said);
}

TEST_F(ExperimentTest, StrategiesAreComparedWithTheFirstUnderTheirCondition) {
  const auto report =
      run({"sweep={strategies.lookup.draft_length: [1, 2], "
           "sampling.temperature: [0, 0.8]}",
           "repeats=1"});
  ASSERT_EQ(report.sweep_points.size(), 4U);
  EXPECT_EQ(report.sweep_points[3].condition, "temperature=0.8");
  EXPECT_EQ(report.sweep_points[3].choice, "draft_length=2");
  const auto seconds = [&](const std::string& strategy, const std::string& point) {
    std::vector<double> found;
    for (const auto& record : records()) {
      if (record.key.strategy == strategy && record.key.sweep_point == point) {
        double committed = 0.0;
        for (const auto& step : record.generation.steps) {
          committed += static_cast<double>(step.committed);
        }
        found.push_back(record.generation.decode_seconds / committed);
      }
    }
    return found;
  };
  // Plain decoding at temperature 0.8 was run with draft_length=1 alone.
  const auto plain = seconds("autoregressive", "draft_length=1, temperature=0.8");
  const auto lookup = seconds("lookup", "draft_length=2, temperature=0.8");
  ASSERT_EQ(plain.size(), 2U);
  ASSERT_EQ(lookup.size(), 2U);
  for (const auto& row : report.summary.rows) {
    if (row.category.empty() && row.strategy == "lookup" &&
        row.sweep_point == "draft_length=2, temperature=0.8") {
      EXPECT_NEAR(row.speedup.value().ratio, std::sqrt(plain[0] / lookup[0] * plain[1] / lookup[1]),
                  1e-9);
    }
  }
  EXPECT_THAT(report.strategies[1].description,
              AllOf(HasSubstr("exact_match"),
                    HasSubstr("at draft_length=1, temperature=0.8: verifier rejection")));
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
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("1 prompt was left out as too long: ")));
  EXPECT_THROW((void)run({"prompts.max_prompt_tokens=1"}, "none"), Error);
}

TEST_F(ExperimentTest, ReportsWherePromptsWereTooLong) {
  const auto report = run({"sweep={prompts.max_prompt_tokens: [4, 100]}"});
  EXPECT_THAT(
      report.notes,
      testing::Contains(HasSubstr("1 prompt was left out as too long at max_prompt_tokens=4: ")));
  for (const auto& row : report.summary.rows) {
    if (row.category.empty()) {
      EXPECT_EQ(row.missing.not_run, row.sweep_point == "max_prompt_tokens=4" ? 1 : 0);
    }
  }
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
  EXPECT_THAT(report.notes,
              testing::Contains(HasSubstr("Only the first turn was run of 1 prompt with several")));
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

}  // namespace
}  // namespace specdec
