#include "experiments/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "tests/experiments/run/folder_record.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr const char* kConfigText = "name: test\nseed: 1\n";

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "run_folder.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    base_ = name;
    folder_ = base_ / "runs" / "one";
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string text(const char* name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void overwrite(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string refusal(const fs::path& path, const char* config, int64_t bytes = 0) const {
    try {
      const RunFolder folder(path, config, bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path base_;
  fs::path folder_;
};

TEST_F(RunFolderTest, FoldersOfSomethingElseAreLeftAsTheyAre) {
  fs::create_directories(folder_);
  EXPECT_EQ(refusal(folder_, kConfigText), "accepted") << "an empty folder is a new run's";
  const fs::path other = base_ / "photos";
  fs::create_directories(other);
  std::ofstream(other / "cat.jpg") << "cat";
  EXPECT_THAT(refusal(other, kConfigText),
              AllOf(HasSubstr("photos: this folder holds other files ('cat.jpg') and no run"),
                    HasSubstr("--out")));
  EXPECT_EQ(std::distance(fs::directory_iterator(other), fs::directory_iterator()), 1);
}

TEST_F(RunFolderTest, RecordsComeBackExactly) {
  {
    RunFolder folder(folder_, kConfigText);
    EXPECT_FALSE(folder.resumed());
    folder.append(folder_record("a"));
    folder.append(folder_record("b", 0));
    EXPECT_TRUE(folder.holds(folder_record("a").key));
    EXPECT_FALSE(folder.holds(folder_record("c").key));
  }
  const RunFolder again(folder_, kConfigText);
  EXPECT_TRUE(again.resumed());
  EXPECT_EQ(again.dropped(), 0);
  ASSERT_THAT(again.records(), SizeIs(2));
  expect_equal(again.records()[0], folder_record("a"));
  expect_equal(again.records()[1], folder_record("b", 0));
  EXPECT_TRUE(again.holds(folder_record("b").key));
  const auto loaded = load_records(folder_);
  ASSERT_THAT(loaded, SizeIs(2));
  expect_equal(loaded[1], folder_record("b", 0));
}

TEST_F(RunFolderTest, LoadsComeBackExactly) {
  auto record = folder_record("a");
  record.load = {.seconds = 1.0 / 3.0,
                 .average = 0.7,
                 .stolen_seconds = 0.01,
                 .others_seconds = -0.02,
                 .waited_seconds = 1e-9,
                 .preemptions = 12,
                 .back_offs = 3};
  record.is_right = false;
  record.is_valid = true;
  record.scorer = "0123456789abcdef";
  record.log_prob = -100.0 / 3.0;
  record.bias = BiasSums{
      .tokens = 12, .taken = 5, .expected = 1.0 / 3.0, .variance = 1e-9, .squares = 2.0 / 7.0};
  auto partly = folder_record("b");
  partly.load = {.seconds = 0.5, .average = 2.0};  // a system that tells no more
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(record);
    folder.append(partly);
  }
  const auto loaded = load_records(folder_);
  ASSERT_THAT(loaded, SizeIs(2));
  expect_equal(loaded[0], record);
  expect_equal(loaded[1], partly);
}

TEST_F(RunFolderTest, ReplacedGenerationsKeepTheirPlaceAndSteps) {
  auto changed = folder_record("a");
  changed.is_right = true;
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
    folder.append(folder_record("b"));
    folder.replace({changed});
    expect_equal(folder.records()[0], changed);
    folder.append(folder_record("c"));
  }
  const auto loaded = load_records(folder_);
  ASSERT_THAT(loaded, SizeIs(3));
  expect_equal(loaded[0], changed);
  expect_equal(loaded[1], folder_record("b"));
  expect_equal(loaded[2], folder_record("c"));
}

TEST_F(RunFolderTest, ALoadThatIsNoneIsRefusedWithItsLine) {
  {
    RunFolder folder(folder_, kConfigText);
    auto record = folder_record("a");
    record.load = {.seconds = 0.5, .average = 2.0};
    folder.append(record);
  }
  std::string text = this->text("generations.jsonl");
  text.replace(text.find("\"seconds\":0.5"), 13, "\"second\":0.05");
  overwrite("generations.jsonl", text);
  EXPECT_THAT(refusal(folder_, kConfigText),
              AllOf(HasSubstr("generations.jsonl:1"), HasSubstr("seconds")));
}

TEST_F(RunFolderTest, BrokenUtf8InTextIsReplaced) {
  GenerationRecord broken = folder_record("a");
  broken.text = "a\xff";
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(broken);
  }
  EXPECT_EQ(load_records(folder_).at(0).text, "a\xef\xbf\xbd");
}

TEST_F(RunFolderTest, NameThatIsNotUtf8IsAnError) {
  RunFolder folder(folder_, kConfigText);
  EXPECT_THROW(folder.append(folder_record("a\xff")), Error);
  EXPECT_EQ(text("steps.jsonl"), "");
}

TEST_F(RunFolderTest, EveryCutOfTheFilesResumesWithoutLossOrDoubling) {
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
    folder.append(folder_record("b"));
  }
  const std::string generations = text("generations.jsonl");
  const std::string steps = text("steps.jsonl");
  const size_t first_generation = generations.find('\n') + 1;
  // What a kill leaves: steps up to some byte without their generation, or all steps and the
  // generation up to some byte.
  const size_t first_steps = steps.size() / 2;
  ASSERT_EQ(steps[first_steps - 1], '\n');
  for (size_t cut = first_steps; cut <= steps.size() + generations.size() - first_generation;
       cut += 31) {
    overwrite("steps.jsonl", steps.substr(0, cut));
    overwrite(
        "generations.jsonl",
        generations.substr(0, first_generation + (cut > steps.size() ? cut - steps.size() : 0)));
    {
      RunFolder folder(folder_, kConfigText);
      ASSERT_THAT(folder.records(), SizeIs(1)) << "cut at " << cut;
      ASSERT_FALSE(folder.holds(folder_record("b").key));
      folder.append(folder_record("b"));
    }
    ASSERT_EQ(text("generations.jsonl"), generations) << "cut at " << cut;
    ASSERT_EQ(text("steps.jsonl"), steps) << "cut at " << cut;
  }
}

TEST_F(RunFolderTest, TornLineIsCountedAsDropped) {
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
    folder.append(folder_record("b"));
  }
  const std::string generations = text("generations.jsonl");
  overwrite("generations.jsonl", generations.substr(0, generations.size() - 10));
  const RunFolder folder(folder_, kConfigText);
  EXPECT_EQ(folder.dropped(), 1);
  EXPECT_THAT(folder.records(), SizeIs(1));
}

TEST_F(RunFolderTest, GenerationWithoutAllItsStepsIsDropped) {
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
    folder.append(folder_record("b"));
  }
  // A power cut can lose the end of one file and keep that of the other.
  const std::string steps = text("steps.jsonl");
  overwrite("steps.jsonl", steps.substr(0, steps.size() - 5));
  const RunFolder folder(folder_, kConfigText);
  EXPECT_EQ(folder.dropped(), 1);
  ASSERT_THAT(folder.records(), SizeIs(1));
  EXPECT_EQ(folder.records()[0].key.prompt_id, "a");
}

TEST_F(RunFolderTest, DamageBeforeTheEndIsAnErrorWithItsLine) {
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
    folder.append(folder_record("b"));
  }
  const std::string generations = text("generations.jsonl");
  overwrite("generations.jsonl", "{broken\n" + generations);
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("generations.jsonl:1: is not a record"));
  overwrite("generations.jsonl", generations + generations);
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("generations.jsonl:3: prompt 'a'"));
  overwrite("generations.jsonl", "{\"turn\": 0, " + generations.substr(1));
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("generations.jsonl:1: is not a record"));
  overwrite("generations.jsonl", "{\"strategy\": 3}\n");
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("generations.jsonl:1: is not a record"));
}

/// Its line feed is there, so no crash tore it.
TEST_F(RunFolderTest, ABrokenWholeLastLineIsAnError) {
  {
    RunFolder folder(folder_, kConfigText);
    folder.append(folder_record("a"));
  }
  for (const char* file : {"generations.jsonl", "steps.jsonl"}) {
    const std::string whole = text(file);
    const int64_t last = std::count(whole.begin(), whole.end(), '\n') + 1;
    const std::string doubled = R"({"turn": 0, "turn": 0})";
    for (const std::string& line : {doubled, std::string("{"), std::string()}) {
      overwrite(file, whole + line + "\n");
      EXPECT_THAT(refusal(folder_, kConfigText),
                  HasSubstr(std::string(file) + ":" + std::to_string(last) + ": is not a record"))
          << line;
    }
    for (const std::string& torn : {doubled, "{" + std::string(9, '\0') + "\n"}) {
      overwrite(file, whole + torn);
      EXPECT_EQ(refusal(folder_, kConfigText), "accepted") << "no line feed, or a page of zeros";
      EXPECT_EQ(text(file), whole);
    }
  }
}

TEST_F(RunFolderTest, FullDiskIsAnErrorAndTheFolderResumes) {
  RunFolder folder(folder_, kConfigText);
  folder.append(folder_record("a"));
  const auto written = fs::file_size(folder_ / "steps.jsonl");
  // A limit on the size of files stands for the full disk: the next lines fit in part.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = written + 50;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string message;
  try {
    folder.append(folder_record("b"));
  } catch (const Error& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, HasSubstr("All earlier ones are kept"));
  EXPECT_EQ(fs::file_size(folder_ / "steps.jsonl"), written);
  EXPECT_FALSE(folder.holds(folder_record("b").key));
  folder.append(folder_record("b"));
  EXPECT_THAT(load_records(folder_), SizeIs(2));
}

TEST_F(RunFolderTest, SameGenerationTwiceIsABug) {
  RunFolder folder(folder_, kConfigText);
  folder.append(folder_record("a"));
  EXPECT_THROW(folder.append(folder_record("a")), InternalError);
}

TEST_F(RunFolderTest, AnotherConfigIsRefusedWithItsLine) {
  { const RunFolder folder(folder_, kConfigText); }
  const std::string message = refusal(folder_, "name: test\nseed: 2\n");
  EXPECT_THAT(message, HasSubstr("line 2: 'seed: 1' there, 'seed: 2' now"));
  EXPECT_THAT(refusal(folder_, "name: test\n"), HasSubstr("line 2: 'seed: 1' there, '' now"));
  EXPECT_EQ(text("config.yaml"), kConfigText);
}

TEST_F(RunFolderTest, RecordsWithoutConfigAreRefused) {
  { const RunFolder folder(folder_, kConfigText); }
  fs::remove(folder_ / "config.yaml");
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("holds records but no config.yaml"));
}

TEST_F(RunFolderTest, FolderThatCannotBeMadeIsRefused) {
  std::ofstream(base_ / "file") << "x";
  EXPECT_THAT(refusal(base_ / "file", kConfigText), HasSubstr("cannot make this folder"));
  EXPECT_THAT(refusal(base_ / "file" / "below", kConfigText), HasSubstr("--out"));
}

TEST_F(RunFolderTest, FolderThatCannotBeWrittenIsRefused) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write everywhere";
  }
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("cannot write in this folder"));
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(RunFolderTest, TooLittleSpaceIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THAT(refusal(folder_, kConfigText, std::numeric_limits<int64_t>::max()),
              HasSubstr("are free on this disk"));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(RunFolderTest, SecondWriterIsRefused) {
  const RunFolder folder(folder_, kConfigText);
  EXPECT_THAT(refusal(folder_, kConfigText), HasSubstr("another process is writing"));
}

TEST_F(RunFolderTest, LeavesNoOtherFiles) {
  { const RunFolder folder(folder_, kConfigText); }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("config.yaml", "generations.jsonl", "steps.jsonl"));
}

TEST_F(RunFolderTest, CostCurveIsFrozen) {
  {
    RunFolder folder(folder_, kConfigText);
    EXPECT_EQ(folder.read_cost_curve("target"), std::nullopt);
    folder.write_cost_curve("target", {.points = {{1, 16, 0.1 + 0.2}, {4, 16, 1.0 / 3.0}}});
    folder.write_cost_curve("draft", {.points = {{1, 16, 1e-5}}});
  }
  RunFolder folder(folder_, kConfigText);
  const auto curve = folder.read_cost_curve("target");
  ASSERT_TRUE(curve.has_value());
  ASSERT_THAT(curve->points, SizeIs(2));
  EXPECT_EQ(curve->points[0].seconds, 0.1 + 0.2);
  EXPECT_EQ(curve->points[1].new_tokens, 4);
  EXPECT_EQ(folder.read_cost_curve("draft")->points[0].context, 16);
  EXPECT_THROW(folder.write_cost_curve("target", {.points = {{1, 16, 1.0}}}), InternalError);
  EXPECT_THROW(folder.write_cost_curve("empty", {}), InternalError);
  overwrite("cost_curve.json", "{\"target\": []}");
  EXPECT_EQ(folder.read_cost_curve("target"), std::nullopt) << "nothing can be told from it";
  folder.write_cost_curve("target", {.points = {{1, 8, 1.0}}});
  EXPECT_EQ(folder.read_cost_curve("target")->points[0].context, 8);
  overwrite("cost_curve.json", "{\"target\": [3]}");
  EXPECT_THROW(folder.read_cost_curve("target"), Error);
  for (const char* seconds : {"-1", "0"}) {
    overwrite("cost_curve.json",
              std::string("{\"target\": [{\"new_tokens\": 2, \"context\": 16, \"seconds\": ") +
                  seconds + "}]}");
    EXPECT_THAT(
        [&] { (void)folder.read_cost_curve("target"); },
        testing::ThrowsMessage<Error>(AllOf(HasSubstr("cost_curve.json: a forward of 2 tokens"),
                                            HasSubstr("was it edited?"))));
  }
}

TEST_F(RunFolderTest, ResumingElsewhereIsNotedAndKept) {
  Environment environment = read_environment();
  environment.weights["target"] = "abc";
  {
    RunFolder folder(folder_, kConfigText);
    folder.write_environment(environment);
    environment.cpu = "the one that measures";
    folder.write_environment(environment);
    EXPECT_THAT(folder.environment_changes(), SizeIs(0)) << "nothing was measured on the first";
    EXPECT_FALSE(folder.was_resumed());
    folder.append(folder_record("a"));
  }
  RunFolder folder(folder_, kConfigText);
  environment.cpu = "another";
  folder.write_environment(environment);
  EXPECT_THAT(folder.environment_changes(),
              ElementsAre("cpu: the one that measures, then another"));
  EXPECT_EQ(folder.recorded_environment()->cpu, "another");
  EXPECT_TRUE(folder.was_resumed());
}

TEST_F(RunFolderTest, ChangedWeightsAreRefused) {
  Environment environment = read_environment();
  environment.weights["target"] = "abc";
  RunFolder folder(folder_, kConfigText);
  EXPECT_NO_THROW(folder.check_weights({{"target", "abd"}})) << "nothing is recorded yet";
  folder.write_environment(environment);
  EXPECT_NO_THROW(folder.check_weights({{"target", "abc"}, {"draft", "1"}}));
  EXPECT_THROW(folder.check_weights({{"target", "abe"}}), Error);
}

TEST_F(RunFolderTest, LoadingSomethingElseIsAnError) { EXPECT_THROW(load_records(base_), Error); }

}  // namespace
}  // namespace specdec
