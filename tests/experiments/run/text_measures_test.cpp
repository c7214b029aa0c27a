#include "experiments/run/text_measures.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "experiments/report/report_text.h"
#include "experiments/run/experiment.h"
#include "experiments/run/run_folder.h"
#include "tests/experiments/run/run_fixture.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Plain decoding, a lossless strategy, and one that accepts nearly every token of its draft model.
class TextMeasuresTest : public RunFixture {
 protected:
  TextMeasuresTest() {
    folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9]}\n{\"tokens\": [2, 7, 11]}\n");
    folder_.write("c.yaml",
                  fmt::format("model: {{weights: {0}}}\n"
                              "prompts: {{file: p.jsonl}}\n"
                              "sampling: {{temperature: 1}}\n"
                              "max_new_tokens: 40\n"
                              "stop: {{ignore_eos: true}}\n"
                              "repeats: 4\n"
                              "strategies:\n"
                              "  - type: autoregressive\n"
                              "  - name: lookup\n"
                              "    type: speculative\n"
                              "    draft_length: 3\n"
                              "    drafter: {{type: prompt_lookup}}\n"
                              "  - name: loose\n"
                              "    type: speculative\n"
                              "    draft_length: 3\n"
                              "    drafter: {{type: draft_model, weights: {0}}}\n"
                              "    verifier: {{type: threshold, single: 0.001, acc: 0.01}}\n",
                              test_data("gemma3-a").string()));
  }
};

TEST_F(TextMeasuresTest, LossyTextsAreMeasuredAgainstTheTarget) {
  const auto report = run();
  const auto all = records();
  for (const auto& record : all) {
    EXPECT_EQ(record.log_prob.has_value(), record.key.strategy != "lookup") << "it is lossless";
    EXPECT_EQ(record.bias.has_value(), record.key.strategy == "loose");
    if (record.log_prob) {
      EXPECT_LT(*record.log_prob, 0.0);
    }
    if (record.bias) {
      EXPECT_EQ(record.bias->tokens, std::ssize(record.generation.tokens) - 1);
    }
  }
  const auto& rows = report.summary.rows;
  EXPECT_TRUE(rows.at(0).log_prob.has_value());
  EXPECT_EQ(rows.at(1).log_probs, std::nullopt);
  EXPECT_EQ(rows.at(2).strategy, "loose");
  EXPECT_EQ(rows.at(2).log_probs->questions, 2);
  EXPECT_EQ(rows.at(2).total_variation_bound, std::nullopt) << "too few tokens";
  EXPECT_THAT(reader_notes(report), testing::Contains(HasSubstr("too few questions")));
}

TEST_F(TextMeasuresTest, StepsReadWeightsAndContext) {
  const auto report = run({"model.kv_dtype=bfloat16"});
  const auto weights = load_model(test_data("gemma3-a"));
  EXPECT_GE(forward_bytes(*weights), weights->head.out() * weights->head.in() * 4);
  // Keys and values of 2 heads of 24 numbers of 2 bytes.
  constexpr double kPerToken = 2.0 * 2.0 * 24.0 * 2.0;
  for (const auto& record : records()) {
    if (record.key.strategy == "autoregressive") {
      // The first of 39 steps sees the prompt, the last one 38 tokens more. Two of the six layers
      // see all of them; the others have a window of 5 tokens, which the prompt of 5 fills, and
      // that of 3 after two steps: (3 + 4 + 37 * 5) / 39.
      const bool is_long = record.prompt_tokens == 5;
      const double all = is_long ? 24.0 : 22.0;
      const double windowed = is_long ? 5.0 : 192.0 / 39.0;
      EXPECT_NEAR(
          *record.bytes_per_step,
          static_cast<double>(forward_bytes(*weights)) + kPerToken * (2.0 * all + 4.0 * windowed),
          1e-6);
    }
    EXPECT_TRUE(record.copied_share.has_value());
  }
  for (const SummaryRow& row : report.summary.rows) {
    EXPECT_GT(*row.bytes_per_second, 0.0);
  }
}

TEST_F(TextMeasuresTest, MeasuringLossChangesNoText) {
  // A drafter that remembers earlier texts must not read one twice.
  const std::string drafter = "strategies.loose.drafter={type: recycling, persist: true}";
  (void)run({drafter}, "measured");
  const auto report = run({drafter, "quality.measure_loss=false"}, "not");
  EXPECT_EQ(tokens(records("measured")), tokens(records("not")));
  for (const auto& record : records("not")) {
    EXPECT_EQ(record.log_prob, std::nullopt);
    EXPECT_FALSE(record.bias.has_value());
  }
  EXPECT_THAT(reader_notes(report), testing::Contains(HasSubstr("does not measure")));
}

TEST_F(TextMeasuresTest, GreedyLossyTextsHaveNoTotalVariation) {
  const auto report = run({"sampling.temperature=0", "repeats=1"});
  EXPECT_TRUE(report.summary.rows.at(2).log_probs.has_value());
  EXPECT_EQ(report.summary.rows.at(2).total_variation_bound, std::nullopt);
}

/// Tests with prompts of text that a program scores.
class ScoredTextsTest : public TextMeasuresTest {
 protected:
  ScoredTextsTest() {
    const auto model = folder_.path() / "model";
    write_text_model(model);
    folder_.write(
        "t.jsonl",
        "{\"turns\": [\"a\", \"b\"], \"scorer\": \"program\", \"reference\": [\"yes\", null]}\n"
        "{\"prompt\": \"c\", \"scorer\": \"program\", \"reference\": \"no\"}\n");
    sets_ = {"model.weights=" + model.string(),
             "strategies.loose.drafter.weights=" + model.string(), "prompts.file=t.jsonl",
             "repeats=1"};
  }

  std::vector<std::string> with_scorer(const std::string& body) {
    const auto path = folder_.write("score.sh", "#!/bin/sh\n" + body + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    auto sets = sets_;
    sets.emplace_back("quality.scorer_program=score.sh");
    return sets;
  }

  std::vector<std::string> sets_;
};

TEST_F(ScoredTextsTest, AProgramOfTheConfigScoresThem) {
  const auto report = run(with_scorer("grep -q '\"prompt\":\"a\".*\"reference\":\"yes\"'"));
  std::map<std::string, std::optional<bool>> right;
  for (const auto& record : records()) {
    right[record.key.prompt_id] = record.is_right;
  }
  EXPECT_EQ(right.at("1/1"), true);
  EXPECT_EQ(right.at("1/2"), std::nullopt);
  EXPECT_EQ(right.at("2"), false);
  EXPECT_EQ(report.summary.rows.at(2).quality->questions, 2);
}

TEST_F(ScoredTextsTest, AFailingProgramEndsTheRunWhichCanGoOn) {
  auto sets = with_scorer("echo no compiler >&2; exit 2");
  EXPECT_THAT([&] { (void)run(sets); }, testing::ThrowsMessage<Error>(testing::AllOf(
                                            HasSubstr("on prompt '1'"), HasSubstr("no compiler"))));
  sets = with_scorer("exit 0");
  (void)run(sets);
  EXPECT_EQ(records().size(), 9U);
}

TEST_F(ScoredTextsTest, AnswersOnWhichAProgramTakesTooLongAreNotScored) {
  auto sets = with_scorer("grep -q '\"prompt\":\"c\"' && sleep 100; exit 0");
  sets.emplace_back("quality.scorer_seconds=0.5");
  const auto report = run(sets);
  for (const auto& record : records()) {
    EXPECT_EQ(is_unscored(record), record.key.prompt_id == "2") << record.key.prompt_id;
  }
  const auto& row = report.summary.rows.at(2);
  EXPECT_EQ(row.unscored, 1);
  EXPECT_EQ(row.right_share, 1.0) << "of those that were scored";
  EXPECT_EQ(row.quality->questions, 1);
  EXPECT_THAT(reader_notes(report),
              testing::Contains(
                  testing::AllOf(HasSubstr("not scored, because"), HasSubstr("1 of 3 by loose."))));
}

TEST_F(ScoredTextsTest, AChangedProgramScoresAllAnswersAgain) {
  (void)run(with_scorer("exit 0"));
  const auto before = records();
  EXPECT_EQ(run(with_scorer("exit 0")).summary.rows.at(0).right_share, 1.0);
  const auto report = run(with_scorer("exit 1"));
  EXPECT_EQ(report.summary.rows.at(0).right_share, 0.0);
  const auto after = records();
  EXPECT_EQ(tokens(after), tokens(before)) << "nothing is generated again";
  EXPECT_THAT(report.notes, testing::IsEmpty()) << "nor was anything measured again";
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].is_right.has_value(), before[i].is_right.has_value());
    EXPECT_EQ(after[i].generation.decode_seconds, before[i].generation.decode_seconds);
  }
  EXPECT_THAT([&] { (void)run(with_scorer("exit 3")); }, testing::Throws<Error>());
  EXPECT_EQ(run(with_scorer("exit 1")).summary.rows.at(0).right_share, 0.0)
      << "a failing one leaves all as it was";
}

TEST_F(ScoredTextsTest, OnlyTheConfigNamesPrograms) {
  const auto fails = [&](const std::vector<std::string>& sets, const std::string& message) {
    EXPECT_THAT([&] { (void)load_experiment(folder_.path() / "c.yaml", sets, components_); },
                testing::ThrowsMessage<ConfigError>(
                    testing::AllOf(HasSubstr("quality.scorer_program"), HasSubstr(message))));
  };
  fails(sets_, "prompt '1' is scored by a program, and only the config can name one");
  auto sets = sets_;
  sets.emplace_back("quality.scorer_program=missing.sh");
  fails(sets, "does not exist");
  sets.back() = "quality.scorer_program=t.jsonl";
  fails(sets, "is not executable");
}

TEST_F(TextMeasuresTest, TheMarginIsAKey) {
  const auto margin = [&](const std::string& value) {
    return load_experiment(folder_.path() / "c.yaml", {"quality.margin=" + value}, components_)
        .points[0]
        .config.quality.margin;
  };
  EXPECT_EQ(margin("0.02"), 0.02);
  EXPECT_THROW((void)margin("5"), ConfigError) << "a share, not points";
}

}  // namespace
}  // namespace specdec
