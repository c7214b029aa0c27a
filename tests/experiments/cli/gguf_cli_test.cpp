// GGUF files as models of the commands, and `specdec tokenize`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tokenizer_fixture.h"

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
  for (const char* bias : {"qkv_bias", "output_bias", "mlp_bias"}) {
    EXPECT_EQ(inspection["layers"][0][bias], false) << bias;
  }
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

TEST(GgufCliTest, AModelWhoseTokenizerIsNotSupportedTakesTokenIds) {
  std::string bytes = read_file(kGguf);
  const std::string pre = "tokenizer.ggml.pre";
  bytes.replace(bytes.find("smollm", bytes.find(pre)), 6, "other!");
  const TemporaryFolder folder;
  const std::string file = folder.write("m.gguf", bytes).string();
  const std::string why = "'tokenizer.ggml.pre' is 'other!', which is not supported";
  EXPECT_THAT(cli({"inspect", file}).out, HasSubstr("not usable: "));
  const auto inspection = json::parse(cli({"inspect", file, "--json"}).out);
  EXPECT_THAT(inspection["tokenizer"]["error"].get<std::string>(), HasSubstr(why));
  const std::vector<std::string> generate = {"generate", file, "--max-new-tokens", "4"};
  const auto with = [&](const std::vector<std::string>& more) {
    auto arguments = generate;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli(arguments);
  };
  EXPECT_EQ(with({"--tokens", "5,6"}).code, 0) << with({"--tokens", "5,6"}).err;
  for (const std::vector<std::string>& needs_text : {std::vector<std::string>{"--prompt", "a"},
                                                     {"--prompt", "a", "--chat"},
                                                     {"--tokens", "5", "--stop", "a"},
                                                     {"--tokens", "5", "--grammar", "g.gbnf"}}) {
    EXPECT_EQ(with(needs_text).code, 2);
    EXPECT_THAT(with(needs_text).err, HasSubstr(why));
  }
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

TEST(TokenizeCliTest, OnlyBytesWithoutASymbolAreDropped) {
  const auto is_lossless = [](const TemporaryFolder& model, const std::string& text) {
    const std::vector<std::string> arguments = {"tokenize", model.path().string(), "--text", text};
    const bool dropped = cli(arguments).out.find("which are dropped") != std::string::npos;
    auto as_json = arguments;
    as_json.emplace_back("--json");
    EXPECT_EQ(json::parse(cli(as_json).out)["lossless"], !dropped) << text;
    return !dropped;
  };
  TokenizerFiles files = *read_tokenizer_files(kGguf);
  auto& model = std::get<ByteLevelModel>(files.model);
  model.nfc = true;
  for (SentencePiece& piece : model.pieces) {
    piece.text = piece.text == "~" ? "~~~" : piece.text;  // the byte has no symbol then
  }
  const TemporaryFolder composing;
  write_tokenizer_files(files, composing.path());
  EXPECT_TRUE(is_lossless(composing, "Cafe\u0301 in the"));
  EXPECT_FALSE(is_lossless(composing, "in~the"));
  EXPECT_FALSE(is_lossless(composing, "Cafe\u0301~"));
  json prefix = json::parse(tokenizer_fixture("llama2/tokenizer.json"));
  prefix["added_tokens"][3]["special"] = false;  // [INST], after which texts have their space
  const TemporaryFolder spaced;
  spaced.write("tokenizer.json", prefix.dump());
  EXPECT_TRUE(is_lossless(spaced, "[INST]in the"));
  EXPECT_TRUE(is_lossless(spaced, "in the"));
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
