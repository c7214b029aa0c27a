// Adapters as a user names them: --adapter of generate, logits and score, and model.adapters of
// configs.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/families/model.h"
#include "core/formats/safetensors.h"
#include "core/transformer/adapters/lora_writer.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/run_fixture.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kAdaptedBase = test_data("gemma3-a").string();
const std::string kLora = test_data("gemma3-lora-a").string();

std::string golden_ids(const std::string& name) {
  return fmt::format("{}", fmt::join(Golden("gemma3-lora-a").tokens(name), ","));
}

/// Greedy tokens of `specdec generate` on the golden prompt.
std::vector<Token> generated(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {
      "generate", kAdaptedBase,       "--tokens", golden_ids("prompt"),
      "--json",   "--max-new-tokens", "8",        "--ignore-eos"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const CliResult result = cli(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return nlohmann::json::parse(result.out)["tokens"].get<std::vector<Token>>();
}

std::vector<Token> golden_greedy() {
  std::vector<Token> tokens = Golden("gemma3-lora-a").tokens("greedy");
  tokens.resize(8);
  return tokens;
}

TEST(AdapterCliTest, GeneratesTheGoldenTokens) {
  EXPECT_EQ(generated({"--adapter", kLora}), golden_greedy());
  EXPECT_NE(generated({}), golden_greedy());
  EXPECT_EQ(generated({"--adapter", kLora + ":0"}), generated({}));
}

TEST(AdapterCliTest, AdaptersStack) {
  EXPECT_EQ(generated({"--adapter", kLora + ":0.5", "--adapter", kLora + ":0.5"}), golden_greedy());
}

TEST(AdapterCliTest, SpeculationKeepsTheAdaptedTokens) {
  const std::string strategy = fmt::format(
      "{{type: speculative, draft_length: 3, drafter: {{type: draft_model, weights: {}}}}}",
      kAdaptedBase);
  EXPECT_EQ(generated({"--adapter", kLora, "--strategy", strategy}), golden_greedy());
  EXPECT_EQ(generated({"--adapter", kLora, "--strategy",
                       "{type: speculative, draft_length: 3, drafter: {type: self, layers: 1}}"}),
            golden_greedy());
}

TEST(AdapterCliTest, AnAdapterOfDraftsKeepsTheTokensAndIsWarnedOf) {
  const TemporaryFolder folder;
  const std::string draft = (folder.path() / "draft").string();
  save_lora(random_lora(*load_model(kAdaptedBase), {.rank = 2, .layers = 3}, 1), draft, at::kFloat);
  const auto strategy = [&](const std::string& adapter) {
    return fmt::format(
        "{{type: speculative, draft_length: 3, drafter: {{type: self, layers: 3, adapter: {}}}}}",
        adapter);
  };
  EXPECT_EQ(generated({"--adapter", kLora, "--strategy", strategy(draft)}), golden_greedy());
  const auto said = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {
        "generate",         kAdaptedBase,
        "--tokens",         "2,5",
        "--max-new-tokens", "2",
        "--strategy",       strategy("{path: " + draft + ", scale: 0.5}")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return cli(arguments).err;
  };
  EXPECT_THAT(said({"--adapter", kLora}), HasSubstr("warning: " + draft));
  EXPECT_THAT(said({}), testing::Not(HasSubstr("warning: ")));
  EXPECT_THAT(said({"--adapter", kLora, "--quiet"}), testing::Not(HasSubstr("warning: ")));
}

TEST(AdapterCliTest, WritesTheGoldenLogits) {
  const TemporaryFolder folder;
  const auto file = (folder.path() / "l.safetensors").string();
  const CliResult result = cli({"logits", kAdaptedBase, "--tokens", golden_ids("tokens2"), "--out",
                                file, "--dtype", "float32", "--adapter", kLora});
  ASSERT_EQ(result.code, 0) << result.err;
  const SafetensorsFile written(file);
  const TensorEntry* entry = written.find("logits");
  ASSERT_NE(entry, nullptr);
  const at::Tensor wanted = Golden("gemma3-lora-a").tensor("logits2");
  ASSERT_EQ(at::IntArrayRef(entry->shape), wanted.sizes());
  at::Tensor logits = at::empty(wanted.sizes(), at::kFloat);
  std::memcpy(logits.data_ptr(), entry->bytes.data(), entry->bytes.size());
  EXPECT_LE(max_difference(logits, wanted), 1e-4);
}

TEST(AdapterCliTest, ScoresAgainstTheBaseAndAgainstAnotherDtype) {
  const TemporaryFolder folder;
  const auto file = folder.write("t.jsonl", "{\"tokens\": [2, 5, 7, 11, 13, 17, 19]}\n").string();
  const auto score = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"score",   kAdaptedBase, file,        "--json",
                                          "--dtype", "float32",    "--adapter", kLora};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const CliResult result = cli(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto base = score({"--against", kAdaptedBase});
  EXPECT_GT(base["against"]["kl"].get<double>(), 1e-4) << "the second model has no adapters";
  EXPECT_EQ(base["adapters"], nlohmann::json::array({kLora}));
  const auto same = score({"--against-dtype", "float32"});
  EXPECT_EQ(same["against"]["kl"], 0.0) << "the copy has the adapters";
  EXPECT_EQ(same["fingerprint"], base["fingerprint"]);
}

TEST(AdapterCliTest, ConvertWritesTheMergedModel) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {"merged", "merged.gguf"};
  for (const std::string& name : names) {
    const auto out = (folder.path() / name).string();
    const CliResult made =
        cli({"convert", kAdaptedBase, out, "--adapter", kLora, "--dtype", "float32"});
    ASSERT_EQ(made.code, 0) << made.err;
    const CliResult text = cli({"generate", out, "--tokens", golden_ids("prompt"), "--json",
                                "--max-new-tokens", "8", "--ignore-eos"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(nlohmann::json::parse(text.out)["tokens"].get<std::vector<Token>>(), golden_greedy());
  }
  const auto zero = (folder.path() / "zero").string();
  EXPECT_EQ(cli({"convert", kAdaptedBase, zero, "--adapter", kLora + ":0"}).code, 0)
      << "a folder stays one";
  EXPECT_EQ(cli({"convert", kAdaptedBase, zero + "2"}).code, 2);
  EXPECT_EQ(cli({"convert", test_data("llama-a").string(), zero + "3", "--adapter", kLora}).code,
            2);
}

TEST(AdapterCliTest, EmbedMergesTheAdapter) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  const auto vectors = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"embed", model, "the tide", "--dtype", "float32"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const CliResult result = cli(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_NE(vectors({"--adapter", kLora}), vectors({}));
  EXPECT_EQ(vectors({"--adapter", kLora + ":0"}), vectors({}));
  const CliResult blocks = cli({"embed", model, "a", "--dtype", "int8", "--adapter", kLora});
  EXPECT_EQ(blocks.code, 2);
  EXPECT_THAT(blocks.err, HasSubstr("in blocks"));
}

TEST(AdapterCliTest, MistakesAreErrors) {
  const TemporaryFolder folder;
  const auto refused = [](const std::string& model, const std::string& adapter) {
    const CliResult result =
        cli({"generate", model, "--tokens", "2,5", "--adapter", adapter, "--quiet"});
    EXPECT_EQ(result.code, 2) << adapter;
    return result.err;
  };
  EXPECT_THAT(refused(kAdaptedBase, "/no/such/lora"), HasSubstr("no such folder"));
  EXPECT_THAT(refused(kAdaptedBase, kLora + ":strong"), HasSubstr("a scale"));
  EXPECT_THAT(refused(kAdaptedBase, kAdaptedBase), HasSubstr("no adapter_config.json"));
  EXPECT_THAT(refused(test_data("qwen3-a").string(), kLora), HasSubstr("adapter_model"));
  EXPECT_THAT(cli({"generate", kLora, "--tokens", "2,5"}).err,
              AllOf(HasSubstr("is no model itself"), HasSubstr("--adapter " + kLora)));
}

class AdaptedRunTest : public RunFixture {
 protected:
  void write_config(const std::string& adapters) {
    folder_.write("p.jsonl", fmt::format("{{\"tokens\": [{}]}}\n", golden_ids("prompt")));
    folder_.write("c.yaml", fmt::format("model: {{weights: {}, adapters: {}}}\n"
                                        "prompts: {{file: p.jsonl}}\n"
                                        "max_new_tokens: 8\n"
                                        "stop: {{ignore_eos: true}}\n"
                                        "strategies:\n"
                                        "  - type: autoregressive\n"
                                        "  - type: speculative\n"
                                        "    draft_length: 3\n"
                                        "    drafter: {{type: draft_model, weights: {}}}\n",
                                        kAdaptedBase, adapters, kAdaptedBase));
  }
  std::string config() const { return (folder_.path() / "c.yaml").string(); }
};

TEST_F(AdaptedRunTest, RunsTheGoldenTokensAndRecordsTheAdapter) {
  write_config(fmt::format("[{{path: {}}}]", kLora));
  const Report report = run();
  for (const auto& record : records()) {
    EXPECT_EQ(record.generation.tokens, golden_greedy()) << record.key.strategy;
  }
  EXPECT_EQ(report.environment.weights.count(kLora), 1);
  EXPECT_EQ(report.environment.weights.count(kAdaptedBase), 1);
  EXPECT_THAT(report.config_yaml, AllOf(HasSubstr("adapters"), HasSubstr("scale: 1")));
}

TEST_F(AdaptedRunTest, AScaleIsTaken) {
  write_config(fmt::format("[{{path: {}, scale: 0}}]", kLora));
  (void)run();
  for (const auto& record : records()) {
    EXPECT_NE(record.generation.tokens, golden_greedy());
  }
}

TEST_F(AdaptedRunTest, CertifyComparesAdaptedModels) {
  write_config(fmt::format("[{{path: {}}}]", kLora));
  const std::vector<std::string> certify = {"certify", "--config", config(), "--quiet"};
  const CliResult result = cli(certify);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  std::vector<std::string> other = certify;
  other.insert(other.end(),
               {"--set", "model.weights=" + test_data("gemma2-a").string(), "--set",
                "prompts.file=" + folder_.write("q.jsonl", "{\"tokens\": [2, 5]}\n").string(),
                "--set", "strategies=[{type: autoregressive}]"});
  EXPECT_EQ(cli(other).code, 2);
  EXPECT_THAT(cli(other).err, HasSubstr("adapter_model.safetensors")) << "it is applied";
}

TEST_F(AdaptedRunTest, PromptsNameTheirAdapters) {
  write_config(fmt::format("[{{name: full, path: {}}}, {{name: half, path: {}, scale: 0.5}}]",
                           kLora, kLora));
  const std::string ids = golden_ids("prompt");
  const auto line = [&](const std::string& rest) {
    return fmt::format("{{\"tokens\": [{}]{}}}\n", ids, rest);
  };
  folder_.write("p.jsonl", line("") + line(R"(, "adapter": "full")") +
                               line(R"(, "adapter": "half", "category": "x")") + line("") +
                               line(R"(, "adapter": ["full", "half"])") +
                               line(R"(, "adapter": "full")"));
  const Report report = run({"repeats=2"});
  const auto plain = generated({});
  const auto full = golden_greedy();
  const auto half = generated({"--adapter", kLora + ":0.5"});
  const auto both = generated({"--adapter", kLora, "--adapter", kLora + ":0.5"});
  const std::vector<std::vector<Token>> wanted = {plain, full, half, plain, both, full};
  const auto all = records();
  EXPECT_EQ(all.size(), 2 * 2 * wanted.size());
  std::map<std::string, double> bytes;
  for (const auto& record : all) {
    EXPECT_EQ(record.generation.tokens, wanted[std::stoul(record.key.prompt_id) - 1])
        << record.key.prompt_id << " " << record.key.strategy;
    if (record.key.strategy == "autoregressive") {
      bytes[record.key.prompt_id] = *record.bytes_per_step;
    }
  }
  EXPECT_GT(bytes["2"], bytes["1"]) << "a step reads the adapter too";
  EXPECT_GT(bytes["5"], bytes["2"]);
  std::set<std::string> categories;
  for (const auto& row : report.summary.rows) {
    categories.insert(row.category);
  }
  EXPECT_EQ(categories, (std::set<std::string>{"", "(no category)", "adapter full",
                                               "x, adapter half", "adapter full + half"}));
  EXPECT_EQ(report.environment.weights.count(kLora), 1);
}

TEST_F(AdaptedRunTest, AnAdapterOfAllPromptsIsACondition) {
  write_config(fmt::format("[{{name: full, path: {}}}]", kLora));
  const Report report = run({"sweep={prompts.adapter: ['', full]}"});
  ASSERT_EQ(report.sweep_points.size(), 2U);
  EXPECT_EQ(report.sweep_points[1].condition, "adapter=full");
  for (const auto& record : records()) {
    EXPECT_EQ(record.generation.tokens,
              record.key.sweep_point == "adapter=full" ? golden_greedy() : generated({}));
  }
  const std::vector<std::string> certify = {"certify", "--config", config(),
                                            "--quiet", "--set",    "prompts.adapter=full"};
  EXPECT_EQ(cli(certify).code, 0);
}

TEST_F(AdaptedRunTest, AdaptersThatNobodyNamedAreMistakes) {
  write_config(fmt::format("[{{name: full, path: {}}}, {{path: {}, scale: 0}}]", kLora, kLora));
  const auto mistake = [&](const std::string& set) {
    const CliResult result = cli({"check", config(), "--set", set});
    EXPECT_EQ(result.code, 2) << set;
    return result.err;
  };
  EXPECT_THAT(mistake("prompts.adapter=fall"),
              AllOf(HasSubstr("prompts.adapter"), HasSubstr("full")));
  EXPECT_THAT(mistake(fmt::format("model.adapters=[{{name: a, path: {}}}, {{name: a, path: {}}}]",
                                  kLora, kLora)),
              HasSubstr("two adapters are called 'a'"));
  folder_.write("p.jsonl", "{\"tokens\": [2], \"adapter\": \"other\"}\n");
  EXPECT_THAT(mistake("seed=1"), AllOf(HasSubstr("prompt '1'"), HasSubstr("no adapter 'other'")));
  folder_.write("p.jsonl", "{\"tokens\": [2], \"adapter\": 3}\n");
  EXPECT_THAT(mistake("seed=1"), HasSubstr("must be the name"));
  const auto mixed = folder_.write("p.jsonl",
                                   "{\"tokens\": [2], \"adapter\": \"full\"}\n"
                                   "{\"tokens\": [3, 4]}\n");
  EXPECT_THAT(cli({"certify", "--config", config(), "--quiet"}).err, HasSubstr("other adapters"));
  EXPECT_THAT(cli({"score", kAdaptedBase, mixed.string()}).err, HasSubstr("--adapter"));
}

TEST_F(AdaptedRunTest, MistakesNameTheKey) {
  const auto mistake = [&](const std::string& adapters) {
    write_config(adapters);
    const CliResult result = cli({"check", config()});
    EXPECT_EQ(result.code, 2) << adapters;
    return result.err;
  };
  EXPECT_THAT(mistake("[{path: /no/such/lora}]"), HasSubstr("model.adapters[0]"));
  EXPECT_THAT(mistake(fmt::format("[{{path: {}}}]", kAdaptedBase)),
              AllOf(HasSubstr("model.adapters[0].path"), HasSubstr("no adapter_config.json")));
  EXPECT_THAT(mistake(fmt::format("[{{path: {}, scale: .nan}}]", kLora)),
              HasSubstr("model.adapters[0].scale"));
  EXPECT_THAT(mistake(fmt::format("[{{path: {}, weight: 1}}]", kLora)), HasSubstr("weight"));
  EXPECT_THAT(mistake(kLora), HasSubstr("expected a list"));
}

TEST_F(AdaptedRunTest, ALikelyTypingErrorNamesTheKey) {
  folder_.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
  folder_.write("c.yaml", fmt::format("model: {{weights: {}, adapter: []}}\n"
                                      "prompts: {{file: p.jsonl}}\n"
                                      "max_new_tokens: 2\n"
                                      "strategies: [{{type: autoregressive}}]\n",
                                      kAdaptedBase));
  EXPECT_THAT(cli({"check", config()}).err, HasSubstr("adapters"));
}

}  // namespace
}  // namespace specdec
