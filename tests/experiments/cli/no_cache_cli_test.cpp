// `generate --no-cache`: every token from a prefill of the whole text, the oracle of the cached
// forward.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

nlohmann::json decoded(const std::string& model, const std::vector<Token>& prompt,
                       const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {
      "generate", model,        "--tokens",     fmt::format("{}", fmt::join(prompt, ",")),
      "--json",   "--logprobs", "--ignore-eos", "--max-new-tokens",
      "8"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const CliResult result = cli(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? nlohmann::json::parse(result.out) : nlohmann::json();
}

void expect_same_without_cache(const std::string& model, const std::vector<Token>& prompt,
                               std::vector<std::string> options) {
  const nlohmann::json cached = decoded(model, prompt, options);
  options.emplace_back("--no-cache");
  const nlohmann::json oracle = decoded(model, prompt, options);
  EXPECT_EQ(cached["tokens"], oracle["tokens"]);
  EXPECT_EQ(cached["logprobs"], oracle["logprobs"]) << "bit for bit";
  EXPECT_EQ(cached["statistics"]["drafted"], oracle["statistics"]["drafted"]);
  EXPECT_EQ(cached["statistics"]["accepted"], oracle["statistics"]["accepted"]);
}

class NoCacheTest : public testing::TestWithParam<std::string> {};

TEST_P(NoCacheTest, DecodesTheTokensOfTheCachedRun) {
  const auto model = test_data(GetParam()).string();
  const std::vector<Token> prompt = {2, 5, 7, 11, 13, 5, 7};
  expect_same_without_cache(model, prompt, {});
  expect_same_without_cache(model, prompt, {"--temperature", "1", "--seed", "3"});
}

INSTANTIATE_TEST_SUITE_P(Families, NoCacheTest, testing::ValuesIn(found_golden(all_golden_names())),
                         ParameterName());

class NoCacheStrategyTest : public testing::TestWithParam<std::string> {};

TEST_P(NoCacheStrategyTest, DraftsAndTokensAreThoseOfTheCachedRun) {
  expect_same_without_cache(test_data("gemma3-a").string(), {2, 5, 7, 11, 13, 5, 7},
                            {"--strategy", GetParam()});
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, NoCacheStrategyTest,
    testing::Values("{type: speculative, drafter: {type: prompt_lookup, min_ngram: 1}}",
                    "{type: speculative, draft_length: 3, drafter: {type: draft_model, weights: " +
                        test_data("gemma3-a").string() + "}}",
                    "{type: speculative, tree: {type: static, widths: [3, 2, 1]}, drafter: {type: "
                    "draft_model, weights: " +
                        test_data("gemma3-a").string() + "}}",
                    "{type: beam_search, num_beams: 3}"),
    [](const auto& info) { return fmt::format("_{}", info.index); });

TEST(NoCacheCliTest, DraftersOnTheTargetsLayersAreRefused) {
  const CliResult result =
      cli({"generate", test_data("gemma3-a").string(), "--tokens", "2,5", "--no-cache",
           "--strategy", "{type: speculative, drafter: {type: self, layers: 1}}"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--no-cache: "), HasSubstr("target")));
}

}  // namespace
}  // namespace specdec
