// `specdec convert`, and models named as the Hugging Face cache holds them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/hub_cache_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kConvertedGguf = test_data("gguf/llama-q4_1.gguf").string();
const std::string kCachedCommit(40, 'd');

TEST(ConvertCliTest, GgufFilesBecomeFoldersAndBack) {
  const TemporaryFolder folder;
  const auto out = (folder.path() / "out").string();
  const auto again = (folder.path() / "again.gguf").string();
  const auto there = cli({"convert", kConvertedGguf, out});
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(there.out, HasSubstr("out: llama, "));
  EXPECT_THAT(there.out, HasSubstr(" tensors, F32, "));
  const auto back = cli({"convert", out, again, "--dtype", "int8", "--quiet"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.err, "");
  EXPECT_THAT(json::parse(cli({"inspect", again, "--json"}).out)["weights"]["dtypes"],
              json({"F32", "Q8_0"}));
  const std::vector<std::string> text = {"--text", "the thing in 12", "--json"};
  const auto ids = [&text](const std::string& model) {
    std::vector<std::string> arguments = {"tokenize", model};
    arguments.insert(arguments.end(), text.begin(), text.end());
    return cli(arguments).out;
  };
  EXPECT_EQ(ids(kConvertedGguf), ids(out));
  EXPECT_EQ(ids(kConvertedGguf), ids(again));
}

TEST(ConvertCliTest, ModelsWithoutATokenizerTakeIds) {
  const TemporaryFolder folder;
  const auto out = (folder.path() / "m.gguf").string();
  const auto made = cli({"convert", test_data("llama-a").string(), out});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("note: there is no tokenizer"));
  EXPECT_TRUE(json::parse(cli({"inspect", out, "--json"}).out)["tokenizer"].is_null());
  const auto answer =
      cli({"generate", out, "--tokens", "5,6,7", "--max-new-tokens", "3", "--json"});
  EXPECT_EQ(answer.code, 0) << answer.err;
}

TEST(ConvertCliTest, MistakesAreNamed) {
  const TemporaryFolder folder;
  const auto out = folder.write("m.gguf", "x").string();
  const auto message = [](const std::vector<std::string>& arguments) {
    const auto result = cli(arguments);
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_THAT(message({"convert", kConvertedGguf, out, "--dtype", "int8"}), HasSubstr("--force"));
  EXPECT_THAT(
      message({"convert", kConvertedGguf, out, "--dtype", "float64", "--force"}),
      HasSubstr("unknown dtype 'float64' of a conversion; known: stored, float32, float16"));
  // A folder of somebody's, with the input in it.
  const TemporaryFolder model;
  model.write("config.json", "{}");
  const auto input = (model.path() / "in.gguf").string();
  std::filesystem::copy_file(kConvertedGguf, input);
  EXPECT_THAT(message({"convert", input, model.path().string(), "--force"}),
              HasSubstr("holds in.gguf, which no conversion writes"));
  EXPECT_TRUE(std::filesystem::exists(input));
  EXPECT_THAT(message({"convert", "/no/such", out, "--force"}), HasSubstr("/no/such"));
}

TEST(HubModelCliTest, CommandsAndConfigsTakeNamesOfTheHub) {
  const HubCacheFolder cache;
  cache.add_copy("org/tiny", kCachedCommit, test_data("gemma3-a"));
  cache.ref("org/tiny", "main", kCachedCommit);
  EXPECT_EQ(json::parse(cli({"inspect", "org/tiny", "--json"}).out)["family"], "gemma3_text");
  EXPECT_EQ(cli({"inspect", "org/tiny@ddd"}).code, 0);
  const TemporaryFolder folder;
  folder.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
  const auto config = [&folder](const std::string& weights) {
    return folder
        .write("c.yaml", "model: {weights: " + weights +
                             "}\nprompts: {file: p.jsonl}\nstrategies:\n  - type: autoregressive\n")
        .string();
  };
  const auto good = cli({"check", config("org/tiny@main")});
  EXPECT_EQ(good.code, 0) << good.err;
  const auto bad = cli({"check", config("org/absent")});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("hf download org/absent"));
  const auto absent = cli({"inspect", "org/absent"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("hf download org/absent"));
}

}  // namespace
}  // namespace specdec
