// Runs and generations with layers on disk: the tokens of the model in memory, and what was read.
#include "experiments/components/memory_limit.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/experiment_fixture.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Limit for gemma3-a with its six layers: embedding, norms, two buffers and a layer or two.
constexpr const char* kLimit = "700kB";

TEST(MemoryLimitTest, ParsesANumberAndAUnit) {
  EXPECT_EQ(parse_bytes("8GB"), 8'000'000'000);
  EXPECT_EQ(parse_bytes("0.5GB"), 500'000'000);
  EXPECT_EQ(parse_bytes("512MiB"), int64_t{512} << 20U);
  EXPECT_EQ(parse_bytes("1.5 GiB"), int64_t{3} << 29U);
  EXPECT_EQ(parse_bytes("700kB"), 700'000);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000);
  for (const char* text : {"", "8", "GB", "8 gigs", "-1GB", "0GB", "8GB!", "1e3MB", "nanGB", "8gb",
                           "99999999999TB", "8GBGB", "inf MB"}) {
    EXPECT_THAT(error_message<ConfigError>([&] { (void)parse_bytes(text); }),
                HasSubstr("such as 8GB, 0.5GB or 512MiB"))
        << text;
  }
}

class MemoryLimitRunTest : public ExperimentFixture {
 protected:
  std::string set_limit(const std::string& limit) const { return "model.memory_limit=" + limit; }
  std::string set_file() const {
    return "model.layer_file=" + (folder_.path() / "layers").string();
  }
  std::string config_error(const std::vector<std::string>& sets) {
    return error_message<ConfigError>([&] { (void)run(sets); });
  }
};

TEST_F(MemoryLimitRunTest, GivesTheSameTokensAndCountsWhatItRead) {
  (void)run({}, "whole");
  const Report report = run({set_limit(kLimit), set_file()}, "limited");
  EXPECT_EQ(tokens(records("whole")), tokens(records("limited")));
  for (const GenerationRecord& record : records("limited")) {
    const auto steps = static_cast<double>(record.generation.steps.size());
    EXPECT_GT(record.disk_bytes.value_or(0), 0);
    EXPECT_GE(record.disk_layers.value_or(0), 3 * steps);
    EXPECT_LE(record.disk_layers_ready.value_or(1e9), *record.disk_layers);
    EXPECT_GE(record.disk_wait_seconds.value_or(-1), 0);
  }
  EXPECT_EQ(records("whole").front().disk_bytes, std::nullopt);
  const auto& rows = report.summary.rows;
  ASSERT_GE(rows.size(), 2U);
  EXPECT_GT(rows[0].disk_bytes_per_token.value_or(0), rows[1].disk_bytes_per_token.value_or(1e9))
      << "speculation reads the layers for several tokens at once";
  EXPECT_LE(rows[0].disk_ready_share.value_or(2), 1);
  const auto summary =
      nlohmann::json::parse(read_file(folder_.path() / "limited" / "summary.json"));
  EXPECT_THAT(summary.dump(),
              AllOf(HasSubstr("disk_bytes_per_token"), HasSubstr("disk_wait_seconds")));
}

TEST_F(MemoryLimitRunTest, SaysWhatIsWrong) {
  EXPECT_THAT(config_error({set_limit("lots")}),
              AllOf(HasSubstr("memory_limit"), HasSubstr("such as 8GB")));
  EXPECT_THAT(config_error({set_file()}), AllOf(HasSubstr("layer_file"), HasSubstr("no limit")));
  EXPECT_THAT(config_error({set_limit("5kB"), set_file()}), HasSubstr("too small"));
  EXPECT_THAT(config_error({set_limit(kLimit), "model.device=mps"}), HasSubstr("memory_limit"));
}

TEST_F(MemoryLimitRunTest, ErrorsNameTheFlag) {
  const std::string model = test_data("gemma3-a").string();
  EXPECT_THAT(cli({"generate", model, "--tokens", "2", "--memory-limit", "5XB"}).err,
              HasSubstr("--memory-limit: '5XB' is no amount of memory"));
  EXPECT_THAT(cli({"generate", model, "--tokens", "2", "--layer-file", "x"}).err,
              HasSubstr("--layer-file: the layer file holds layers"));
}

TEST_F(MemoryLimitRunTest, GenerateTakesTheFlags) {
  const std::vector<std::string> plain = {"generate",         test_data("gemma3-a").string(),
                                          "--tokens",         "2,5,7,11",
                                          "--max-new-tokens", "6",
                                          "--ignore-eos"};
  std::vector<std::string> limited = plain;
  limited.insert(limited.end(),
                 {"--memory-limit", kLimit, "--layer-file", (folder_.path() / "layers").string()});
  const CliResult wanted = cli(plain);
  const CliResult found = cli(limited);
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, wanted.out);
  EXPECT_THAT(found.err, AllOf(HasSubstr("of 6 layers are read from disk"),
                               HasSubstr("MB of layers from disk a token")));
  limited.emplace_back("--json");
  const auto statistics = nlohmann::json::parse(cli(limited).out).at("statistics");
  EXPECT_GT(statistics.at("disk_bytes").get<int64_t>(), 0);
  EXPECT_GE(statistics.at("disk_layers").get<int64_t>(),
            statistics.at("disk_layers_ready").get<int64_t>());
}

TEST_F(MemoryLimitRunTest, TheCommandLineRefusesWhatItWouldNotKeep) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    const CliResult result = cli(arguments);
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  const std::string model = test_data("gemma3-a").string();
  EXPECT_THAT(refused({"generate", model, "--tokens", "2", "--memory-limit", "much"}),
              HasSubstr("such as 8GB"));
  EXPECT_THAT(refused({"generate", model, "--tokens", "2", "--layer-file", "x"}),
              HasSubstr("no limit"));
  EXPECT_THAT(refused({"profile", model, "--memory-limit", "8GB"}),
              HasSubstr("'profile' keeps all weights in memory"));
  EXPECT_THAT(refused({"train", "c.yaml", "--memory-limit", "8GB"}),
              HasSubstr("'train' keeps all weights in memory"));
}

TEST_F(MemoryLimitRunTest, AdaptersAreAppliedToLayersOnDisk) {
  const std::vector<std::string> plain = {
      "generate",    test_data("gemma3-a").string(),      "--tokens",         "2,5,7,11",
      "--adapter",   test_data("gemma3-lora-a").string(), "--max-new-tokens", "6",
      "--ignore-eos"};
  std::vector<std::string> limited = plain;
  limited.insert(limited.end(),
                 {"--memory-limit", kLimit, "--layer-file", (folder_.path() / "layers").string()});
  const CliResult found = cli(limited);
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, cli(plain).out);
}

}  // namespace
}  // namespace specdec
