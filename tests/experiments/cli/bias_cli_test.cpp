// `generate --logit-bias` and `--active-layers`.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/formats/safetensors.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

const std::string kBiasModel = test_data("gemma3-a").string();

CliResult run_generate(std::vector<std::string> options, const std::string& model = kBiasModel) {
  std::vector<std::string> arguments = {
      "generate", model, "--tokens", "2,5,7,5,7,5", "--ignore-eos", "--max-new-tokens", "12"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return cli(arguments);
}

std::vector<Token> tokens_of(std::vector<std::string> options) {
  options.emplace_back("--json");
  const CliResult result = run_generate(std::move(options));
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? nlohmann::json::parse(result.out)["tokens"].get<std::vector<Token>>()
                          : std::vector<Token>();
}

TEST(BiasCliTest, ForbiddenTokensDoNotComeWhateverTheStrategy) {
  const std::vector<Token> plain = tokens_of({});
  const std::string forbid = std::to_string(plain.front()) + "=-inf";
  const std::vector<Token> biased = tokens_of({"--logit-bias", forbid, "--logit-bias", "9=0.5"});
  EXPECT_EQ(biased.size(), 12U);
  EXPECT_EQ(std::count(biased.begin(), biased.end(), plain.front()), 0);
  EXPECT_EQ(tokens_of({"--logit-bias", forbid, "--logit-bias", "9=0.5", "--strategy",
                       "{type: speculative, drafter: {type: prompt_lookup}}"}),
            biased);
  EXPECT_EQ(tokens_of({"--logit-bias", "9=1000"}), std::vector<Token>(12, 9));
}

TEST(BiasCliTest, MisuseIsNamed) {
  const auto message = [](const std::string& bias, const std::string& model = kBiasModel) {
    const CliResult result = run_generate({"--logit-bias", bias}, model);
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_THAT(message("9"), HasSubstr("'9' is no TOKEN=NUMBER"));
  EXPECT_THAT(message("9=inf"), HasSubstr("'9=inf' is no TOKEN=NUMBER"));
  EXPECT_THAT(message("512=1"), HasSubstr("token 512 lies outside the model's vocabulary of 512"));
  EXPECT_THAT(message("the=1"), HasSubstr("has no tokenizer"));
  EXPECT_THAT(message("To be, or=1", kShippedTokenizer), HasSubstr("tokens, not one"));
  const CliResult twice = run_generate({"--logit-bias", "9=1", "--logit-bias", "09=2"});
  EXPECT_THAT(twice.err, HasSubstr("this token has a bias already"));
}

TEST(SamplingCliTest, OptionsWithoutEffectAreNamed) {
  const auto warning = [](std::vector<std::string> options) {
    const CliResult result = run_generate(std::move(options));
    EXPECT_EQ(result.code, 0) << result.err;
    const size_t begin = result.err.find("warning: ");
    return begin == std::string::npos
               ? ""
               : result.err.substr(begin, result.err.find('\n', begin) - begin);
  };
  EXPECT_EQ(warning({}), "");
  EXPECT_EQ(warning({"--top-p", "1", "--seed", "0", "--samples", "1"}), "") << "the defaults";
  EXPECT_THAT(warning({"--top-k", "5", "--top-p", "0.9", "--min-p", "0.1", "--seed", "3"}),
              testing::StartsWith("warning: --top-k, --top-p, --min-p, --seed: no effect at "
                                  "temperature 0"));
  EXPECT_THAT(warning({"--samples", "2"}), HasSubstr("--samples: no effect"));
  EXPECT_EQ(warning({"--top-k", "5", "--seed", "3", "--temperature", "1"}), "");
  EXPECT_EQ(warning({"--repetition-penalty", "1.1", "--logit-bias", "9=1"}), "")
      << "greedy decoding reads them";
  EXPECT_EQ(warning({"--top-k", "5", "--quiet"}), "");
  const std::string speculative = "{type: speculative, drafter: {type: prompt_lookup}}";
  EXPECT_EQ(warning({"--seed", "3", "--strategy", speculative}), "") << "a verifier may draw";
  EXPECT_THAT(warning({"--top-k", "5", "--strategy", speculative}), HasSubstr("--top-k: no"));
}

TEST(BiasCliTest, FewerLayersDecodeAsOthersOfThem) {
  const std::vector<Token> whole = tokens_of({});
  EXPECT_EQ(tokens_of({"--active-layers", "6"}), whole);
  EXPECT_NE(tokens_of({"--active-layers", "2"}), whole);
  const CliResult result = run_generate({"--active-layers", "7"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("active_layers is 7, but the model has 6 layers"));
}

TEST(BiasCliTest, LogitsOfFewerLayers) {
  const TemporaryFolder folder;
  const auto fingerprint = [&](const std::string& layers) {
    const std::string file = (folder.path() / (layers + ".safetensors")).string();
    const CliResult result =
        cli({"logits", kBiasModel, "--tokens", "2,5,7", "--out", file, "--active-layers", layers});
    EXPECT_EQ(result.code, 0) << result.err;
    return SafetensorsFile(file).metadata().at("fingerprint");
  };
  EXPECT_NE(fingerprint("3"), fingerprint("0"));
}

}  // namespace
}  // namespace specdec
