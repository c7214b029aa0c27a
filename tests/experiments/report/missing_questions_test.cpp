#include "experiments/metrics/missing_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/conditions.h"
#include "experiments/report/report_tables.h"
#include "experiments/report/report_text.h"
#include "experiments/report/run_comparison.h"
#include "experiments/report/spec_bench.h"
#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

bool is_answer(const GenerationRecord& record, const std::string& strategy,
               const std::string& question) {
  return record.key.strategy == strategy && record.key.prompt_id == question;
}

/// Records of 12 questions, of which "fast" lacks three, plain one more, and one of fast's answers
/// is the prefill's token alone. Of a further question plain has two repeats, fast one.
std::vector<GenerationRecord> uneven_records() {
  auto records = sample_records({.strategies = {"plain", "fast"}});
  std::erase_if(records, [](const GenerationRecord& record) {
    return is_answer(record, "fast", "q0") || is_answer(record, "fast", "q1") ||
           is_answer(record, "fast", "q2") || is_answer(record, "plain", "q3");
  });
  for (GenerationRecord& record : records) {
    if (is_answer(record, "fast", "q4")) {
      record.generation.steps.clear();
      record.generation.tokens.resize(1);
      record.generation.decode_seconds = 0.0;
    }
  }
  auto again = *std::find_if(records.begin(), records.end(), [](const GenerationRecord& record) {
    return is_answer(record, "plain", "q5");
  });
  again.key.repeat = 1;
  records.push_back(again);
  return records;
}

Report uneven_report() {
  Report report = sample_report({.strategies = {"plain", "fast"}, .lossy = true});
  report.summary = summarize(uneven_records());
  report.summary.rows[1].counts.grammar_outputs = 1;
  report.summary.rows[1].right_share = report.summary.rows[0].right_share = 0.5;
  return report;
}

constexpr const char* kFast =
    "7 of 12: 3 not run, 1 not by the first strategy, 1 without decode "
    "steps, 1 in part";
constexpr const char* kPlain = "11 of 12: 1 not run";

TEST(MissingQuestionsTest, EveryReasonIsCounted) {
  const Summary summary = summarize(uneven_records());
  const SummaryRow& plain = summary.rows.at(0);
  EXPECT_EQ(plain.missing.not_run, 1);
  EXPECT_EQ(plain.missing.left_out(), 1);
  EXPECT_EQ(compared_questions(plain), 11);
  const SummaryRow& fast = summary.rows.at(1);
  EXPECT_EQ(fast.questions, 9);
  EXPECT_EQ(fast.missing.not_run, 3);
  EXPECT_EQ(fast.missing.not_by_first, 1);
  EXPECT_EQ(fast.missing.untimed, 1);
  EXPECT_EQ(fast.missing.in_part, 1);
  EXPECT_EQ(compared_questions(fast), 7);
  EXPECT_EQ(questions_text(plain), kPlain);
  EXPECT_EQ(questions_text(fast), kFast);
}

TEST(MissingQuestionsTest, RejectedSamplesAreAReasonOfTheirOwn) {
  auto records = uneven_records();
  for (GenerationRecord& record : records) {
    if (is_answer(record, "fast", "q4")) {
      record.generation.tokens.clear();
      record.generation.stop_reason = StopReason::kNoneAccepted;
      record.generation.prefill_seconds = 0.0;
      record.generation.decode_seconds = 2.5;
      record.generation.samples = 8;
    }
  }
  const SummaryRow fast = summarize(records).rows.at(1);
  EXPECT_EQ(fast.missing.untimed, 0);
  EXPECT_EQ(fast.missing.none_accepted, 1);
  EXPECT_EQ(questions_text(fast),
            "7 of 12: 3 not run, 1 not by the first strategy, 1 with no sample accepted (2.5 s), 1 "
            "in part");
  EXPECT_NEAR(fast.counts.discarded_seconds, 2.5, 1e-12);
  EXPECT_EQ(fast.end_to_end->questions, fast.speedup->questions);
}

TEST(MissingQuestionsTest, CategoriesCountTheirOwn) {
  for (const SummaryRow& row : summarize(uneven_records()).rows) {
    if (row.strategy == "fast" && row.category == "json") {  // q1, q3, q5, ...
      EXPECT_EQ(questions_text(row), "4 of 6: 1 not run, 1 not by the first strategy, 1 in part");
    }
  }
}

TEST(MissingQuestionsTest, ACompleteRunHasNumbersOnly) {
  const Report report = sample_report({});
  for (const SummaryRow& row : report.summary.rows) {
    EXPECT_EQ(questions_text(row), row.category.empty() ? "12" : "6");
  }
  EXPECT_THAT(reader_notes(report), Not(Contains(HasSubstr("same questions"))));
}

TEST(MissingQuestionsTest, EveryTableTellsThem) {
  const Report report = uneven_report();
  for (const ReportTable& table : report_tables(report)) {
    if (table.id == "positions" || table.id == "questions") {
      continue;  // by position or question
    }
    const auto column = std::find(table.header.begin(), table.header.end(), "questions");
    ASSERT_NE(column, table.header.end()) << table.id;
    if (table.header.front() != "category") {
      const auto at = static_cast<size_t>(column - table.header.begin());
      EXPECT_EQ(table.rows.front()[at], kPlain) << table.id;
      EXPECT_EQ(table.rows.back()[at], kFast) << table.id;
      EXPECT_THAT(table_csv(table), HasSubstr(kFast)) << table.id;
      EXPECT_THAT(table_latex(table), HasSubstr(kFast)) << table.id;
    }
  }
  std::ostringstream terminal;
  write_table(terminal, report);
  const std::string shown = terminal.str();
  EXPECT_THAT(shown, HasSubstr("Note: Not all have the same questions (plain 11 of 12"));
  const std::string table = shown.substr(0, shown.find("Note: "));
  EXPECT_THAT(table, AllOf(HasSubstr("  7 of 12  "), HasSubstr(" 11 of 12  "),
                           Not(HasSubstr("7 of 12: ")), Not(HasSubstr("not run"))));
  EXPECT_THAT(shown.substr(table.size()), HasSubstr(kFast)) << "the note has the reasons";
}

TEST(MissingQuestionsTest, DataFilesHaveTheCounts) {
  const Report report = uneven_report();
  std::ostringstream text;
  write_json(text, report);
  const auto json = nlohmann::json::parse(text.str());
  const auto& fast = json.at("rows").at(1);
  EXPECT_EQ(fast.at("questions"), 9);
  EXPECT_EQ(fast.at("speedup_questions"), 7);
  EXPECT_EQ(fast.at("missing_questions"), nlohmann::json({{"not_run", 3},
                                                          {"not_by_first", 1},
                                                          {"without_decode_steps", 1},
                                                          {"none_accepted", 0},
                                                          {"none_accepted_seconds", 0.0},
                                                          {"in_part", 1}}));
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(), AllOf(HasSubstr(",questions,questions_not_run,questions_not_by_first,"
                                         "questions_without_decode_steps,questions_in_part,"),
                               HasSubstr(",7,3,1,1,1,")));
}

TEST(MissingQuestionsTest, SpecBenchsTablesTellThem) {
  std::ostringstream out;
  write_spec_bench(out, {}, uneven_records());
  EXPECT_THAT(out.str(), AllOf(HasSubstr("## Questions"), HasSubstr(kFast)));
}

TEST(SpecBenchTest, TheSpeedupHoldsThePrefillAsItsTokensPerSecondDo) {
  const ReportSample sample = {.strategies = {"plain", "fast"}, .questions = 1};
  auto records = sample_records(sample);
  for (GenerationRecord& record : records) {
    record.category.clear();
    record.generation.prefill_seconds = 0.005;
  }
  std::ostringstream out;
  write_spec_bench(out, sample_report(sample), records);
  const std::string text = out.str();
  const auto table = [&](const std::string& title) {
    const size_t begin = text.find("## " + title + "\n");
    return text.substr(begin, text.find("\n## ", begin) - begin);
  };
  // 10 ms for 6 tokens, and 11.25 ms for 11; decoding alone 5 ms for 5, and 6.25 ms for 10.
  EXPECT_THAT(table("Tokens per second"),
              AllOf(HasSubstr("| plain | 600.0 |"), HasSubstr("| fast | 977.8 |")));
  EXPECT_THAT(table("Speed-up"),
              AllOf(HasSubstr("| plain | 1.00 |"), HasSubstr("| fast | 1.63 |")));
  EXPECT_THAT(table("Speed-up of decoding alone"),
              AllOf(HasSubstr("| plain | 1.00 |"), HasSubstr("| fast | 1.60 |")));
}

TEST(SpecBenchTest, LossyStrategiesAreCalledSo) {
  const ReportSample sample = {.strategies = {"plain", "fast"}};
  Report report = sample_report(sample);
  report.strategies[1].lossy = true;
  std::ostringstream out;
  write_spec_bench(out, report, sample_records(sample));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("| fast (lossy) |"), HasSubstr("| plain |"),
                               Not(HasSubstr("| fast |"))));
}

TEST(SpecBenchTest, SpeedUpsAreOverTheSameConditionOnly) {
  const ReportSample sample = {
      .strategies = {"plain", "fast"},
      .points = {{"t=0", {"0"}, "t=0"}, {"t=1", {"1"}, "t=1"}, {"t=1, k=2", {"1"}, "t=1"}},
      .sweep_keys = {"t"}};
  auto records = sample_records(sample);
  std::erase_if(records, [](const GenerationRecord& record) {
    return record.key.strategy == "plain" && record.key.sweep_point == "t=1, k=2";
  });
  for (GenerationRecord& record : records) {
    if (record.key.strategy == "plain" && record.key.sweep_point == "t=1") {
      record.generation.decode_seconds *= 10.0;
    }
  }
  const auto speedups = [&] {
    std::ostringstream out;
    write_spec_bench(out, sample_report(sample), records);
    const std::string text = out.str();
    const size_t table = text.find("## Speed-up\n");
    return text.substr(table, text.find("\n## ", table) - table);
  };
  EXPECT_THAT(speedups(), HasSubstr("| fast, t=1, k=2 | 14.67 | 14.67 | 14.67 |"));
  std::erase_if(records, [](const GenerationRecord& record) {
    return record.key.strategy == "plain" && record.key.sweep_point == "t=1";
  });
  EXPECT_THAT(speedups(), HasSubstr("| fast, t=1, k=2 | - | - | - |")) << "not over t=0";
}

TEST(MissingQuestionsTest, APivotTellsThemWhereStrategiesDiffer) {
  const ReportSample sample = {.strategies = {"plain", "fast"},
                               .points = {{"t=0", {"0"}, "t=0"}, {"t=1", {"1"}, "t=1"}},
                               .sweep_keys = {"t"}};
  auto records = sample_records(sample);
  std::erase_if(records, [](const GenerationRecord& record) {
    return record.key.sweep_point == "t=1" && is_answer(record, "fast", "q0");
  });
  Report report = sample_report(sample);
  report.summary = summarize(records);
  const auto rows = pivot_rows(report);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].back(), "12");
  EXPECT_EQ(rows[1].back(), "plain 12; fast 11 of 12: 1 not run");
}

TEST(MissingQuestionsTest, ComparedRunsTellThem) {
  const auto whole = sample_records({});
  auto interrupted = whole;
  interrupted.resize(10);  // of the first strategy alone
  const auto table = comparison_table(compare_runs({"a", whole}, {"b", interrupted}));
  const auto at = std::find(table.header.begin(), table.header.end(), "questions");
  ASSERT_NE(at, table.header.end());
  const auto column = static_cast<size_t>(at - table.header.begin());
  EXPECT_EQ(table.rows[0][column], "A 12, B 10, both 10");
  EXPECT_EQ(table.rows[1][column], "A 12, B 0, both 0");
  EXPECT_EQ(comparison_table(compare_runs({"a", whole}, {"b", whole})).rows[1][column], "12");
}

}  // namespace
}  // namespace specdec
