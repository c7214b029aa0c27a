#include "experiments/run/record_order.h"

#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/config/config_file.h"
#include "experiments/run/import_counts.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/experiment_fixture.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A run whose first prompt is too long: on the second one the second strategy goes first.
class RecordOrderTest : public ExperimentFixture {
 protected:
  const std::vector<std::string> sets_ = {"prompts.max_prompt_tokens=4"};

  std::string read(const std::string& name) const {
    return read_text_file(folder_.path() / "out" / name, 1 << 24);
  }
  /// Leaves only the lines of a file that `stays` wants.
  void keep_lines(const std::string& name,
                  const std::function<bool(const std::string& line)>& stays) const {
    std::istringstream text(read(name));
    std::ofstream file(folder_.path() / "out" / name);
    for (std::string line; std::getline(text, line);) {
      if (stays(line)) {
        file << line << "\n";
      }
    }
  }
};

std::vector<std::string> strategies_of(const Report& report) {
  std::vector<std::string> names;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty()) {
      names.push_back(row.strategy);
      EXPECT_EQ(row.is_first, row.strategy == "autoregressive");
    }
  }
  return names;
}

std::vector<std::string> strategies_of(const std::vector<GenerationRecord>& records) {
  std::vector<std::string> names;
  for (const GenerationRecord& record : records) {
    if (names.empty() || names.back() != record.key.strategy) {
      names.push_back(record.key.strategy);
    }
  }
  return names;
}

TEST_F(RecordOrderTest, TheConfigsFirstStrategyIsTheReferenceWhereTheFirstPromptIsLeftOut) {
  const auto report = run(sets_);
  ASSERT_EQ(records().front().key.strategy, "lookup") << "another one goes first";
  EXPECT_THAT(strategies_of(report), ElementsAre("autoregressive", "lookup", "draft"));
  EXPECT_THAT(strategies_of(run(sets_)), ElementsAre("autoregressive", "lookup", "draft"))
      << "the table of the finished run";
  const std::string csv = read("summary.csv");
  EXPECT_LT(csv.find("autoregressive"), csv.find("lookup"));
  EXPECT_THAT(read("tables/results.csv"), HasSubstr("\nautoregressive,1,1,"));
  const std::string spec_bench = read("spec_bench.md");
  EXPECT_LT(spec_bench.find("autoregressive"), spec_bench.find("lookup"));
  EXPECT_THAT(strategies_of(load_ordered_records(folder_.path() / "out")),
              ElementsAre("autoregressive", "lookup", "draft"));
}

TEST_F(RecordOrderTest, ComparisonsAndImportsFollowTheConfig) {
  (void)run(sets_);
  const std::string out = (folder_.path() / "out").string();
  const auto compared = cli({"compare", out, out, "--json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  const auto arms = nlohmann::json::parse(compared.out).at("arms");
  EXPECT_EQ(arms.at(0).at("name"), "autoregressive");
  EXPECT_EQ(import_counts(out).front().source, "autoregressive");
}

// It has records at one point only, which need not be the point of the first record.
TEST_F(RecordOrderTest, AStrategyThatNoSweptKeyTouchesStaysTheReference) {
  (void)run({"sweep={strategies.lookup.draft_length: [2, 4]}"});
  std::string first, others;
  std::istringstream text(read("generations.jsonl"));
  for (std::string line; std::getline(text, line);) {
    (line.find("draft_length=4") == std::string::npos ? others : first) += line + "\n";
  }
  ASSERT_NE(first, "");
  folder_.write("out/generations.jsonl", first + others);  // as where prompts were left out
  EXPECT_EQ(load_ordered_records(folder_.path() / "out").front().key.strategy, "autoregressive");
}

TEST_F(RecordOrderTest, AResumedRunWithoutItsFirstRecordKeepsTheReference) {
  (void)run();
  for (const char* file : {"generations.jsonl", "steps.jsonl"}) {
    keep_lines(file, [](const std::string& line) {
      return line.find("\"strategy\":\"autoregressive\"") == std::string::npos;
    });
  }
  std::filesystem::remove(folder_.path() / "out/summary.json");
  EXPECT_THAT(strategies_of(run()), ElementsAre("autoregressive", "lookup", "draft"));
  EXPECT_EQ(records().front().key.strategy, "lookup");
}

TEST_F(RecordOrderTest, TheFirstPointOfASweepComesFirstWhereItLeavesPromptsOut) {
  const auto report = run({"sweep={prompts.max_prompt_tokens: [4, 100]}"});
  ASSERT_EQ(records().front().key.sweep_point, "max_prompt_tokens=100");
  EXPECT_EQ(report.summary.rows.front().sweep_point, "max_prompt_tokens=4");
  EXPECT_EQ(report.summary.rows.front().strategy, "autoregressive");
}

TEST_F(RecordOrderTest, AFolderWithoutAConfigKeepsItsOrder) {
  (void)run(sets_);
  for (const char* text : {"strategies: [", "strategies: [3]", "strategies: {a: b}"}) {
    folder_.write("out/config.yaml", text);
    EXPECT_THAT(strategies_of(load_ordered_records(folder_.path() / "out")).front(), "lookup")
        << text;
  }
  std::filesystem::remove(folder_.path() / "out/config.yaml");
  EXPECT_THAT(strategies_of(load_ordered_records(folder_.path() / "out")).front(), "lookup");
}

}  // namespace
}  // namespace specdec
