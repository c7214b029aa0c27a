// GGUF files as models of the commands, and `specdec tokenize`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kGguf = test_data("gguf/llama-q4_1.gguf").string();

TEST(GgufCliTest, InspectSaysWhatItIs) {
  const auto inspection = json::parse(cli({"inspect", kGguf, "--json"}).out);
  EXPECT_EQ(inspection["family"], "llama");
  EXPECT_EQ(inspection["weights"]["dtypes"], json({"F32", "Q4_1", "Q8_0"}));
  EXPECT_EQ(inspection["weights"]["parameters"], 68160);
  EXPECT_EQ(inspection["tokenizer"]["pieces"], 292);
  EXPECT_EQ(json::parse(cli({"inspect", test_data("qwen2-a").string(), "--json"}).out)["family"],
            "qwen2");
}

TEST(GgufCliTest, InspectSaysWhatStaysAsStored) {
  const auto weights = [](const char* file) {
    return json::parse(cli({"inspect", test_data(file).string(), "--json"}).out)["weights"];
  };
  const auto kept = weights("gguf/gemma2-q4_k.gguf");
  EXPECT_GT(kept["memory"]["stored"]["Q4_K"], 0);
  EXPECT_GT(kept["memory"]["stored"]["Q6_K"], 0);
  EXPECT_EQ(kept["memory"]["stored"].size(), 2U);
  EXPECT_EQ(kept["converted"], json::object());
  const auto mixed = weights("gguf/gemma3-mixed.gguf");
  EXPECT_EQ(mixed["converted"], json::object());
  EXPECT_GT(mixed["memory"]["stored"]["float16"], 0);
  EXPECT_GT(mixed["memory"]["stored"]["bfloat16"], 0);
  EXPECT_EQ(kept["memory"]["float32"].get<int64_t>(),
            2 * kept["memory"]["bfloat16"].get<int64_t>());
  const auto plain = weights("gguf/llama-f16.gguf")["memory"];
  EXPECT_EQ(plain["stored"]["float16"], plain["bfloat16"]);
  EXPECT_GT(weights("qwen2-a")["memory"]["int8"], 0);
}

TEST(GgufCliTest, InspectFindsMissingTensors) {
  std::string bytes = read_file(test_data("gguf/llama-q4_1.gguf"));
  const std::string name = "blk.1.ffn_up.weight";
  bytes.replace(bytes.find(name), name.size(), "blk.1.ffn_uq.weight");
  const TemporaryFolder folder;
  const auto result = cli({"inspect", folder.write("m.gguf", bytes).string()});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("tensor 'blk.1.ffn_up.weight' is missing"));
}

TEST(GgufCliTest, GeneratesFromATextOrAChat) {
  const std::vector<std::string> generate = {"generate", kGguf, "--max-new-tokens", "4"};
  auto plain = generate;
  plain.insert(plain.end(), {"--prompt", "the thing"});
  EXPECT_EQ(cli(plain).code, 0) << cli(plain).err;
  auto empty = generate;
  empty.insert(empty.end(), {"--prompt", ""});
  EXPECT_EQ(cli(empty).code, 2);
  plain.emplace_back("--chat");
  EXPECT_EQ(cli(plain).code, 0) << cli(plain).err;
}

TEST(GgufCliTest, BrokenFilesAreMistakesOfTheUser) {
  const TemporaryFolder folder;
  const auto file = folder.write("m.gguf", "GGUF\x03").string();
  for (const char* command : {"inspect", "tokenize"}) {
    std::vector<std::string> arguments = {command, file};
    if (std::string(command) == "tokenize") {
      arguments.insert(arguments.end(), {"--text", "x"});
    }
    const auto result = cli(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("m.gguf: it ends within the header"));
  }
}

TEST(TokenizeCliTest, ShowsPiecesAndIds) {
  const auto text = cli({"tokenize", kGguf, "--text", "in the"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\" the\"\n"));
  const auto parsed = json::parse(cli({"tokenize", kGguf, "--text", "in the", "--json"}).out);
  EXPECT_EQ(parsed["pieces"], json({"in", "\u0120the"}));
  EXPECT_EQ(parsed["ids"].size(), 2U);
  EXPECT_EQ(parsed["lossless"], true);
}

TEST(TokenizeCliTest, ControlPiecesAreTextUnlessAskedFor) {
  const auto ids = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"tokenize", kGguf, "--text", "<|im_end|>", "--json"});
    return json::parse(cli(flags).out)["ids"];
  };
  EXPECT_GT(ids({}).size(), 1U);
  EXPECT_EQ(ids({"--special"}), json({2}));
}

TEST(TokenizeCliTest, FilesGiveALineForEachText) {
  const TemporaryFolder folder;
  const auto file = folder.write("t.jsonl", "{\"text\": \"in\"}\n\n{\"text\": \"\"}\n").string();
  const auto result = cli({"tokenize", kGguf, "--file", file});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, cli({"tokenize", kGguf, "--file", file, "--json", "-"}).out);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);
  EXPECT_THAT(result.out, HasSubstr("{\"ids\":[]}\n"));
}

TEST(TokenizeCliTest, MistakesAreNamed) {
  const TemporaryFolder folder;
  const auto bad = folder.write("t.jsonl", "{\"text\": \"in\"}\n{\"txt\": 1}\n").string();
  const auto message = [](const std::vector<std::string>& arguments) {
    const auto result = cli(arguments);
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_THAT(message({"tokenize", kGguf, "--file", bad}),
              HasSubstr("t.jsonl:2: should be an object with a \"text\""));
  EXPECT_THAT(message({"tokenize", kGguf}), HasSubstr("one of --text and --file"));
  EXPECT_THAT(message({"tokenize", "/no/such", "--text", "x"}), HasSubstr("/no/such"));
  EXPECT_THAT(message({"tokenize", kGguf, "--file", "/no/such.jsonl"}),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace specdec
