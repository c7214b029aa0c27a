#include "core/sampling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> distribution_of(const std::vector<double>& logits, const SamplingParams& params,
                                    const std::vector<Token>& history = {}) {
  std::vector<double> distribution(logits.size());
  target_distribution(std::span<const double>(logits), history, params, distribution);
  return distribution;
}

void expect_near(const std::vector<double>& distribution, const std::vector<double>& expected,
                 double tolerance = 1e-12) {
  ASSERT_EQ(distribution.size(), expected.size());
  for (size_t i = 0; i < distribution.size(); ++i) {
    EXPECT_NEAR(distribution[i], expected[i], tolerance) << "token " << i;
  }
}

/// Logits whose softmax at temperature 1 is the given distribution.
std::vector<double> logits_of(std::vector<double> distribution) {
  for (double& mass : distribution) {
    mass = std::log(mass);
  }
  return distribution;
}

std::vector<double> random_logits(int64_t size, uint64_t seed) {
  std::vector<double> logits;
  for (int64_t i = 0; i < size; ++i) {
    const auto block =
        philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {static_cast<uint32_t>(seed), 9});
    logits.push_back(8.0 * block[0] / 4294967296.0);
    if (i % 7 == 3) {
      logits.back() = logits[static_cast<size_t>(i) / 2];  // ties
    }
  }
  return logits;
}

/// The definition, by sorting everything.
std::vector<double> sorted_distribution(const std::vector<double>& logits,
                                        const SamplingParams& params) {
  std::vector<double> distribution(logits.size());
  const double best = *std::max_element(logits.begin(), logits.end());
  std::transform(logits.begin(), logits.end(), distribution.begin(),
                 [&](double logit) { return std::exp((logit - best) / params.temperature); });
  std::vector<size_t> ids(distribution.size());
  std::iota(ids.begin(), ids.end(), size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](size_t a, size_t b) { return distribution[a] > distribution[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(ids.size())) {
    ids.resize(static_cast<size_t>(params.top_k));
  }
  const auto mass = [&](size_t count) {
    return std::accumulate(ids.begin(), ids.begin() + static_cast<int64_t>(count), 0.0,
                           [&](double sum, size_t id) { return sum + distribution[id]; });
  };
  size_t kept = 1;
  while (kept < ids.size() && mass(kept) < params.top_p * mass(ids.size())) {
    ++kept;
  }
  std::vector<double> result(distribution.size(), 0.0);
  double sum = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    if (distribution[ids[i]] >= params.min_p * distribution[ids[0]]) {
      result[ids[i]] = distribution[ids[i]];
      sum += distribution[ids[i]];
    }
  }
  std::for_each(result.begin(), result.end(), [&](double& value) { value /= sum; });
  return result;
}

TEST(SamplingTest, TemperatureScalesTheLogits) {
  const double e = std::exp(1.0);
  expect_near(distribution_of({1.0, 0.0}, {.temperature = 1.0}), {e / (e + 1.0), 1.0 / (e + 1.0)});
  expect_near(distribution_of({1.0, 0.0}, {.temperature = 0.5}),
              {e * e / (e * e + 1.0), 1.0 / (e * e + 1.0)});
}

TEST(SamplingTest, GreedyPutsAllMassOnTheFirstOfTheBest) {
  expect_near(distribution_of({1.0, 3.0, 2.0, 3.0}, {}), {0.0, 1.0, 0.0, 0.0}, 0.0);
}

TEST(SamplingTest, TopKKeepsTheMostLikelyAndTiesGoToTheLowerId) {
  expect_near(distribution_of(logits_of({0.1, 0.4, 0.2, 0.3}), {.temperature = 1.0, .top_k = 2}),
              {0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0});
  expect_near(distribution_of({1.0, 1.0, 1.0, 1.0}, {.temperature = 1.0, .top_k = 3}),
              {1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0});
  expect_near(distribution_of({1.0, 1.0}, {.temperature = 1.0, .top_k = 9}), {0.5, 0.5});
}

TEST(SamplingTest, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<double> logits = logits_of({0.15, 0.5, 0.05, 0.3});
  expect_near(distribution_of(logits, {.temperature = 1.0, .top_p = 0.4}), {0.0, 1.0, 0.0, 0.0});
  expect_near(distribution_of(logits, {.temperature = 1.0, .top_p = 0.7}),
              {0.0, 0.625, 0.0, 0.375});
  expect_near(distribution_of(logits, {.temperature = 1.0, .top_p = 1.0}), {0.15, 0.5, 0.05, 0.3});
  expect_near(distribution_of({1.0, 1.0, 1.0, 1.0}, {.temperature = 1.0, .top_p = 0.6}),
              {1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0});
}

TEST(SamplingTest, TopPCountsWhatTopKLeft) {
  // 0.4 + 0.3 of all reaches 0.65; of the two that are left, 0.4 is 0.57 and more is needed.
  const std::vector<double> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  expect_near(distribution_of(logits, {.temperature = 1.0, .top_k = 2, .top_p = 0.55}),
              {1.0, 0.0, 0.0, 0.0});
  expect_near(distribution_of(logits, {.temperature = 1.0, .top_k = 2, .top_p = 0.65}),
              {4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0});
}

TEST(SamplingTest, MinPIsAShareOfTheBest) {
  expect_near(
      distribution_of(logits_of({0.5, 0.3, 0.15, 0.05}), {.temperature = 1.0, .min_p = 0.5}),
      {0.625, 0.375, 0.0, 0.0});
}

TEST(SamplingTest, PenaltyActsOnceOnWhatWasSeen) {
  const SamplingParams params{.temperature = 1.0, .repetition_penalty = 2.0};
  expect_near(distribution_of({2.0, -1.0, 0.5}, params, {0, 0, 1}),
              distribution_of({1.0, -2.0, 0.5}, {.temperature = 1.0}));
  const std::vector<Token> outside = {3};
  EXPECT_THROW(distribution_of({2.0, -1.0, 0.5}, params, outside), InternalError);
}

TEST(SamplingTest, PenaltyOfALongHistoryIsThatOfItsTokens) {
  constexpr Token kVocab = 1000;
  std::vector<double> logits;
  std::vector<double> penalised;
  std::vector<Token> history;
  for (Token token = 0; token < kVocab; ++token) {
    logits.push_back(std::sin(static_cast<double>(token)) * 4.0);
    const bool seen = token % 7 == 0 || token + 1 == kVocab;
    penalised.push_back(!seen                 ? logits.back()
                        : logits.back() > 0.0 ? logits.back() / 1.5
                                              : logits.back() * 1.5);
    if (seen) {
      history.insert(history.begin(), token);
    }
  }
  const SamplingParams params{.temperature = 1.0, .repetition_penalty = 1.5};
  const auto wanted = distribution_of(penalised, {.temperature = 1.0});
  for (int repeat = 0; repeat < 3; ++repeat) {
    expect_near(distribution_of(logits, params, history), wanted, 0.0);
    const auto same = history;
    history.insert(history.end(), same.begin(), same.end());
  }
  history = {999, 0, 7};  // few: sorted
  EXPECT_EQ(distribution_of(logits, params, history)[1],
            distribution_of(logits, params, {0, 7, 999})[1]);
}

TEST(SamplingTest, BiasIsAddedBeforeThePenalty) {
  const double never = -std::numeric_limits<double>::infinity();
  const SamplingParams params{.temperature = 1.0,
                              .repetition_penalty = 2.0,
                              .logit_bias = {{0, -3.0}, {2, 1.5}, {3, never}}};
  expect_near(distribution_of({2.0, -1.0, 0.5, 9.0}, params, {0, 2, 3}),
              distribution_of({-2.0, -1.0, 1.0, never}, {.temperature = 1.0}));
  expect_near(distribution_of({2.0, 1.5}, {.logit_bias = {{1, 0.6}}}), {0.0, 1.0}, 0.0);
  const GreedyChoice choice =
      greedy_choice(LogitRow::of(at::tensor({2.0, 1.5, 0.0})), {}, {.logit_bias = {{0, never}}});
  EXPECT_EQ(choice.token, 1);
  EXPECT_DOUBLE_EQ(choice.gap, 1.5);
  EXPECT_THROW(distribution_of({2.0, 1.0}, {.logit_bias = {{2, 1.0}}}), InternalError);
  EXPECT_THROW(distribution_of({2.0, 1.0}, {.logit_bias = {{0, never}, {1, never}}}), Error);
}

TEST(SamplingTest, LogMassesIncludeTheBias) {
  const LogitRow plain = LogitRow::of(at::tensor({2.0, 1.5, 0.0}, at::kDouble));
  const LogitRow shifted = LogitRow::of(at::tensor({1.0, 1.5, 0.75}, at::kDouble));
  const auto allowed = std::make_shared<const std::vector<uint32_t>>(1, 0b101U);
  const SamplingParams biased{.temperature = 0.5, .logit_bias = {{0, -1.0}, {2, 0.75}}};
  const LogMasses found = log_masses(plain, {}, biased, allowed, 2);
  const LogMasses wanted = log_masses(shifted, {}, {.temperature = 0.5}, allowed, 2);
  EXPECT_DOUBLE_EQ(found.allowed, wanted.allowed);
  EXPECT_DOUBLE_EQ(found.token, wanted.token);
}

TEST(SamplingTest, MaskAndBiasTogetherMayForbidAll) {
  const double never = -std::numeric_limits<double>::infinity();
  const auto some = std::make_shared<const std::vector<uint32_t>>(2, 0b110U);  // 1, 2, 33, 34
  EXPECT_FALSE(forbids_all({}, nullptr, 40));
  EXPECT_FALSE(forbids_all({{1, never}, {2, never}, {33, -7.0}}, some, 34));
  EXPECT_TRUE(forbids_all({{1, never}, {2, never}}, some, 33));
  EXPECT_FALSE(forbids_all({{1, never}, {3, never}}, some, 33));
  EXPECT_FALSE(forbids_all({{1, never}, {2, never}, {33, never}}, some, 70));
  EXPECT_TRUE(forbids_all({{1, never}, {2, never}, {33, never}, {34, never}}, some, 70));
  EXPECT_TRUE(forbids_all({{0, never}, {1, never}}, nullptr, 2));
  EXPECT_TRUE(forbids_all({}, std::make_shared<const std::vector<uint32_t>>(), 5));
}

TEST(SamplingTest, PenaltyChangesTheGreedyTokenToo) {
  expect_near(distribution_of({2.0, 1.5}, {.repetition_penalty = 2.0}, {0}), {0.0, 1.0}, 0.0);
  const GreedyChoice choice = greedy_choice(LogitRow::of(at::tensor({2.0, 1.5, 0.0})),
                                            std::vector<Token>{0}, {.repetition_penalty = 2.0});
  EXPECT_EQ(choice.token, 1);
  EXPECT_DOUBLE_EQ(choice.gap, 0.5);
}

TEST(SamplingTest, GreedyChoiceMeasuresTheGap) {
  EXPECT_EQ(greedy_choice(LogitRow::of(at::tensor({1.0F, 3.0F, 3.0F})), {}, {}).token, 1);
  EXPECT_EQ(greedy_choice(LogitRow::of(at::tensor({1.0F, 3.0F, 3.0F})), {}, {}).gap, 0.0);
  EXPECT_EQ(greedy_choice(LogitRow::of(at::tensor({1.0F, 3.5F, 3.0F})), {}, {}).gap, 0.5);
  EXPECT_EQ(greedy_choice(LogitRow::of(at::tensor({1.0F})), {}, {}).gap, kInfinity);
}

TEST(SamplingTest, EqualsTheDefinitionOnLargeVocabularies) {
  const std::vector<SamplingParams> settings = {
      {.temperature = 1.0},
      {.temperature = 0.7, .top_k = 40},
      {.temperature = 2.0, .top_p = 0.9},
      {.temperature = 0.5, .top_p = 0.5},
      {.temperature = 1.5, .top_k = 900, .top_p = 0.95, .min_p = 0.02},
      {.temperature = 0.3, .top_k = 1},
      {.temperature = 5.0, .top_p = 0.999}};
  for (const int64_t vocab : {130, 2048}) {
    const std::vector<double> logits = random_logits(vocab, static_cast<uint64_t>(vocab));
    for (const SamplingParams& params : settings) {
      const std::vector<double> distribution = distribution_of(logits, params);
      expect_near(distribution, sorted_distribution(logits, params));
      EXPECT_NEAR(std::accumulate(distribution.begin(), distribution.end(), 0.0), 1.0, 1e-12);
    }
  }
}

TEST(SamplingTest, TakesFloatAndTensorsAlike) {
  const std::vector<float> logits = {0.5F, -1.25F, 2.0F};
  const SamplingParams params{.temperature = 0.8};
  std::vector<double> from_float(3);
  target_distribution(std::span<const float>(logits), {}, params, from_float);
  expect_near(from_float, distribution_of({0.5, -1.25, 2.0}, params), 0.0);
  std::vector<double> from_tensor(3);
  target_distribution(at::tensor({0.5F, -1.25F, 2.0F}), {}, params, from_tensor);
  expect_near(from_tensor, from_float, 0.0);
  target_distribution(at::tensor({0.5, 9.0, -1.25, 9.0, 2.0}).slice(0, 0, 5, 2), {}, params,
                      from_tensor);
  expect_near(from_tensor, from_float, 0.0);
  EXPECT_THROW(target_distribution(at::zeros({3}, at::kInt), {}, params, from_tensor),
               InternalError);
  EXPECT_THROW(target_distribution(at::zeros({1, 3}), {}, params, from_tensor), InternalError);
  EXPECT_THROW(target_distribution(at::zeros({4}), {}, params, from_tensor), InternalError);
}

TEST(SamplingTest, ForbiddenTokensGetNoMass) {
  expect_near(distribution_of({1.0, -kInfinity, 1.0}, {.temperature = 1.0}), {0.5, 0.0, 0.5});
  expect_near(distribution_of({1.0, -kInfinity, 1.0}, {.temperature = 1e-310}), {0.5, 0.0, 0.5});
}

TEST(SamplingTest, FewAllowedTokensAreFoundAtEveryTemperature) {
  std::vector<double> logits(1000, -kInfinity);
  std::vector<double> expected(1000, 0.0);
  for (const size_t token : {3U, 500U, 999U}) {
    logits[token] = 1.0;
    expected[token] = 1.0 / 3.0;
  }
  for (const double temperature : {1e-310, 1.0, 1e300, 1e306, 1e308}) {
    expect_near(distribution_of(logits, {.temperature = temperature, .top_k = 50}), expected);
    expect_near(distribution_of(logits, {.temperature = temperature, .top_p = 0.9}), expected);
    expect_near(distribution_of(logits, {.temperature = temperature, .min_p = 0.5}), expected);
  }
}

TEST(SamplingTest, DamagedLogitsAreAnError) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    const SamplingParams params{.temperature = temperature};
    EXPECT_THROW(distribution_of({1.0, nan, 0.0}, params), Error);
    EXPECT_THROW(distribution_of({nan, nan}, params), Error);
    EXPECT_THROW(distribution_of({1.0, kInfinity}, params), Error);
    EXPECT_THROW(distribution_of({-kInfinity, -kInfinity}, params), Error);
    EXPECT_THROW(distribution_of({}, params), InternalError);
  }
}

TEST(SamplingTest, ABiasThatForbidsAllIsNamed) {
  const auto message = [](const LogitBias& bias, const AllowedTokens& allowed) {
    const std::vector<double> logits = {1.0, 2.0, 3.0};
    try {
      (void)token_probs({{}, std::span<const double>(logits)}, {}, {.logit_bias = bias}, allowed);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto last = std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{4});
  EXPECT_EQ(message({{2, -kInfinity}}, nullptr), "");
  EXPECT_EQ(message({{2, -kInfinity}}, last), forbidden_logits());
}

TEST(SamplingTest, ValidateNamesWhatIsOutOfRange) {
  const auto message = [](const SamplingParams& params) -> std::string {
    try {
      params.validate();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(
      message(
          {.temperature = 0.7, .top_k = 5, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.1}),
      "");
  EXPECT_EQ(message({.temperature = -1.0}),
            "sampling.temperature is -1; it must be 0 (greedy) or more");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(message({.temperature = nan}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_NE(message({.top_p = 0.0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.top_p = nan}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = 1.5}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0.0}).find("repetition_penalty"), std::string::npos);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(message({.logit_bias = {{3, -infinity}, {4, 2.0}}}), "");
  EXPECT_NE(message({.logit_bias = {{4, infinity}}}).find("logit_bias of token 4 is inf"),
            std::string::npos);
  EXPECT_NE(message({.logit_bias = {{4, nan}}}).find("logit_bias"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{-1, 0.0}}}).find("token -1"), std::string::npos);
}

TEST(SamplingTest, ArgmaxTakesTheFirst) {
  EXPECT_EQ(argmax(std::vector<double>{-3.0, -1.0, -1.0}), 1);
  EXPECT_THROW(argmax({}), InternalError);
}

}  // namespace
}  // namespace specdec
