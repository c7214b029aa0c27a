// What the commands say of a key/value cache: its room, its tiers, and where it is for nothing.
#include <ATen/Context.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const std::string kSmallCache = "{type: paged, page_size: 4, max_pages: 2}";

/// Four tokens, and so many new ones.
CliResult generated(const std::string& tokens, const Words& more,
                    const Components& components = builtin_components()) {
  Words words = {"generate",     test_data("gemma3-a").string(),
                 "--tokens",     "2,5,7,11",
                 "--ignore-eos", "--max-new-tokens",
                 tokens};
  words.insert(words.end(), more.begin(), more.end());
  return cli(words, components);
}

std::string refused(const Words& words) {
  const CliResult result = cli(words);
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_EQ(result.out, "");
  return result.err;
}

TEST(CacheCliTest, ATextThatCannotFitIsRefusedBeforeItsFirstToken) {
  EXPECT_EQ(generated("5", {"--cache", kSmallCache}).code, 0) << "the last token needs no slot";
  const CliResult result = generated("6", {"--cache", kSmallCache});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("--cache: holds 8 tokens of a row, and the prompt with "
                                    "max_new_tokens takes 9 (4 + 5)"));
  const CliResult drafts = generated(
      "12", {"--strategy",
             fmt::format("{{type: speculative, drafter: {{type: draft_model, weights: {}, cache: "
                         "{{type: paged, page_size: 4, max_pages: 2}}}}}}",
                         test_data("gemma3-a").string())});
  EXPECT_EQ(drafts.code, 2);
  EXPECT_EQ(drafts.out, "");
  EXPECT_THAT(drafts.err, HasSubstr("--strategy: drafter.cache: holds 8 tokens"));
}

TEST(CacheCliTest, AResumedTextCountsWhole) {
  const TemporaryFolder folder;
  const std::string state = (folder.path() / "a.state").string();
  ASSERT_EQ(generated("3", {"--cache", kSmallCache, "--save-state", state}).code, 0);
  const auto resumed = [&](const std::string& tokens) {
    return cli({"generate", test_data("gemma3-a").string(), "--ignore-eos", "--resume", state,
                "--cache", kSmallCache, "--max-new-tokens", tokens});
  };
  EXPECT_THAT(resumed("3").err, HasSubstr("takes 9 (7 + 2)"));
  EXPECT_EQ(resumed("2").code, 0);
}

/// Fails in the third step.
class FailingDrafter final : public Drafter {
 public:
  Draft propose(const DraftContext& context) override {
    if (++steps_ == 3) {
      throw Error("no more");
    }
    return Draft::root(context.committed.back());
  }

 private:
  int steps_ = 0;
};

Components with_failing_drafter() {
  Components components = builtin_components();
  components.drafters.add("failing", {.help = "fails",
                                      .promise = Promise::kLossless,
                                      .prepare = [](const ConfigNode&, const RunPlan&) {
                                        return [](BuildContext&) {
                                          return std::make_unique<FailingDrafter>();
                                        };
                                      }});
  return components;
}

TEST(CacheCliTest, AnErrorInTheMidstOfATextBeginsALine) {
  const CliResult result = generated(
      "9", {"--strategy", "{type: speculative, drafter: {type: failing}}"}, with_failing_drafter());
  EXPECT_EQ(result.code, 2);
  ASSERT_GT(result.out.size(), 1U);
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_NE(result.out[result.out.size() - 2], '\n');
  EXPECT_EQ(result.err, "error: no more\n");
}

TEST(CacheCliTest, GenerateSaysHowTiersWork) {
  const Words tiered = {"--cache", "{type: tiered, memory_megabytes: 1, megabytes: 2}"};
  EXPECT_THAT(
      generated("4", tiered).err,
      AllOf(HasSubstr("; cache: "), HasSubstr(" blocks came back and "), HasSubstr("waited 0.0")));
  EXPECT_THAT(generated("4", {}).err, Not(HasSubstr("cache")));
  Words as_json = tiered;
  as_json.emplace_back("--json");
  const auto statistics = nlohmann::json::parse(generated("4", as_json).out).at("statistics");
  EXPECT_GT(statistics.at("cache_pages").get<int64_t>(), 0);
  EXPECT_GT(statistics.at("cache_bytes").get<int64_t>(), 0);
  const auto& tiers = statistics.at("cache_tiers");
  EXPECT_GT(tiers.at("accesses").get<int64_t>(), 0);
  EXPECT_GE(tiers.at("memory_bytes").get<int64_t>(), statistics.at("cache_bytes").get<int64_t>());
  EXPECT_FALSE(nlohmann::json::parse(generated("4", {"--json"}).out)
                   .at("statistics")
                   .contains("cache_tiers"));
}

TEST(CacheCliTest, ALossyCacheIsNamedByWhatWasGiven) {
  EXPECT_THAT(generated("2", {"--cache", "{type: paged, format: q8, lossy: true}"}).err,
              HasSubstr("the cache is lossy ({type: paged, format: q8, lossy: true}):"));
}

TEST(CacheCliTest, NoCacheAndACacheAreRefused) {
  EXPECT_THAT(generated("2", {"--no-cache", "--cache", "contiguous"}).err,
              HasSubstr("leave one of them out"));
}

TEST(CacheCliTest, CommandsRefuseWhatTheyIgnore) {
  const Words cache = {"--cache", "pagd"};
  const std::string model = test_data("gemma3-a").string();
  for (const Words& command : {Words{"list"}, Words{"tokenize", model, "--text", "a"},
                               Words{"compare", "a", "b"}, Words{"convert", model, "x.gguf"},
                               Words{"inspect", SPECDEC_SOURCE_DIR "/models/heads/eagle"}}) {
    for (const Words& flag : {cache, Words{"--kv-dtype", "bfloat16"}}) {
      Words words = command;
      words.insert(words.end(), flag.begin(), flag.end());
      EXPECT_THAT(refused(words), AllOf(HasSubstr(flag[0] + ": "), HasSubstr("leave it out")))
          << command[0];
    }
  }
  EXPECT_FALSE(std::filesystem::exists("x.gguf"));
}

TEST(CacheCliTest, TheNameOfAComponentIsNoFileOfAList) {
  EXPECT_THAT(refused({"list", "--json", "cache"}),
              HasSubstr("give 'specdec list cache --json', or ./cache for such a file"));
  EXPECT_THAT(refused({"list", "--json", "paged"}), HasSubstr("list paged --json"));
  EXPECT_FALSE(std::filesystem::exists("cache"));
  EXPECT_EQ(cli({"list", "cache", "--json"}).code, 0);
}

TEST(CacheCliTest, ALayerFileNeedsItsFolder) {
  const auto with = [](const std::string& file) {
    return refused({"generate", test_data("gemma3-a").string(), "--tokens", "2", "--memory-limit",
                    "700kB", "--layer-file", file});
  };
  EXPECT_THAT(with("/no/such/l.layers"),
              HasSubstr("--layer-file: /no/such/l.layers lies in no folder that is there"));
  EXPECT_THAT(with("/dev/full"), HasSubstr("--layer-file: /dev/full is a device"));
}

TEST(CacheCliTest, InspectCountsTheMemoryOfAGpuWithoutOne) {
  const std::string model = test_data("gemma3-a").string();
  const CliResult counted = cli({"inspect", model, "--device", "cuda", "--context", "40"});
  EXPECT_EQ(counted.code, 0) << counted.err;
  EXPECT_THAT(counted.out, HasSubstr("at 40 tokens"));
  EXPECT_THAT(refused({"inspect", model, "--device", "tpu"}), HasSubstr("unknown device 'tpu'"));
}

TEST(CacheCliTest, ADeviceThatIsNotThereIsOneOfAConfigsMistakes) {
  if (at::hasCUDA()) {
    GTEST_SKIP() << "the device is there";
  }
  const TemporaryFolder folder;
  folder.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
  const std::string config =
      folder
          .write("c.yaml", fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\n"
                                       "strategies: [{{type: autoregressive}}]\n",
                                       test_data("gemma3-a").string()))
          .string();
  for (const char* command : {"check", "run"}) {
    EXPECT_THAT(refused({command, config, "--device", "cuda", "--set", "max_new_tokens=none"}),
                AllOf(HasSubstr("--device cuda: model.device: device 'cuda': this "),
                      HasSubstr("max_new_tokens: expected a whole number")));
  }
}

}  // namespace
}  // namespace specdec
