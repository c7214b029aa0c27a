// Runs that are continued, finished already, or may not be continued.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/run/experiment.h"
#include "experiments/terminal/interrupt.h"
#include "tests/experiments/run/experiment_fixture.h"

namespace specdec {
namespace {

using testing::HasSubstr;

class ExperimentResumeTest : public ExperimentFixture {};

TEST_F(ExperimentResumeTest, ResumesWhereItStopped) {
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

TEST_F(ExperimentResumeTest, AResumedRunKeepsItsThreads) {
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

TEST_F(ExperimentResumeTest, AReportSaysWhereARunWasResumedElsewhere) {
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

TEST_F(ExperimentResumeTest, AFinishedRunStartedAgainChangesNothingAndLoadsNothing) {
  // Only the weights' headers of this copy are there the second time.
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

TEST_F(ExperimentResumeTest, AReportOfAnotherVersionIsMadeAnewWithoutTheModel) {
  const auto model = folder_.path() / "model";
  std::filesystem::copy(test_data("gemma3-a").string(), model);
  const std::vector<std::string> sets = {"model.weights=" + model.string(),
                                         "strategies.draft.drafter.weights=" + model.string(),
                                         "trace.depth=2"};
  (void)run(sets);
  const auto out = folder_.path() / "out";
  std::string weights = read_text_file(model / "model.safetensors", size_t{64} << 20U);
  std::fill(weights.end() - 4096, weights.end(), '\xff');
  folder_.write("model/model.safetensors", weights);
  const auto plan = load_experiment(folder_.path() / "c.yaml", sets, components_);
  const auto read = [&](const char* name) { return read_text_file(out / name, size_t{1} << 24U); };
  auto summary = nlohmann::json::parse(read("summary.json"));
  summary["rows"][1]["speedup"] = 1234.5;
  summary["notes"].push_back("draft is lossy: by figures of before");
  summary["run_notes"].push_back("resumed by hand");
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"summary.json", summary.dump()},
                                          {"summary.csv", "old\n"},
                                          {"spec_bench.md", "old\n"}}) {
    const std::string before = read(name.c_str());
    const std::string page = read("report.html");
    folder_.write("out/" + name, text);
    log_.str("");
    const auto report = run_experiment(plan, {.out = out, .quiet = false, .command = "x"}, log_);
    EXPECT_THAT(log_.str(), HasSubstr("of another version of specdec, and is made anew")) << name;
    EXPECT_THAT(log_.str(), testing::Not(HasSubstr("loading")));
    const auto rows = [](const std::string& json) { return nlohmann::json::parse(json)["rows"]; };
    EXPECT_EQ(rows(read("summary.json")).dump().find("1234.5"), std::string::npos);
    if (name != "summary.json") {
      EXPECT_EQ(read(name.c_str()), before);
    }
    EXPECT_GE(read("report.html").size(), page.size()) << "with all details";
    EXPECT_THAT(report.notes, testing::Not(testing::Contains(HasSubstr("of before"))));
    if (name == "summary.json") {
      EXPECT_THAT(report.notes, testing::Contains("resumed by hand")) << "of the run itself";
    }
  }
  log_.str("");
  (void)run_experiment(plan, {.out = out, .quiet = false, .command = "x"}, log_);
  EXPECT_THAT(log_.str(), HasSubstr("nothing is run or changed"));
}

TEST_F(ExperimentResumeTest, ARunThatLacksAnythingIsNotFinished) {
  const std::vector<std::string> sets = {"trace.depth=2", "repeats=1"};
  for (const char* lost : {"summary.json", "report.html", "traces.jsonl", "steps.jsonl"}) {
    (void)run(sets);
    ASSERT_TRUE(std::filesystem::remove(folder_.path() / "out" / lost));
    (void)run(sets);
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "out" / lost)) << lost;
  }
}

TEST_F(ExperimentResumeTest, AnotherConfigNeedsAnotherFolder) {
  (void)run();
  EXPECT_THROW((void)run({"seed=2"}), Error);
  folder_.write("p.jsonl", "{\"tokens\": [2, 5]}\n{\"tokens\": [2, 6]}\n");
  EXPECT_THROW((void)run(), Error);
}

TEST_F(ExperimentResumeTest, OtherWeightsNeedAnotherFolder) {
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

TEST_F(ExperimentResumeTest, TracesAreResumed) {
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

/// Decodes until the interrupt that it raises itself.
TEST_F(ExperimentResumeTest, AnInterruptKeepsWhatIsFinished) {
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

}  // namespace
}  // namespace specdec
