// Beam search through the command line, against the golden set; and what comes with it: samples,
// log-probabilities, scores of texts.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/reference.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/speculative_beam.h"
#include "kv/paged_kv.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

const std::string kBeamModel = test_data("gemma3-a").string();

Json json_of(const Arguments& arguments) {
  const CliResult result = cli(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? Json::parse(result.out) : Json();
}

std::string list(const std::vector<Token>& tokens) {
  return fmt::format("{}", fmt::join(tokens, ","));
}

Arguments generate(const Arguments& more) {
  Arguments arguments = {
      "generate",         kBeamModel, "--tokens", list(Golden("gemma3-a").tokens("prompt")),
      "--max-new-tokens", "12",       "--json",   "--dtype",
      "float32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> beam_strategies() {
  return {"{type: beam_search, num_beams: 4}",
          "{type: speculative_beam, num_beams: 4, drafter: {type: draft_model, weights: " +
              kBeamModel + "}}",
          "{type: speculative_beam, num_beams: 4, drafter: {type: prompt_lookup}}"};
}

void expect_golden(const Json& json, const std::string& name, Token end) {
  const Golden golden("gemma3-a");
  const at::Tensor sequences = golden.tensor(name + "_sequences");
  const at::Tensor scores = golden.tensor(name + "_scores");
  ASSERT_EQ(json["hypotheses"].size(), 4U);
  for (int64_t i = 0; i < 4; ++i) {
    const Json& hypothesis = json["hypotheses"][static_cast<size_t>(i)];
    std::vector<Token> expected;
    for (int64_t at = 0; at < sequences.size(1); ++at) {
      expected.push_back(static_cast<Token>(sequences[i][at].item<int64_t>()));
      if (at >= 8 && expected.back() == end) {
        break;  // padding follows
      }
    }
    EXPECT_EQ(hypothesis["tokens"].get<std::vector<Token>>(), expected) << "hypothesis " << i;
    EXPECT_NEAR(hypothesis["score"].get<double>(), scores[i].item<double>(), 1e-4);
  }
  const auto best = json["hypotheses"][0]["tokens"].get<std::vector<Token>>();
  EXPECT_EQ(json["tokens"].get<std::vector<Token>>(),
            std::vector<Token>(best.begin() + 8, best.end()));
}

TEST(BeamCliTest, GoldenHypotheses) {
  for (const std::string& strategy : beam_strategies()) {
    SCOPED_TRACE(strategy);
    expect_golden(json_of(generate({"--ignore-eos", "--strategy", strategy})), "beam", -1);
  }
}

TEST(BeamCliTest, GoldenHypothesesWithAnEndToken) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  std::filesystem::copy(kBeamModel, model);
  const auto end = Golden("gemma3-a").tensor("beam_eos_id").item<int64_t>();
  std::ofstream(model + "/generation_config.json") << fmt::format("{{\"eos_token_id\": {}}}", end);
  int ended = 0;
  for (const std::string& strategy : beam_strategies()) {
    SCOPED_TRACE(strategy);
    Arguments arguments = generate({"--strategy", strategy});
    arguments[1] = model;
    const Json json = json_of(arguments);
    expect_golden(json, "beam_eos", static_cast<Token>(end));
    for (const Json& hypothesis : json["hypotheses"]) {
      ended += hypothesis["tokens"].back() == end ? 1 : 0;
    }
  }
  EXPECT_GT(ended, 0);
}

TEST(BeamCliTest, ADrafterThatIsTheTargetSavesCalls) {
  const Json plain = json_of(generate({"--ignore-eos", "--strategy", beam_strategies()[0]}));
  const Json drafted = json_of(generate({"--ignore-eos", "--strategy", beam_strategies()[1]}));
  EXPECT_EQ(plain["statistics"]["target_calls_saved"], 0);
  EXPECT_EQ(plain["statistics"]["beam_steps"], 12);
  EXPECT_EQ(drafted["statistics"]["beam_steps"], 12);
  EXPECT_GE(drafted["statistics"]["target_calls_saved"], 6);
}

TEST(BeamCliTest, ReturnsAsManyAsAskedFor) {
  const Json json = json_of(
      generate({"--strategy",
                "{type: beam_search, num_beams: 3, num_return_sequences: 2, early_stopping: "
                "never, length_penalty: 0.5}"}));
  EXPECT_EQ(json["hypotheses"].size(), 2U);
}

TEST(BeamCliTest, RefusesWhatCannotWork) {
  const auto refused = [](const Arguments& more, const std::string& why) {
    const CliResult result = cli(generate(more));
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"--strategy", "{type: beam_search}", "--temperature", "0.7"}, "temperature is 0.7");
  refused({"--strategy", "{type: beam_search, num_beams: 0}"}, "num_beams");
  refused({"--strategy", "{type: beam_search, early_stopping: maybe}"},
          "known: false, true, never");
  refused({"--strategy", "{type: beam_search, num_beams: 2, num_return_sequences: 3}"},
          "more than num_beams (2)");
  refused({"--strategy", "{type: speculative_beam}"}, "'drafter' is missing");
}

/// All that the strategies share of a golden model.
class BeamModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  std::shared_ptr<const TransformerWeights> weights_ = load_model(test_data(GetParam()), {});
};

TEST_P(BeamModelTest, SpeculativeBeamSearchEqualsPlainBeamSearchBitForBit) {
  const Golden golden(GetParam());
  const auto prompt = golden.tokens("prompt");
  // Pages are split and shared often, and of sliding layers given back.
  for (const auto& [num_beams, slack] : {std::pair(1, 0), {3, 0}, {5, 0}, {1, 4}, {5, 4}}) {
    TransformerModel target(weights_, paged_kv(4, KvFormat::kNative, 0, slack));
    const BeamOptions beams{.num_beams = num_beams, .num_return_sequences = num_beams};
    const Task task{prompt, {}, {.max_new_tokens = 24, .end_ids = {golden.tokens("greedy")[15]}}};
    CounterRandomness random(1);
    const Generation plain = BeamSearchDecoding(target, beams).generate(task.request(random));
    SpeculativeBeamSearch decoding(
        target,
        std::make_unique<DraftModelDrafter>(
            std::make_unique<TransformerModel>(weights_, paged_kv(1, KvFormat::kNative, 0, slack))),
        {.beams = beams, .draft_length = 3, .draft_width = num_beams});
    const Generation found = decoding.generate(task.request(random));
    ASSERT_EQ(found.hypotheses.size(), plain.hypotheses.size());
    for (size_t i = 0; i < found.hypotheses.size(); ++i) {
      EXPECT_EQ(found.hypotheses[i].tokens, plain.hypotheses[i].tokens);
      EXPECT_EQ(found.hypotheses[i].score, plain.hypotheses[i].score);
    }
    EXPECT_LT(found.steps.size(), plain.steps.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BeamModelTest, testing::Values("gemma-a", "gemma2-a", "gemma3-a"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.size() - 2);
                         });

TEST(GenerateTest, SamplesAreTheRepeatsOfTheSeed) {
  const Json one = json_of(generate({"--temperature", "1", "--seed", "3"}));
  const Json several = json_of(generate({"--temperature", "1", "--seed", "3", "-n", "3"}));
  ASSERT_EQ(several["samples"].size(), 3U);
  EXPECT_EQ(several["samples"][0]["tokens"], one["tokens"]);
  EXPECT_NE(several["samples"][1]["tokens"], one["tokens"]);
  EXPECT_NE(several["samples"][1]["tokens"], several["samples"][2]["tokens"]);
  const CliResult text = cli({"generate", kBeamModel, "--tokens", "2,5", "--max-new-tokens", "2",
                              "--ignore-eos", "--samples", "2", "--quiet"});
  EXPECT_THAT(text.out, HasSubstr("[sample 1 of 2]\n"));
  EXPECT_THAT(text.out, HasSubstr("[sample 2 of 2]\n"));
  EXPECT_EQ(cli(generate({"-n", "0"})).code, 2);
}

/// log_softmax of the plain forward's logits, [T, vocab] float64.
at::Tensor reference_log_probs(const std::string& folder, const std::vector<Token>& tokens) {
  LoadOptions options;
  options.dtype = at::kFloat;
  const auto ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong);
  return at::log_softmax(reference_forward(*load_model_tensors(folder, options), ids.unsqueeze(0))
                             .logits[0]
                             .to(at::kDouble),
                         1);
}

TEST(GenerateTest, LogProbabilitiesAreTheRawDistributions) {
  // Sampled and penalised, so that the raw distribution is not the processed one.
  const Json json = json_of(generate(
      {"--temperature", "1.5", "--repetition-penalty", "1.2", "--top-k", "9", "--logprobs", "3"}));
  std::vector<Token> sequence = Golden("gemma3-a").tokens("prompt");
  const auto output = json["tokens"].get<std::vector<Token>>();
  sequence.insert(sequence.end(), output.begin(), output.end());
  const at::Tensor expected = reference_log_probs(kBeamModel, sequence);
  ASSERT_EQ(json["logprobs"].size(), output.size());
  for (size_t i = 0; i < output.size(); ++i) {
    const Json& row = json["logprobs"][i];
    const at::Tensor distribution = expected[static_cast<int64_t>(7 + i)];
    EXPECT_EQ(row["token"], output[i]);
    EXPECT_NEAR(row["log_prob"].get<double>(), distribution[output[i]].item<double>(), 1e-4);
    ASSERT_EQ(row["top"].size(), 3U);
    EXPECT_EQ(row["top"][0]["token"], distribution.argmax().item<int64_t>());
    EXPECT_NEAR(row["top"][0]["log_prob"].get<double>(), distribution.max().item<double>(), 1e-4);
    EXPECT_GE(row["top"][1]["log_prob"], row["top"][2]["log_prob"]);
  }
  const Json bare = json_of(generate({"--logprobs"}));
  EXPECT_FALSE(bare["logprobs"][0].contains("top"));
  EXPECT_THAT(cli({"generate", kBeamModel, "--tokens", "2", "--logprobs"}).err,
              HasSubstr("add --json"));
}

TEST(ScoreTest, TextScoresAreTheReferenceForwards) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  const std::string text = "To be, or not to be, that is the question.";
  const auto file = folder.write("text.txt", text).string();
  const Json json = json_of({"score", model, file, "--json", "--tokens", "--dtype", "float32"});

  const auto tokenizer = load_tokenizer(model);
  std::vector<Token> tokens = tokenizer->encode(text);
  tokens.insert(tokens.begin(), *tokenizer->bos());
  const at::Tensor expected = reference_log_probs(model, tokens);
  ASSERT_EQ(json["token_log_probs"].size(), tokens.size() - 1);
  double nats = 0.0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const double log_prob = expected[static_cast<int64_t>(i - 1)][tokens[i]].item<double>();
    const Json& row = json["token_log_probs"][i - 1];
    EXPECT_EQ(row["token"], tokens[i]);
    EXPECT_EQ(row["position"], i);
    EXPECT_NEAR(row["log_prob"].get<double>(), log_prob, 1e-4);
    nats -= log_prob;
  }
  const auto count = static_cast<double>(tokens.size() - 1);
  EXPECT_NEAR(json["nll"].get<double>(), nats / count, 1e-5);
  EXPECT_NEAR(json["bits_per_byte"].get<double>(),
              nats / std::numbers::ln2 / static_cast<double>(text.size()), 1e-5);
  EXPECT_EQ(json["windows"], 1);

  const CliResult table = cli({"score", model, file, "--tokens", "--quiet"});
  EXPECT_THAT(table.out, HasSubstr("bits per byte"));
  EXPECT_THAT(table.out, HasSubstr("nats per token"));
}

TEST(ScoreTest, WindowsBeginWithBos) {
  const TemporaryFolder folder;
  const auto file =
      folder.write("tokens.jsonl", "{\"tokens\": [2, 5, 7, 11, 13, 17], \"id\": \"a\"}\n").string();
  const Json json = json_of(
      {"score", kBeamModel, file, "--json", "--tokens", "--window", "4", "--dtype", "float32"});
  EXPECT_EQ(json["windows"], 2);
  EXPECT_TRUE(json["bits_per_byte"].is_null()) << "ids have no bytes";
  const at::Tensor first = reference_log_probs(kBeamModel, {2, 5, 7, 11});
  const at::Tensor second = reference_log_probs(kBeamModel, {2, 13, 17});
  const std::vector<double> expected = {first[0][5].item<double>(), first[1][7].item<double>(),
                                        first[2][11].item<double>(), second[0][13].item<double>(),
                                        second[1][17].item<double>()};
  ASSERT_EQ(json["token_log_probs"].size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(json["token_log_probs"][i]["log_prob"].get<double>(), expected[i], 1e-4);
    EXPECT_EQ(json["token_log_probs"][i]["passage"], "a");
    EXPECT_EQ(json["token_log_probs"][i]["position"], i + 1);
  }
}

TEST(ScoreTest, ComparesDtypes) {
  const TemporaryFolder folder;
  const auto file =
      folder.write("tokens.jsonl", "{\"tokens\": [2, 5, 7, 11, 13, 17, 19, 23, 29]}\n").string();
  const auto against = [&](const std::string& dtype) {
    return json_of({"score", kBeamModel, file, "--json", "--dtype", "float32", "--against-dtype",
                    dtype})["against"];
  };
  const Json same = against("float32");
  EXPECT_EQ(same["kl"], 0.0);
  EXPECT_EQ(same["top1_agreement"], 1.0);
  EXPECT_NEAR(same["overlap"].get<double>(), 1.0, 1e-12);
  const Json rounded = against("bfloat16");
  EXPECT_GT(rounded["kl"].get<double>(), 1e-7);
  EXPECT_LT(rounded["kl"].get<double>(), 0.05);
  EXPECT_LT(rounded["overlap"].get<double>(), 1.0);
  const CliResult table = cli({"score", kBeamModel, file, "--quiet", "--against", kBeamModel,
                               "--against-dtype", "bfloat16"});
  EXPECT_THAT(table.out, HasSubstr("top-1 agreement"));
}

TEST(ScoreTest, ComparesCaches) {
  const TemporaryFolder folder;
  const auto file =
      folder.write("tokens.jsonl", "{\"tokens\": [2, 5, 7, 11, 13, 17, 19, 23, 29]}\n").string();
  const auto against = [&](const std::string& cache) {
    return json_of({"score", kBeamModel, file, "--json", "--tokens", "--dtype", "float32",
                    "--against-cache", cache});
  };
  const Json same = against("{type: paged, page_size: 4}");
  EXPECT_EQ(same["against"]["kl"], 0.0);
  const Json rounded = against("{type: paged, format: q4, lossy: true}");
  const double kl = rounded["against"]["kl"].get<double>();
  EXPECT_GT(kl, 1e-7);
  double tokens = 0;
  for (const Json& token : rounded["token_log_probs"]) {
    tokens += token["kl"].get<double>() / 8;
  }
  EXPECT_NEAR(tokens, kl, 1e-12);
  double quarters = 0;  // of two tokens each
  for (const Json& quarter : rounded["against"]["kl_by_quarter"]) {
    quarters += quarter.get<double>() / 4;
  }
  EXPECT_NEAR(quarters, kl, 1e-12);
  EXPECT_THAT(rounded["against"]["model"].get<std::string>(), HasSubstr("with cache {type: paged"));
  const CliResult wrong =
      cli({"score", kBeamModel, file, "--against-cache", "{type: paged, format: q5}"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--against-cache"));
  const CliResult empty = cli({"score", kBeamModel, file, "--against-cache", ""});
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("--against-cache: is empty"));
}

TEST(ScoreTest, RefusesWhatCannotBeScored) {
  const TemporaryFolder folder;
  const auto refused = [](const Arguments& arguments, const std::string& why) {
    const CliResult result = cli(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  const auto text = folder.write("text.txt", "hello").string();
  const auto ids = folder.write("ids.jsonl", "{\"tokens\": [2, 5, 7]}\n").string();
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  refused({"score", kBeamModel, text}, "has no tokenizer");
  refused({"score", model, folder.write("empty.txt", "").string()}, "holds nothing to score");
  refused({"score", model, folder.write("binary.txt", "abc\xff\x01").string()},
          "byte 4 is not part");
  refused({"score", model, (folder.path() / "none.txt").string()}, "none.txt");
  refused({"score", kBeamModel, ids, "--against", model}, "512 and 600 entries");
  refused({"score", kBeamModel, ids, "--window", "1000000"}, "more than the model takes");
  refused({"score", kBeamModel, folder.write("x.jsonl", "{\"tokens\": [2, 600]}\n").string()},
          "vocabulary");
}

}  // namespace
}  // namespace specdec
