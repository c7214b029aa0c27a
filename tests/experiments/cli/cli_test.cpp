#include "experiments/cli/cli.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "experiments/cli/commands.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/config/config_file.h"
#include "experiments/simulate/profile.h"
#include "experiments/terminal/interrupt.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kModel = test_data("gemma3-a").string();

std::string golden_prompt() {
  return fmt::format("{}", fmt::join(Golden("gemma3-a").tokens("prompt"), ","));
}

TEST(CliTest, HelpAndVersionSucceed) {
  EXPECT_EQ(cli({"--help"}).code, 0);
  EXPECT_THAT(cli({"--help"}).out, HasSubstr("specdec run configs/pair.yaml"));
  EXPECT_THAT(cli({"--version"}).out, HasSubstr("specdec "));
  for (const char* command : {"run", "check", "list", "generate", "logits", "inspect", "profile",
                              "simulate", "import", "compare", "answers"}) {
    const auto help = cli({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr(command));
    EXPECT_THAT(help.out, HasSubstr("see 'specdec --help': --device, --dtype, "));
  }
  EXPECT_THAT(cli({"--help"}).out, Not(HasSubstr("see 'specdec --help'")));
}

TEST(CliTest, EachCommandNamesTheOneThatAConfigIsFor) {
  const TemporaryFolder folder;
  const auto answers =
      folder.write("answers.yaml", "out: a\ntarget: {weights: " + kModel + "}\nlayers: [0]\n")
          .string();
  for (const char* command : {"run", "train"}) {
    const auto refused = cli({command, answers});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("make them with: specdec answers " + answers));
  }
  EXPECT_THAT(cli({"check", answers}).err, testing::Not(HasSubstr("strategies")));
  const std::string training = std::string(SPECDEC_SOURCE_DIR) + "/configs/train/draft.yaml";
  EXPECT_THAT(cli({"train", training, "--dtype", "float64"}).err,
              HasSubstr("--dtype: a training computes in float32"));
  for (const char* config : {"pair.yaml", "train/draft.yaml", "train/smollm2_eagle3.yaml"}) {
    const auto refused = cli({"answers", std::string(SPECDEC_SOURCE_DIR) + "/configs/" + config});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("describes no answers"));
  }
}

TEST(CliTest, ALibrarysProductsNameTheFlagThatTheyCannotHave) {
  const std::string flags[][2] = {
      {"--no-cache", ""}, {"--prefix-cache-mb", "1"}, {"--save-state", "state"}};
  for (const auto& [flag, value] : flags) {
    std::vector<std::string> words = {"generate",           kModel,    "--tokens", "2",
                                      "--prefill-products", "library", flag};
    if (!value.empty()) {
      words.push_back(value);
    }
    const auto refused = cli(words);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("leave it out, or " + flag + "\n"));
  }
}

TEST(CliTest, MemoryThatRunsOutIsNotABug) {
  auto components = builtin_components();
  components.strategies.add("hog", {.help = "wants more than a machine has",
                                    .promise = Promise::kLossless,
                                    .prepare = [](const ConfigNode&, const RunPlan&) {
                                      return
                                          [](BuildContext&) -> std::unique_ptr<DecodingStrategy> {
                                            (void)at::empty({int64_t{1} << 46}, at::kFloat);
                                            return nullptr;
                                          };
                                    }});
  const auto result =
      cli({"generate", kModel, "--tokens", "2", "--strategy", "{type: hog}"}, components);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: out of memory; try a smaller model.max_length"));
}

TEST(CliTest, WrongUsageExitsWithTwo) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"nonsense"},
      {"run"},
      {"run", "a.yaml", "--nonsense"},
      {"generate", kModel},
      {"generate", kModel, "--tokens", "2", "--prompt", "a"},
      {"generate", kModel, "--prompt", "a"},
      {"generate", kModel, "--tokens", "2,x"},
      {"generate", kModel, "--tokens", "-2"},
      {"generate", kModel, "--tokens", "2,,3"},
      {"generate", kModel, "--tokens", "2,99999999999"},
      {"generate", kModel, "--tokens", "2,512"},
      {"generate", kModel, "--tokens", "2", "--chat"},
      {"generate", kModel, "--tokens", "2", "--stop", "x"},
      {"generate", kModel, "--tokens", "2", "--max-new-tokens", "0"},
      {"generate", kModel, "--tokens", "2", "--max-new-tokens", "-5"},
      {"generate", kModel, "--tokens", "2", "--temperature", "-1"},
      {"generate", kModel, "--tokens", "2", "--temperature", "nan"},
      {"generate", kModel, "--tokens", "2", "--top-p", "1.5"},
      {"generate", kModel, "--tokens", "2", "--dtype", "float31"},
      {"generate", kModel, "--tokens", "2", "--kv-dtype", "float16"},
      {"generate", kModel, "--tokens", "2", "--dtype", "float64", "--kv-dtype", "bfloat16"},
      {"generate", kModel, "--tokens", "2", "--cache", "page"},
      {"generate", kModel, "--tokens", "2", "--cache", "{type: paged, page_size: 0}"},
      {"generate", kModel, "--tokens", "2", "--device", "tpu"},
      {"generate", kModel, "--tokens", "2", "--cuda-graphs", "-1"},
      {"generate", kModel, "--tokens", "2", "--prefill-graphs", "-1"},
      {"generate", kModel, "--tokens", "2", "--prefill-products", "library"},
      {"generate", kModel, "--tokens", "2", "--prefill-products", "cublas"},
      {"chat", kModel, "--prefill-products", "exact"},
      {"certify", "--prefill-products", "library"},
      {"generate", kModel, "--tokens", "2", "--threads", "0"},
      {"generate", kModel, "--tokens", "2", "--strategy", "{type: nonsense}"},
      {"generate", kModel, "--tokens", "2", "--strategy", "[1"},
      {"generate", kModel, "--tokens", "2", "--strategy", "text"},
      {"generate", kModel, "--tokens", "2", "--grammar", ""},
      {"generate", kModel, "--tokens", "2", "--seed", "-1"},
      {"generate", kModel, "--tokens", "2", "--seed", "99999999999999999999"},
      {"generate", kModel, "--tokens", "2", "--seed", ""},
      {"tokenize", "models/target", "--file", "models"},
      {"generate", "/no/such/model", "--tokens", "2"},
      {"logits", kModel, "--tokens", "2"},
      {"logits", kModel, "--tokens", "2", "--out", "/no/such/folder/x.safetensors"},
      {"inspect", "/no/such/model"},
      {"profile", kModel, "--contexts", "none"},
      {"profile", kModel, "--contexts", "100000"},
      {"profile", kModel, "--contexts", "0"},
      {"profile", kModel, "--new-tokens", "1,0"},
      {"profile", kModel, "--new-tokens", "4,8"},
      {"profile", kModel, "--random", "--by-layer", "--contexts", "100000"},
      {"profile", kModel, "--repeats", "0"},
      {"profile", kModel, "--temperature", "-1"},
      {"profile", kModel, "--draft", "{type: nonsense}"},
      {"profile", kModel, "--draft", "/no/such/model"},
      {"profile", kModel, "--lengths", "0", "--draft", kModel},
      {"simulate", "/no/such/run"},
      {"answers", "/no/such/config"},
      {"import", "/no/such/file"},
      {"import"},
  };
  for (const auto& arguments : cases) {
    const auto result = cli(arguments);
    EXPECT_EQ(result.code, 2) << fmt::format("{}: {}", fmt::join(arguments, " "), result.err);
    EXPECT_THAT(result.err, HasSubstr("error: "));
    EXPECT_EQ(result.out, "");
  }
}

TEST(CliTest, UnknownCommandsNameTheNearest) {
  EXPECT_THAT(
      cli({"simulat", "x"}).err,
      HasSubstr("unknown command 'simulat'; did you mean 'simulate'? Known: run, compare, "));
  EXPECT_THAT(cli({"--quiet", "zzz"}).err,
              HasSubstr("unknown command 'zzz'; known: run, compare, "));
  const auto grammar = cli({"grammar", "smaple", "x"});
  EXPECT_EQ(grammar.code, 2);
  EXPECT_THAT(grammar.err,
              HasSubstr("unknown command 'smaple'; did you mean 'sample'? Known: test"));
  EXPECT_THAT(cli({"grammar"}).err, HasSubstr("required"));
}

/// Ctrl-C ends a program alike, whether it works, which keeps what is finished, or only starts.
TEST(CliTest, AnInterruptEndsWithALineAndItsExitCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto begin = [] {
    char name[] = "specdec";
    char* argv[] = {name, nullptr};
    (void)begin_program(1, argv);
  };
  const auto ends = testing::ExitedWithCode(130);
  EXPECT_EXIT((begin(), std::raise(SIGINT)), ends, "^interrupted\n$");
  const auto while_loading = [&] {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGINT);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    (void)std::raise(SIGINT);
    begin();
  };
  EXPECT_EXIT(while_loading(), ends, "^interrupted\n$");
  const auto after_work = [&] {
    begin();
    {
      const InterruptGuard guard;
      (void)std::raise(SIGINT);
      if (!InterruptGuard::is_raised()) {
        std::exit(1);
      }
    }
    (void)std::raise(SIGINT);
  };
  EXPECT_EXIT(after_work(), ends, "^interrupted\n$");
  const auto twice = [&] {
    begin();
    const InterruptGuard guard;
    (void)std::raise(SIGINT);
    (void)std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), ends, "^interrupted\n$");
}

TEST(CliTest, ErrorsSayWhatToDo) {
  EXPECT_THAT(cli({"generate", kModel, "--prompt", "a"}).err,
              HasSubstr("has no tokenizer (tokenizer.model or tokenizer.json): give --tokens"));
  EXPECT_THAT(cli({"generate", kModel, "--tokens", "2", "--strategy", "{type: speculative}"}).err,
              HasSubstr("--strategy: the key 'drafter' is missing"));
}

TEST(CliTest, GeneratesTheGoldenTokens) {
  const auto expected = Golden("gemma3-a").tokens("greedy");
  const std::vector<std::string> strategies = {
      "{type: autoregressive}", "{type: speculative, drafter: {type: prompt_lookup}}",
      "{type: speculative, drafter: {type: draft_model, weights: " + kModel + "}}",
      "{type: speculative, draft_length: {type: adaptive, use_costs: false}, verifier: {type: "
      "rejection}, drafter: {type: draft_model, weights: " +
          kModel + "}}"};
  for (const auto& strategy : strategies) {
    const auto result = cli({"generate", kModel, "--tokens", golden_prompt(), "--max-new-tokens",
                             "32", "--ignore-eos", "--json", "--strategy", strategy});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json["tokens"].get<std::vector<Token>>(), expected) << strategy;
    EXPECT_EQ(json["stop_reason"], "max_new_tokens");
    EXPECT_EQ(json["statistics"]["new_tokens"], 32);
    EXPECT_TRUE(json.contains("text"));
  }
}

TEST(CliTest, ADraftModelThatIsTheTargetIsAlwaysAccepted) {
  const auto result =
      cli({"generate", kModel, "--tokens", golden_prompt(), "--max-new-tokens", "31",
           "--ignore-eos", "--json", "--strategy",
           "{type: speculative, drafter: {type: draft_model, weights: " + kModel + "}}"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto statistics = nlohmann::json::parse(result.out)["statistics"];
  EXPECT_EQ(statistics["acceptance_rate"], 1.0);
  EXPECT_EQ(statistics["steps"], 5);  // of 6 tokens each, after the one that the prefill yields
}

TEST(CliTest, StreamsIdsWithoutATokenizer) {
  const auto result = cli({"generate", kModel, "--tokens", golden_prompt(), "--max-new-tokens", "4",
                           "--ignore-eos", "--quiet"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto greedy = Golden("gemma3-a").tokens("greedy");
  EXPECT_EQ(result.out, fmt::format("{},{},{},{}\n", greedy[0], greedy[1], greedy[2], greedy[3]));
  EXPECT_EQ(result.err, "");
}

TEST(CliTest, TheSameSeedGivesTheSameTokens) {
  const auto tokens = [](const std::string& seed) {
    const auto result = cli({"generate", kModel, "--tokens", "2,5,7", "--max-new-tokens", "24",
                             "--ignore-eos", "--json", "--temperature", "1", "--seed", seed});
    return nlohmann::json::parse(result.out)["tokens"].get<std::vector<Token>>();
  };
  EXPECT_EQ(tokens("1"), tokens("1"));
  EXPECT_NE(tokens("1"), tokens("2"));
}

TEST(CliTest, GlobalFlagsGoBeforeOrAfterTheCommand) {
  const std::vector<std::string> command = {"generate",         kModel, "--tokens",    "2,5",
                                            "--max-new-tokens", "3",    "--ignore-eos"};
  auto before = command;
  before.insert(before.begin(), {"--dtype", "float64", "--quiet"});
  auto after = command;
  after.insert(after.end(), {"--quiet", "--dtype", "float64"});
  EXPECT_EQ(cli(before).code, 0);
  EXPECT_EQ(cli(before).out, cli(after).out);
  EXPECT_EQ(cli(before).err, "");
}

TEST(CliTest, WritesLogits) {
  const TemporaryFolder folder;
  const auto file = (folder.path() / "l.safetensors").string();
  const auto tokens = Golden("gemma3-a").tokens("tokens");
  const auto result = cli({"logits", kModel, "--tokens", fmt::format("{}", fmt::join(tokens, ",")),
                           "--out", file, "--dtype", "float32"});
  ASSERT_EQ(result.code, 0) << result.err;
  const SafetensorsFile written(file);
  for (const char* name : {"logits", "hidden"}) {
    const auto* entry = written.find(name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->dtype, DType::kF32);
    const auto expected = Golden("gemma3-a").tensor(name);
    ASSERT_EQ(at::IntArrayRef(entry->shape), expected.sizes());
    std::vector<float> values(entry->bytes.size() / sizeof(float));
    std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
    EXPECT_LE(max_difference(at::tensor(values).view(expected.sizes()), expected), 1e-4) << name;
  }
}

TEST(CliTest, LogitsOfTooManyTokensNameTheModel) {
  std::string tokens = "2";
  for (int i = 0; i < 512; ++i) {
    tokens += ",2";
  }
  const auto result = cli({"logits", kModel, "--tokens", tokens, "--out", "l.safetensors"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(kModel + std::string(": it takes at most 512 tokens, but "
                                                         "--tokens lists 513. List fewer.")));
}

/// A copy of the model whose final norm is so large that its logits are infinite.
void write_overflowing_model(const std::filesystem::path& folder) {
  std::filesystem::copy(kModel, folder);
  const SafetensorsFile file(std::filesystem::path(kModel) / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  std::vector<float> norm;
  for (const TensorEntry& entry : file.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
    if (entry.name == "model.norm.weight") {
      norm.assign(static_cast<size_t>(entry.shape[0]), 3e38F);
      tensors.back().bytes = std::as_bytes(std::span(norm));
    }
  }
  std::filesystem::remove(folder / "model.safetensors");
  write_safetensors(folder / "model.safetensors", tensors);
}

TEST(CliTest, LogitsThatAreNoNumbersAreErrors) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  write_overflowing_model(model);
  const auto file = folder.path() / "l.safetensors";
  const auto dumped = cli({"logits", model.string(), "--tokens", "2,3", "--out", file.string()});
  EXPECT_EQ(dumped.code, 2);
  EXPECT_THAT(dumped.err, HasSubstr("hidden states at position 0 hold infinity"));
  EXPECT_FALSE(std::filesystem::exists(file));
  for (const char* temperature : {"0", "1"}) {
    const auto generated =
        cli({"generate", model.string(), "--tokens", "2,3", "--temperature", temperature});
    EXPECT_EQ(generated.code, 2);
    EXPECT_EQ(generated.out, "");
    EXPECT_THAT(generated.err, HasSubstr("the target after 2 tokens: the model's logits hold NaN"));
  }
}

TEST(CliTest, InspectsWithoutLoading) {
  const auto text = cli({"inspect", kModel});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("gemma3_text"));
  const auto json = nlohmann::json::parse(cli({"inspect", kModel, "--json"}).out);
  EXPECT_EQ(json["vocab_size"], 512);
  EXPECT_EQ(json["layers"].size(), json["num_layers"]);
  EXPECT_EQ(json["weights"]["bytes"], json["weights"]["parameters"].get<int64_t>() * 4);
  EXPECT_TRUE(json["tokenizer"].is_null());
}

TEST(CliTest, SuppressedTokensAreLeftOutWithAndWithoutDrafts) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  std::filesystem::copy(kModel, model);
  const auto tokens = [&](const std::string& strategy) {
    const auto result = cli({"--quiet", "generate", model.string(), "--tokens", "2,5", "--json",
                             "--max-new-tokens", "12", "--ignore-eos", "--strategy", strategy});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out)["tokens"].get<std::vector<Token>>();
  };
  const std::string plain = "{type: autoregressive}";
  const Token first = tokens(plain).front();
  std::filesystem::remove(model / "generation_config.json");
  folder.write("model/generation_config.json",
               fmt::format(R"({{"suppress_tokens": [{}]}})", first));
  const auto without = tokens(plain);
  EXPECT_THAT(without, testing::Not(testing::Contains(first)));
  // The draft model knows of no such tokens: what it drafts of them is rejected.
  EXPECT_EQ(tokens("{type: speculative, drafter: {type: draft_model, weights: " + kModel + "}}"),
            without);
}

TEST(CliTest, InspectStatesTheMemoryOfAContext) {
  const auto text = cli({"inspect", kModel, "--context", "40"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("GiB) at 40 tokens"));
  const auto memory = [](std::vector<std::string> arguments) {
    return nlohmann::json::parse(cli(arguments).out)["memory_needed"];
  };
  const auto native = memory({"inspect", kModel, "--context", "40", "--json"});
  const auto half =
      memory({"--kv-dtype", "bfloat16", "inspect", kModel, "--context", "40", "--json"});
  EXPECT_EQ(native["cache"], 2 * half["cache"].get<int64_t>());
  EXPECT_EQ(native["total"].get<int64_t>() - native["cache"].get<int64_t>(),
            half["total"].get<int64_t>() - half["cache"].get<int64_t>());
  const auto whole =
      memory({"--cache", "contiguous", "inspect", kModel, "--context", "40", "--json"});
  EXPECT_GT(whole["cache"].get<int64_t>(), native["cache"].get<int64_t>());
  EXPECT_EQ(cli({"inspect", kModel, "--context", "0"}).code, 2);
  EXPECT_EQ(cli({"inspect", SPECDEC_SOURCE_DIR "/models/heads/medusa", "--context", "40"}).code, 2);
}

TEST(CliTest, InspectsHeads) {
  const std::string heads = SPECDEC_SOURCE_DIR "/models/heads/";
  const auto text = cli({"inspect", heads + "eagle3"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("capture_layers           [1,3,5]"));
  const auto eagle = nlohmann::json::parse(cli({"inspect", heads + "eagle", "--json"}).out);
  EXPECT_EQ(eagle["head"], "eagle");
  EXPECT_EQ(eagle["layers"][0]["heads"], 4);
  EXPECT_EQ(eagle["target"]["hidden_size"], 192);
  EXPECT_EQ(eagle["target"]["vocab_size"], 2048);
  EXPECT_EQ(eagle["target"]["num_layers"], 6);
  const auto medusa = nlohmann::json::parse(cli({"inspect", heads + "medusa", "--json"}).out);
  EXPECT_EQ(medusa["head"], "medusa");
  EXPECT_EQ(medusa["num_heads"], 3);
  EXPECT_GT(medusa["weights"]["parameters"], 0);
  const auto assistant = nlohmann::json::parse(
      cli({"inspect", SPECDEC_SOURCE_DIR "/tests/data/gemma4-assistant-ordered-a", "--json"}).out);
  EXPECT_EQ(assistant["head"], "gemma4_assistant");
  EXPECT_EQ(assistant["num_layers"], 4);
  EXPECT_EQ(assistant["layers"].size(), 4U);
  EXPECT_GT(assistant["clusters"], 0);
}

TEST(CliTest, AHeadIsNoModel) {
  const auto refused =
      cli({"generate", SPECDEC_SOURCE_DIR "/models/heads/medusa", "--tokens", "2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("Use it as drafter: {type: medusa, weights: "));
}

TEST(CliTest, JsonGoesToAFileOrReplacesTheText) {
  const TemporaryFolder folder;
  const auto file = (folder.path() / "x.json").string();
  const auto bare = cli({"inspect", kModel, "--json"});
  ASSERT_EQ(bare.code, 0) << bare.err;
  EXPECT_EQ(nlohmann::json::parse(bare.out)["vocab_size"], 512);
  EXPECT_EQ(cli({"inspect", kModel, "--json", "-"}).out, bare.out);
  EXPECT_EQ(cli({"inspect", kModel, "--json=-"}).out, bare.out);
  EXPECT_EQ(cli({"inspect", "--json", "--quiet", kModel}).out, bare.out);
  const auto text = cli({"inspect", kModel}).out;
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"inspect", kModel, "--json", file},
                                             {"inspect", "--json", file, kModel},
                                             {"inspect", "--json=" + file, kModel}}) {
    std::filesystem::remove(file);
    EXPECT_EQ(cli(arguments).out, text) << "beside the usual text";
    EXPECT_EQ(read_text_file(file), bare.out);
  }
}

TEST(CliTest, AWordAfterJsonThatTheCommandNeedsIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(cli({"inspect", "--json", kModel}).out, cli({"inspect", kModel, "--json"}).out);
  const auto generated = cli(
      {"generate", "--json", kModel, "--tokens", "2,5", "--max-new-tokens", "3", "--ignore-eos"});
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(nlohmann::json::parse(generated.out)["tokens"].size(), 3U);
  // Commands that take any number of names: a FILE ends in .json.
  const auto metrics =
      folder
          .write("metrics.txt",
                 "vllm:spec_decode_num_drafts_total{model_name=\"m\"} 10\n"
                 "vllm:spec_decode_num_draft_tokens_total{model_name=\"m\"} 20\n"
                 "vllm:spec_decode_num_accepted_tokens_total{model_name=\"m\"} 10\n"
                 "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\","
                 "position=\"0\"} 10\n")
          .string();
  const auto rows = cli({"import", "--json", metrics});
  ASSERT_EQ(rows.code, 0) << rows.err;
  EXPECT_EQ(nlohmann::json::parse(rows.out).size(), 1U);
  EXPECT_EQ(nlohmann::json::parse(cli({"import", "--json", metrics, metrics}).out).size(), 2U);
  const auto file = (folder.path() / "x.json").string();
  EXPECT_THAT(cli({"import", metrics, "--json", file}).out, HasSubstr("acceptance"));
  EXPECT_EQ(read_text_file(file), rows.out);
}

TEST(CliTest, JsonFilesThatCannotBeWrittenAreErrors) {
  const TemporaryFolder folder;
  for (const std::string& file :
       {std::string(), folder.path().string(), std::string("/no/such/folder/x.json")}) {
    const auto result = cli({"inspect", kModel, "--json", file});
    EXPECT_EQ(result.code, 2) << file;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(cli({"inspect", kModel, "--json="}).code, 2);
  EXPECT_EQ(cli({"inspect", kModel, "--json", "/dev/null"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null")) << "it is not replaced";
}

TEST(CliTest, ProfileStopsAtAnInterrupt) {
  auto components = builtin_components();
  auto entry = components.drafters.entries().at("draft_model");
  entry.prepare = [inner = entry.prepare](const ConfigNode& node, const RunPlan& plan) {
    return DrafterRegistry::Make([make = inner(node, plan)](BuildContext& context) {
      (void)std::raise(SIGINT);
      return make(context);
    });
  };
  components.drafters.add("interrupting", entry);
  const auto result = cli({"profile", kModel, "--contexts", "8", "--repeats", "1", "--lengths", "1",
                           "--draft", "{type: interrupting, weights: " + kModel + "}"},
                          components);
  EXPECT_EQ(result.code, 130);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
}

TEST(CliTest, ProfilesForwardsAndDrafters) {
  const TemporaryFolder folder;
  const auto file = (folder.path() / "p.json").string();
  const auto result = cli({"profile", kModel, "--contexts", "8,64", "--repeats", "1", "--draft",
                           kModel, "--lengths", "1,3", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("context 64"));
  EXPECT_THAT(result.out, HasSubstr("draft_model"));
  const auto profile = read_profile(file);
  ASSERT_EQ(profile.target.points.size(), 20U);
  EXPECT_EQ(profile.target.points[0].new_tokens, 1);
  EXPECT_GT(profile.target.points[0].seconds, 0.0);
  EXPECT_GT(profile.reads.weights, 0);
  // Two of six layers see all tokens, the others 5: keys and values of 2 heads of 24 float32.
  constexpr int64_t kToken = 2 * 2 * 24 * 4;
  EXPECT_EQ(profile.reads.cache.at(8), (2 * 8 + 4 * 5) * kToken);
  EXPECT_EQ(profile.reads.cache.at(64), (2 * 64 + 4 * 5) * kToken);
  ASSERT_EQ(profile.drafters.size(), 1U);
  EXPECT_EQ(profile.drafters[0].name, "draft_model");
  ASSERT_EQ(profile.drafters[0].lengths.size(), 2U);
  EXPECT_EQ(profile.drafters[0].lengths[1].drafted, 3);
  EXPECT_GT(profile.drafters[0].lengths[1].draft.median, 0.0);
  const auto printed =
      cli({"profile", kModel, "--contexts", "8", "--new-tokens", "5,1", "--repeats", "1",
           "--temperature", "0.5", "--draft", kModel, "--json", "-"});
  ASSERT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(nlohmann::json::parse(printed.out)["target"].size(), 2U);
  EXPECT_EQ(nlohmann::json::parse(printed.out)["temperature"], 0.5);
}

TEST(CliTest, SimulatesATracedRun) {
  const TemporaryFolder folder;
  folder.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9]}\n{\"tokens\": [2, 7, 11]}\n");
  const auto config = folder.write(
      "c.yaml",
      fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\n"
                  "max_new_tokens: 24\nstop: {{ignore_eos: true}}\n"
                  "trace: {{depth: 4, width: 2}}\nstrategies:\n"
                  "  - type: autoregressive\n"
                  "  - {{name: draft, type: speculative, draft_length: 4, drafter: {{type: "
                  "draft_model, weights: {}}}}}\n",
                  kModel, kModel));
  const auto run = (folder.path() / "run").string();
  ASSERT_EQ(cli({"run", config.string(), "--out", run, "--quiet"}).code, 0);
  const auto result = cli({"simulate", run, "--lengths", "1,4", "--tree", "[[0],[1]]", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["shapes"].size(), 3U);
  // The draft model is the target: 23 tokens in chains of one, two each and one at the end.
  EXPECT_EQ(json["shapes"][0]["steps"], 24);
  EXPECT_EQ(json["shapes"][1]["steps"], 10);
  EXPECT_GT(json["shapes"][1]["speedup"], 0.0);
  EXPECT_EQ(json["shapes"][2]["tree"].size(), 2U);
  EXPECT_EQ(json["exact_acceptance"]["draft"][0], 1.0);
  EXPECT_THAT(cli({"simulate", run}).out, HasSubstr("chain of 4"));
  EXPECT_EQ(cli({"simulate", run}).err, "");
  const auto summary = read_text_file(std::filesystem::path(run) / "summary.json", 1 << 24);
  std::filesystem::remove(std::filesystem::path(run) / "summary.json");
  EXPECT_THAT(cli({"simulate", run}).err, HasSubstr("this run is not finished"));
  folder.write("run/summary.json", summary);
  const auto partly = cli({"simulate", run, "--lengths", "4,5", "--tree", "[[0],[1],[2]]"});
  ASSERT_EQ(partly.code, 0) << partly.err;
  EXPECT_THAT(partly.out, HasSubstr("draft     chain of 4"));
  EXPECT_THAT(partly.out, HasSubstr("draft: chain of 5 cannot be simulated from this trace: "));
  EXPECT_THAT(partly.out, HasSubstr("record again with trace.depth: 5"));
  EXPECT_THAT(partly.out, HasSubstr("record again with trace.width: 3"));
  const auto rest = nlohmann::json::parse(
      cli({"simulate", run, "--lengths", "4,5", "--json"}).out)["not_simulated"];
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0]["shape"], "chain of 5");
  for (const auto& [arguments, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--lengths", "5"}, "record again with trace.depth: 5"},
           {{"--tree", "[[0],[1],[2]]"}, "record again with trace.width: 3"},
           {{"--tree", "[[0,0]]"}, "is missing"},
           {{"--tree", "[[0.5]]"}, "is no list of lists of whole numbers"},
           {{"--strategy", "none"}, "the run traced no 'none'"},
           {{"--lengths", ""}, "is not a list of whole numbers"},
           {{"--draft-cost", "nan"}, "found nan"},
           {{"--profile", "/no/such/file"}, "/no/such/file"}}) {
    auto all = std::vector<std::string>{"simulate", run};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto refused = cli(all);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr(message));
  }
  EXPECT_THAT(cli({"simulate", folder.path().string()}).err,
              HasSubstr("no run folder (it has no generations.jsonl); make one with traces: "));
  const auto imported = cli({"import", run, "again=" + run + "/answers/draft.jsonl"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("again: draft"));
  EXPECT_THAT(imported.out, HasSubstr("tokens/s with prefill\n"));
  EXPECT_EQ(cli({"import", run + "/config.yaml"}).code, 2);
}

TEST(CliTest, SimulatesCountsWhereTheRunTellsNoCosts) {
  const TemporaryFolder folder;
  folder.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9]}\n");
  const auto config = folder.write(
      "c.yaml",
      fmt::format("model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\nmax_new_tokens: 12\n"
                  "stop: {{ignore_eos: true}}\ntrace: {{depth: 2}}\nstrategies:\n"
                  "  - {{name: draft, type: speculative, drafter: {{type: draft_model, weights: "
                  "{}}}}}\n",
                  kModel, kModel));
  const auto run = (folder.path() / "run").string();
  ASSERT_EQ(cli({"run", config.string(), "--out", run, "--quiet"}).code, 0);
  const auto result = cli({"simulate", run});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("chain of 2"));
  EXPECT_THAT(result.out, HasSubstr("speeds cannot be simulated"));
  EXPECT_THAT(result.out, HasSubstr("run autoregressive too"));
}

TEST(CliTest, GeneratesText) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  const std::vector<std::string> base = {"generate", model,          "--max-new-tokens",
                                         "12",       "--ignore-eos", "--quiet"};
  const auto run = [&](const std::vector<std::string>& more) {
    auto arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli(arguments);
  };
  const auto streamed = run({"--prompt", "To be, or"});
  ASSERT_EQ(streamed.code, 0) << streamed.err;
  const auto json = nlohmann::json::parse(run({"--prompt", "To be, or", "--json"}).out);
  EXPECT_EQ(streamed.out, json["text"].get<std::string>() + "\n");
  const auto file = folder.write("prompt.txt", "To be, or").string();
  EXPECT_EQ(run({"--prompt-file", file}).out, streamed.out);
  EXPECT_NE(run({"--prompt", "To be, or", "--chat"}).out, streamed.out);
  EXPECT_EQ(run({"--prompt", "To be, or", "--stop", ""}).code, 2);

  const auto text = json["text"].get<std::string>();
  const auto stop = text.substr(text.size() / 2, 2);
  const auto stopped =
      nlohmann::json::parse(run({"--prompt", "To be, or", "--stop", stop, "--json"}).out);
  EXPECT_EQ(stopped["stop_reason"], "stop_string");
  EXPECT_LT(stopped["tokens"].size(), 12U);
}

TEST(CliTest, TextsEndWithTheTokenizersEndToo) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  const auto ends = [&] {
    return nlohmann::json::parse(cli({"inspect", model, "--json"}).out)["end_ids"]
        .get<std::vector<Token>>();
  };
  const auto own = ends();
  folder.write("model/tokenizer_config.json", R"({"eos_token": "<end_of_turn>"})");
  auto both = own;
  both.push_back(5);
  EXPECT_EQ(ends(), both);
  EXPECT_THAT(cli({"inspect", model}).out, HasSubstr("the tokenizer's <eos> is 5 (<end_of_turn>)"));
  const auto text = cli({"generate", model, "--max-new-tokens", "2", "--prompt", "a"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.err, HasSubstr("a text ends with any of them"));
}

TEST(CliTest, ListsEveryName) {
  const auto result = cli({"list"});
  EXPECT_EQ(result.code, 0);
  for (const char* name : {"autoregressive", "speculative", "draft_model", "prompt_lookup",
                           "exact_match", "rejection", "fixed", "heuristic", "adaptive"}) {
    EXPECT_THAT(result.out, HasSubstr(name));
  }
}

TEST(CliTest, ListsNamesAsJson) {
  const auto result = cli({"list", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  const auto& strategies = json["strategies"];
  EXPECT_EQ(strategies.size(), builtin_components().strategies.entries().size());
  EXPECT_EQ(strategies[0]["type"], "autoregressive");
  EXPECT_EQ(strategies[0]["promise"], "lossless");
  EXPECT_EQ(json["trees"].size(), builtin_components().trees.entries().size());
}

TEST(CliTest, ParsesTokenLists) {
  EXPECT_THAT(parse_token_list("2,5,7"), ElementsAre(2, 5, 7));
  EXPECT_THAT(parse_token_list("2, 5"), ElementsAre(2, 5));
  for (const char* text : {"", ",", "2,", "a", "1.5", "-1", "2 5"}) {
    EXPECT_THROW((void)parse_token_list(text), ConfigError) << text;
  }
}

/// A stream that takes nothing, like a full disk.
class FullStream final : public std::streambuf {
 protected:
  int_type overflow(int_type) override { return traits_type::eof(); }
};

TEST(CliTest, AnUnwritableOutputIsAnError) {
  FullStream disk;
  std::ostream out(&disk);
  std::ostringstream err;
  EXPECT_EQ(run_cli({"list"}, builtin_components(), out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("standard output cannot be written"));
}

}  // namespace
}  // namespace specdec
