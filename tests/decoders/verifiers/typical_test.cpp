#include "decoders/verifiers/typical.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

Tensor distributions(std::vector<std::vector<double>> rows) {
  std::vector<Tensor> tensors;
  for (const auto& row : rows) {
    tensors.push_back(at::tensor(row, at::kDouble));
  }
  return at::stack(tensors);
}

std::vector<int64_t> path_of(const Draft& draft, const Tensor& probs,
                             const TypicalOptions& options = {}) {
  CounterRandomness random(1);
  return verify_with(TypicalVerifier(options), draft, probs, 1, random).path;
}

TEST(TypicalTest, TheThresholdIsTheLowerOfEpsilonAndTheEntropysShare) {
  const std::vector<double> p = {0.05, 0.15, 0.8};
  double entropy = 0.0;
  for (const double mass : p) {
    entropy -= mass * std::log(mass);
  }
  const double share = 0.3 * std::exp(-entropy);  // 0.16: epsilon 0.09 is lower
  const Tensor probs = distributions({p, p});
  for (const Token token : {0, 1, 2}) {
    Draft draft = Draft::root(0);
    draft.add(token, 0);
    const double mass = p[static_cast<size_t>(token)];
    EXPECT_EQ(path_of(draft, probs).size() == 2, mass >= 0.09) << token;
    EXPECT_EQ(path_of(draft, probs, {.epsilon = 1.0}).size() == 2, mass >= share) << token;
  }
}

TEST(TypicalTest, TheLongestPathWinsThenTheMoreLikely) {
  Draft draft = Draft::root(0);
  draft.add(0, 0);  // 1: likely, but nothing follows
  draft.add(1, 0);  // 2
  draft.add(0, 2);  // 3: less likely than 4
  draft.add(1, 2);  // 4
  draft.add(2, 1);  // 5: not accepted
  const Tensor probs = distributions({{0.6, 0.4, 0.0},
                                      {0.5, 0.5, 0.0},
                                      {0.3, 0.7, 0.0},
                                      {1.0, 0.0, 0.0},
                                      {1.0, 0.0, 0.0},
                                      {1.0, 0.0, 0.0}});
  EXPECT_EQ(path_of(draft, probs), (std::vector<int64_t>{0, 2, 4}));
}

TEST(TypicalTest, TheNextTokenComesFromTheTargetAtThePathsEnd) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  std::map<Token, double> distribution;
  EnumeratingRandomness random;
  do {
    const VerifyResult result =
        verify_with(TypicalVerifier(), draft, distributions({{0.5, 0.5}, {0.25, 0.75}}), 1, random);
    EXPECT_EQ(result.path.size(), 2U) << "accepted deterministically";
    distribution[result.next] += random.probability();
  } while (random.next_outcome());
  EXPECT_EQ(distribution, (std::map<Token, double>{{0, 0.25}, {1, 0.75}}));
}

TEST(TypicalTest, WhenGreedyOnlyTheBestTokenIsAccepted) {
  const Tensor probs = distributions({{0.0, 1.0}, {0.0, 1.0}});
  for (const TypicalOptions& options :
       {TypicalOptions{}, TypicalOptions{.epsilon = 1.0, .delta = 1.0},
        TypicalOptions{.epsilon = 1e-9, .delta = 1e-9}}) {
    for (const Token token : {0, 1}) {
      Draft draft = Draft::root(0);
      draft.add(token, 0);
      EXPECT_EQ(path_of(draft, probs, options).size() == 2, token == 1);
    }
  }
}

TEST(TypicalTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(TypicalVerifier({.epsilon = 0.0}), ConfigError);
  EXPECT_THROW(TypicalVerifier({.epsilon = 1.5}), ConfigError);
  EXPECT_THROW(TypicalVerifier({.delta = 0.0}), ConfigError);
  EXPECT_THROW(TypicalVerifier({.delta = std::nan("")}), ConfigError);
}

}  // namespace
}  // namespace specdec
