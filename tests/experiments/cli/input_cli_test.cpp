// What commands say of prompts, files and flags that they cannot use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/config/config_file.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// What a command that is refused writes to standard error.
std::string refusal_of(const std::vector<std::string>& arguments) {
  const CliResult result = cli(arguments);
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_EQ(result.out, "");
  return result.err;
}

/// "2,2,2": for --tokens.
std::string tokens_text(int count) {
  return fmt::format("{}", fmt::join(std::vector<int>(static_cast<size_t>(count), 2), ","));
}

TEST(InputCliTest, APromptThatIsTooLongIsToBeShortened) {
  const std::string tokens = tokens_text(513);
  const std::string model = test_data("gemma3-a").string();
  for (const bool no_cache : {false, true}) {
    std::vector<std::string> command = {"generate", model, "--tokens", tokens};
    if (no_cache) {
      command.emplace_back("--no-cache");
    }
    EXPECT_THAT(refusal_of(command),
                AllOf(HasSubstr("the prompt has 513 tokens, but " + model +
                                " takes at most 512 (its max_position_embeddings): shorten"),
                      Not(HasSubstr("max_length"))));
  }
}

TEST(InputCliTest, APromptThatIsTooLongForTheDefaultContextIsForAConfig) {
  const TemporaryFolder folder;
  std::filesystem::copy(test_data("llama-a"), folder.path());
  std::string config = read_text_file(folder.path() / "config.json");
  const std::string positions = "\"max_position_embeddings\": 1024";
  ASSERT_NE(config.find(positions), std::string::npos);
  config.replace(config.find(positions), positions.size(), "\"max_position_embeddings\": 16384");
  folder.write("config.json", config);
  EXPECT_THAT(
      refusal_of({"generate", folder.path().string(), "--tokens", tokens_text(8193)}),
      HasSubstr("keeps at most 8192 here, though the model takes up to 16384: shorten it, or run "
                "a config with model.max_length"));
}

TEST(InputCliTest, APromptThatFillsTheContextIsTaken) {
  std::string tokens = "2";
  for (int i = 0; i < 511; ++i) {
    tokens += ",2";
  }
  const auto result = cli({"generate", test_data("gemma3-a").string(), "--tokens", tokens});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(InputCliTest, EmptyPromptsAreMistakes) {
  const TemporaryFolder folder;
  const std::string file = folder.write("empty.txt", "").string();
  const auto generate = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", kShippedTokenizer});
    return refusal_of(options);
  };
  const std::string hint =
      "the prompt is empty; to generate from nothing, give the token that "
      "begins texts: --tokens 2";
  EXPECT_THAT(generate({"--prompt", ""}), HasSubstr("--prompt: " + hint));
  EXPECT_THAT(generate({"--prompt", "", "--chat"}),
              HasSubstr("--prompt: the prompt is empty; give a text"));
  EXPECT_THAT(generate({"--prompt-file", file}), HasSubstr(file + ": " + hint));
  EXPECT_THAT(generate({"--tokens", ""}), HasSubstr("'' is not a list of whole numbers"));
  EXPECT_THAT(generate({"--tokens", "", "--prompt", "a"}), HasSubstr("give one of --prompt"));
  const auto taken = cli({"generate", kShippedTokenizer, "--tokens", "2", "--max-new-tokens", "1"});
  EXPECT_EQ(taken.code, 0) << taken.err;
}

TEST(InputCliTest, TextsThatAreNotUtf8NameTheByte) {
  const TemporaryFolder folder;
  const std::string bad =
      "a\xff"
      "b";
  const std::string file = folder.write("bad.txt", bad).string();
  const std::string what = ": byte 2 is not part of any UTF-8 character; give a text in UTF-8";
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt", bad}),
              HasSubstr("--prompt" + what));
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt-file", file}),
              HasSubstr(file + what));
  EXPECT_THAT(refusal_of({"tokenize", kShippedTokenizer, "--text", bad}),
              HasSubstr("--text" + what));
}

// Reading a pipe that nobody writes to would wait for ever.
TEST(InputCliTest, PipesAndDevicesAreNoFiles) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const TemporaryFolder model;
  std::filesystem::copy(test_data("llama-a"), model.path());
  std::filesystem::remove(model.path() / "config.json");
  ASSERT_EQ(::mkfifo((model.path() / "config.json").c_str(), 0600), 0);
  const std::vector<std::vector<std::string>> commands = {
      {"run", pipe},
      {"check", pipe},
      {"train", pipe},
      {"inspect", pipe},
      {"inspect", model.path()},
      {"generate", kShippedTokenizer, "--prompt-file", pipe},
      {"generate", kShippedTokenizer, "--prompt", "x", "--grammar", pipe},
      {"score", kShippedTokenizer, pipe},
      {"tokenize", kShippedTokenizer, "--file", pipe},
      {"tokenize", pipe, "--text", "x"},
      {"certify", "--config", pipe},
      {"convert", pipe, folder.path() / "out.gguf"},
      {"compare", pipe, pipe},
      {"simulate", pipe},
      {"import", pipe},
      {"check", "/dev/zero"},
      {"tokenize", kShippedTokenizer, "--file", "/dev/zero"},
      {"inspect", "/dev/zero"}};
  for (const auto& command : commands) {
    EXPECT_THAT(refusal_of(command), AnyOf(HasSubstr("pipe"), HasSubstr("/dev/zero"),
                                           HasSubstr("config.json: is a named pipe, not a file.")))
        << fmt::format("{}", fmt::join(command, " "));
  }
}

TEST(InputCliTest, MisspeltFlagsAreNamedWithTheNearest) {
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--promt", "x"}),
              HasSubstr("error: --promt: unknown option; did you mean --prompt? See 'specdec "
                        "generate --help'."));
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt", "x", "--temprature=0.5"}),
              HasSubstr("--temprature: unknown option; did you mean --temperature?"));
  EXPECT_THAT(refusal_of({"list", "-json"}),
              HasSubstr("-json: unknown option; did you mean --json?"));
  EXPECT_THAT(refusal_of({"--json", "list"}),
              HasSubstr("--json: this option belongs behind the command: specdec list ... --json"));
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt", "x", "--devise", "cpu"}),
              HasSubstr("did you mean --device?"));
  EXPECT_THAT(refusal_of({"grammar", "sample", "--cout", "3", "a.json", "--tokenizer", "x"}),
              HasSubstr("did you mean --count? See 'specdec grammar sample --help'."));
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt", "x", "--qqqqqq"}),
              AllOf(HasSubstr("--qqqqqq: unknown option. See"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal_of({"generate", kShippedTokenizer, "--prompt", "x", "stray"}),
              HasSubstr("not expected: stray"));
  EXPECT_THAT(refusal_of({"--qqqqqq", "tokenize", kShippedTokenizer, "--text", "x"}),
              HasSubstr("error: --qqqqqq: unknown option."));
  EXPECT_THAT(refusal_of({"-q", "list"}), HasSubstr("error: -q: unknown option."));
}

TEST(InputCliTest, WhatIsReadIsNotOverwrittenByJson) {
  const TemporaryFolder folder;
  const std::string text = folder.write("t.txt", "To be, or not to be").string();
  for (const std::string& flag : {std::string("--json"), std::string("--json=" + text)}) {
    std::vector<std::string> arguments = {"score", kShippedTokenizer, text, flag};
    if (flag == "--json") {
      arguments.push_back((folder.path() / "./t.txt").string());
    }
    const CliResult result = cli(arguments);
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.err, AllOf(HasSubstr("--json: "), HasSubstr("would be overwritten")));
    EXPECT_EQ(read_text_file(text), "To be, or not to be");
  }
  EXPECT_EQ(cli({"score", kShippedTokenizer, "--json", text}).code, 0) << "the word is the text";
  const CliResult other = cli({"list", "suffix", "--json", text});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("holds no JSON, so it is not overwritten"));
  EXPECT_EQ(read_text_file(text), "To be, or not to be");
  const std::string json = folder.write("s.json", "{}").string();
  EXPECT_EQ(cli({"score", kShippedTokenizer, text, "--json", json}).code, 0);
  EXPECT_THAT(read_text_file(json), HasSubstr("bits_per_byte"));
}

TEST(InputCliTest, NamesThatAreNoDevicesAreUnknown) {
  for (const char* device : {"cuda:x", "cuda:-1", "cuda:", "cuda:100", "CUDA"}) {
    for (const char* command : {"inspect", "generate"}) {
      std::vector<std::string> arguments = {command, kShippedTokenizer, "--device", device};
      EXPECT_THAT(
          refusal_of(arguments),
          HasSubstr(fmt::format("unknown device '{}'; known: cpu, cuda, cuda:N, mps", device)));
    }
  }
}

TEST(InputCliTest, LogitsDoNotReplaceWeights) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "model.safetensors").string();
  std::filesystem::copy(test_data("gemma3-a") / "model.safetensors", file);
  const std::string before = read_text_file(file, size_t{1} << 26U);
  const auto logits = [&](const std::string& out) {
    return cli({"logits", test_data("gemma3-a").string(), "--tokens", "2,5", "--out", out});
  };
  const CliResult refused = logits(file);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("holds no logits, so it is not overwritten"));
  EXPECT_EQ(read_text_file(file, size_t{1} << 26U), before);
  const std::string own = (folder.path() / "logits.safetensors").string();
  EXPECT_EQ(logits(own).code, 0);
  EXPECT_EQ(logits(own).code, 0) << "logits are made anew";
}

TEST(InputCliTest, LogitsAreWrittenAsSafetensorsAlone) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "l.txt").string();
  EXPECT_THAT(refusal_of({"logits", kShippedTokenizer, "--tokens", "2", "--out", out}),
              HasSubstr("--out '" + out + "': should end in .safetensors"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(InputCliTest, InspectCountsWhatIsTrained) {
  const auto parameters = [](const std::string& model) {
    const auto result = cli({"inspect", SPECDEC_SOURCE_DIR "/models/" + model, "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out)["weights"]["parameters"].get<int64_t>();
  };
  EXPECT_EQ(parameters("gemma4/target"), 1019520) << "its layer scalars are buffers";
  EXPECT_EQ(parameters("gemma4/assistant"), 225232) << "so is the order of its clusters' tokens";
  EXPECT_EQ(parameters("heads/medusa"), 1401984) << "its matrices are integers with scales";
}

}  // namespace
}  // namespace specdec
