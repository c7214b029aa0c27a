#include "decoders/verifiers/threshold.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

/// The distribution of (last accepted node, next token) for siblings under the root.
std::map<std::pair<int64_t, Token>, double> threshold_results(const std::vector<Token>& siblings,
                                                              const std::vector<double>& p,
                                                              const ThresholdOptions& options) {
  Draft draft = Draft::root(0);
  for (const Token token : siblings) {
    draft.add(token, 0);
  }
  const Tensor probs = at::tensor(p, at::kDouble).unsqueeze(0).repeat({draft.size(), 1});
  std::map<std::pair<int64_t, Token>, double> distribution;
  EnumeratingRandomness random;
  do {
    const VerifyResult result = verify_with(ThresholdVerifier(options), draft, probs, 1, random);
    const bool accepted = result.path.back() > 0;
    distribution[{result.path.back(), accepted ? -1 : result.next}] += random.probability();
  } while (random.next_outcome());
  return distribution;
}

TEST(ThresholdTest, SiblingsShareOneUniformNumber) {
  // Within 0.2 / 0.8 the first, within (0.2 + 0.3) / 0.8 the second, else what is left.
  const auto distribution = threshold_results({1, 2}, {0.1, 0.2, 0.3, 0.4}, {.acc = 0.8});
  EXPECT_NEAR(distribution.at({1, -1}), 0.25, 1e-15);
  EXPECT_NEAR(distribution.at({2, -1}), 0.375, 1e-15);
  EXPECT_NEAR(distribution.at({0, 0}), 0.375 * 0.1 / 0.5, 1e-15);
  EXPECT_NEAR(distribution.at({0, 3}), 0.375 * 0.4 / 0.5, 1e-15);
}

TEST(ThresholdTest, AnyTokenFromSingleOnIsAccepted) {
  const auto distribution = threshold_results({1, 2}, {0.1, 0.2, 0.3, 0.4}, {.single = 0.3});
  EXPECT_NEAR(distribution.at({1, -1}), 0.2, 1e-15);
  EXPECT_NEAR(distribution.at({2, -1}), 0.8, 1e-15);
  EXPECT_EQ(distribution.size(), 2U);
}

TEST(ThresholdTest, MassBeyondAccIsAcceptedSurely) {
  const auto distribution = threshold_results({3, 2}, {0.1, 0.2, 0.3, 0.4}, {.acc = 0.5});
  EXPECT_NEAR(distribution.at({1, -1}), 0.8, 1e-15);
  EXPECT_NEAR(distribution.at({2, -1}), 0.2, 1e-15);
  EXPECT_EQ(distribution.size(), 2U);
}

TEST(ThresholdTest, AllTokensAsSiblingsLeaveNothingToDraw) {
  const std::vector<double> p = {0.1, 0.2, 0.3, 0.4};
  double sum = 0.0;
  for (const auto& [result, mass] : threshold_results({0, 1, 2, 3}, p, {})) {
    EXPECT_GT(result.first, 0);
    EXPECT_NEAR(mass, p[static_cast<size_t>(result.first) - 1], 1e-15);
    sum += mass;
  }
  EXPECT_NEAR(sum, 1.0, 1e-15);
}

TEST(ThresholdTest, WhenGreedyOnlyTheBestTokenIsAccepted) {
  const auto distribution =
      threshold_results({0, 2, 1}, {0.0, 1.0, 0.0}, {.single = 0.01, .acc = 0.01});
  EXPECT_EQ(distribution, (std::map<std::pair<int64_t, Token>, double>{{{3, -1}, 1.0}}));
  const auto none = threshold_results({0, 2}, {0.0, 1.0, 0.0}, {.single = 0.01, .acc = 0.01});
  EXPECT_EQ(none, (std::map<std::pair<int64_t, Token>, double>{{{0, 1}, 1.0}}));
}

TEST(ThresholdTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(ThresholdVerifier({.single = 0.0}), ConfigError);
  EXPECT_THROW(ThresholdVerifier({.acc = 0.0}), ConfigError);
  EXPECT_THROW(ThresholdVerifier({.single = 1.01}), ConfigError);
  EXPECT_THROW(ThresholdVerifier({.acc = -1.0}), ConfigError);
}

}  // namespace
}  // namespace specdec
