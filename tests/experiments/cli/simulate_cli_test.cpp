#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/cli/run_costs.h"
#include "experiments/metrics/run_records.h"
#include "experiments/metrics/trace_records.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSweptConfig =
    "sweep:\n  model.dtype: [float32, float64]\n  strategies.draft.draft_length: [1, 3]\n";

/// Thirty steps whose forwards take `verify` seconds, after drafts of a quarter a token.
GenerationRecord steady_record(const std::string& point, const std::string& strategy,
                               int64_t drafted, double verify) {
  GenerationRecord record;
  record.key = {.sweep_point = point, .strategy = strategy, .prompt_id = "p"};
  record.prompt_tokens = 16;
  record.generation.tokens.assign(31, 5);
  for (int i = 0; i < 30; ++i) {
    record.generation.steps.push_back({.drafted = drafted,
                                       .accepted = 0,
                                       .committed = 1,
                                       .depth = drafted,
                                       .draft_seconds = 0.25 * static_cast<double>(drafted),
                                       .verify_seconds = verify,
                                       .other_seconds = 0.0});
  }
  return record;
}

/// A run of two number formats, one four times as slow, and two draft lengths of a drafter that is
/// always right. As in a real run, plain decoding stands at the first point of each format, and so
/// does the format's curve.
class SweptRun {
 public:
  SweptRun() {
    std::string generations;
    std::string steps;
    std::string traces;
    auto curves = nlohmann::json::object();
    for (const auto& [dtype, seconds] : {std::pair{"float32", 1.0}, std::pair{"float64", 4.0}}) {
      for (const int64_t length : {1, 3}) {
        const auto point = fmt::format("dtype={}, draft_length={}", dtype, length);
        std::vector<GenerationRecord> records = {steady_record(point, "draft", length, seconds)};
        if (length == 1) {
          records.push_back(steady_record(point, "autoregressive", 0, seconds));
          for (const int64_t tokens : {1, 2, 4}) {
            curves["target at " + point].push_back(
                {{"new_tokens", tokens}, {"context", 16}, {"seconds", seconds}});
          }
        }
        for (const GenerationRecord& record : records) {
          const RecordLines lines = write_record_lines(record);
          generations += lines.generation;
          steps += lines.steps;
        }
        TraceRecord trace;
        trace.key = records.front().key;
        trace.verifier = "rejection";
        trace.prompt_tokens = 16;
        trace.trace = {.depth = 1, .width = 1};
        trace.trace.positions.assign(4, {1, {{.rank = 0, .p = 1.0, .overlap = 1.0}}});
        traces += write_trace_line(trace);
      }
    }
    folder.write("generations.jsonl", generations);
    folder.write("steps.jsonl", steps);
    folder.write("traces.jsonl", traces);
    folder.write("cost_curve.json", curves.dump());
    folder.write("config.yaml", kSweptConfig);
  }

  nlohmann::json simulated() const {
    const auto result = cli({"simulate", folder.path().string(), "--lengths", "1", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  TemporaryFolder folder;
};

TEST(SimulateCliTest, EachConditionHasTimesOfItsOwn) {
  const auto json = SweptRun().simulated();
  EXPECT_TRUE(json["not_simulated"].empty()) << json["not_simulated"];
  ASSERT_EQ(json["shapes"].size(), 4U);
  for (const auto& shape : json["shapes"]) {
    const std::string name = shape["strategy"];
    const double forward = name.find("float64") == std::string::npos ? 1.0 : 4.0;
    // Four tokens in two steps, each of one drafted token.
    EXPECT_NEAR(shape["plain_seconds"], 4.0 * forward, 1e-9) << name;
    EXPECT_NEAR(shape["speedup"], 4.0 * forward / (2.0 * (forward + 0.25)), 1e-9) << name;
  }
}

TEST(SimulateCliTest, AConfigThatDoesNotTellConditionsGivesNoSpeeds) {
  const SweptRun run;
  run.folder.write("config.yaml", "sweep: {model.dtype: [float32, float64]}\n");
  auto json = run.simulated();
  ASSERT_EQ(json["not_simulated"].size(), 4U);
  EXPECT_EQ(json["not_simulated"][0]["shape"], "speeds");
  EXPECT_THAT(std::string(json["not_simulated"][0]["reason"]),
              HasSubstr("its sweep has no point 'dtype=float32, draft_length=1'"));
  EXPECT_TRUE(json["shapes"][0]["speedup"].is_null());
  std::filesystem::remove(run.folder.path() / "config.yaml");
  json = run.simulated();
  EXPECT_THAT(std::string(json["not_simulated"][0]["reason"]), HasSubstr("config.yaml"));
}

TEST(SimulateCliTest, ADamagedFileIsAnErrorAndNotAReason) {
  for (const char* file : {"generations.jsonl", "steps.jsonl", "cost_curve.json"}) {
    const SweptRun run;
    run.folder.write(file, "{\"target\": [3], \"repeat\": 1.5}\n");
    const auto result = cli({"simulate", run.folder.path().string()});
    EXPECT_EQ(result.code, 2) << file;
    EXPECT_THAT(result.err, HasSubstr(file));
    EXPECT_EQ(result.out, "");
  }
}

TEST(SimulateCliTest, SaysWhichPlainDecodingSpeedupsReferTo) {
  const SweptRun run;
  const auto plain = run.simulated()["plain_decoding"];
  ASSERT_EQ(plain.size(), 4U);
  for (const auto& speed : plain) {
    EXPECT_GT(speed["tokens_per_second"], 0.0);
    EXPECT_TRUE(speed["measured_tokens_per_second"].is_null()) << "no record has a time";
  }
  const auto text = cli({"simulate", run.folder.path().string(), "--lengths", "1"}).out;
  EXPECT_THAT(text, HasSubstr("Speed-ups refer to plain decoding at 1.0 tokens/s (draft, "
                              "dtype=float32, draft_length=1)."));
}

TEST(PlainSpeedTest, ExplainsADifferenceOfMoreThanAFifth) {
  const PlainSpeed alike{
      .arm = "draft", .tokens_per_second = 110.0, .measured = 100.0, .load = "x"};
  EXPECT_EQ(plain_speed_text(alike),
            "Speed-ups refer to plain decoding at 110.0 tokens/s (draft); the run measured 100.0.");
  PlainSpeed far = alike;
  far.load = "the machine was busy: other processes. Its times are noisy.";
  for (const double measured : {80.0, 140.0}) {
    far.measured = measured;
    EXPECT_THAT(plain_speed_text(far),
                AllOf(HasSubstr("These differ, since costs are medians"),
                      HasSubstr("In the run the machine was busy: other processes.")));
  }
}

// The lookups on one prompt propose tokens, on the other none: what to do is said by prompt.
TEST(SimulateCliTest, ATreeOverRetrievedTokensIsNotToBeRecordedAgain) {
  const TemporaryFolder folder;
  folder.write("p.jsonl",
               "{\"id\": \"long\", \"tokens\": [2, 5, 9, 5, 9]}\n"
               "{\"id\": \"short\", \"tokens\": [2, 7, 11]}\n");
  const auto config = folder.write(
      "c.yaml", fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\n"
                            "max_new_tokens: 12\nstop: {{ignore_eos: true}}\n"
                            "trace: {{depth: 3, width: 2}}\nstrategies:\n"
                            "  - type: autoregressive\n"
                            "  - {{name: recycled, type: speculative, drafter: recycling,\n"
                            "     tree: {{type: static, widths: [2, 1]}}}}\n",
                            test_data("gemma3-a").string()));
  const auto run = (folder.path() / "run").string();
  ASSERT_EQ(cli({"run", config.string(), "--out", run, "--quiet"}).code, 0);
  const auto result = cli({"simulate", run, "--tree", "[[0],[1],[0,0]]"});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr("on prompt "), HasSubstr(" its drafter proposed tokens"),
                                Not(HasSubstr("record again"))));
}

}  // namespace
}  // namespace specdec
