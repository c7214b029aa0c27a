#include "decoders/verifiers/rejection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

using Masses = std::vector<double>;

/// The distribution of (accepted nodes, next token) for a draft that is given.
std::map<std::pair<size_t, Token>, double> rejection_results(const Draft& draft,
                                                             const Tensor& probs) {
  std::map<std::pair<size_t, Token>, double> distribution;
  EnumeratingRandomness random;
  do {
    const VerifyResult result = verify_with(RejectionVerifier(), draft, probs, 0, random);
    distribution[{result.path.size() - 1, result.next}] += random.probability();
  } while (random.next_outcome());
  return distribution;
}

/// The distribution of the first token when `count` siblings are drawn from q without replacement.
Masses first_token_distribution(const Masses& p, const Masses& q, int64_t count) {
  const auto vocab = static_cast<int64_t>(p.size());
  Masses distribution(p.size(), 0.0);
  EnumeratingRandomness random;
  do {
    Draft draft = Draft::root(0);
    draft.probs = {TokenProbs(q)};
    draft.child_probs[0] = 0;
    Masses left = q;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = random.draw(left);
      left[static_cast<size_t>(token)] = 0.0;
      draft.add(static_cast<Token>(token), 0);
    }
    const Tensor probs = at::tensor(p).unsqueeze(0).repeat({draft.size(), 1});
    const VerifyResult result = verify_with(RejectionVerifier(), draft, probs, 0, random);
    EXPECT_EQ(probs.size(1), vocab);
    const Token first =
        result.path.size() > 1 ? draft.tokens[static_cast<size_t>(result.path[1])] : result.next;
    distribution[static_cast<size_t>(first)] += random.probability();
  } while (random.next_outcome());
  return distribution;
}

void expect_near(const Masses& distribution, const Masses& expected) {
  for (size_t i = 0; i < distribution.size(); ++i) {
    EXPECT_NEAR(distribution[i], expected[i], 1e-15) << "token " << i;
  }
}

TEST(RejectionTest, SiblingsWithoutReplacementKeepTheDistribution) {
  const Masses p = {0.1, 0.2, 0.3, 0.4};
  for (const Masses& q : {Masses{0.4, 0.3, 0.2, 0.1}, Masses{0.25, 0.25, 0.25, 0.25},
                          Masses{0.1, 0.2, 0.3, 0.4}, Masses{0.97, 0.01, 0.01, 0.01}}) {
    for (const int64_t count : {1, 2, 3, 4}) {
      expect_near(first_token_distribution(p, q, count), p);
    }
  }
}

TEST(RejectionTest, DistributionsWithoutCommonTokensKeepTheDistribution) {
  expect_near(first_token_distribution({0.0, 0.0, 0.3, 0.7}, {0.5, 0.5, 0.0, 0.0}, 2),
              {0.0, 0.0, 0.3, 0.7});
  expect_near(first_token_distribution({0.0, 1.0}, {1.0, 0.0}, 1), {0.0, 1.0});
}

TEST(RejectionTest, TheAcceptanceRateIsTheOverlap) {
  const Masses p = {0.1, 0.2, 0.7};
  const Masses q = {0.5, 0.3, 0.2};
  double accepted = 0.0;
  EnumeratingRandomness random;
  do {
    Draft draft = Draft::root(0);
    draft.probs = {TokenProbs(q)};
    draft.child_probs[0] = 0;
    draft.add(static_cast<Token>(random.draw(q)), 0);
    const VerifyResult result = verify_with(RejectionVerifier(), draft,
                                            at::tensor(p).unsqueeze(0).repeat({2, 1}), 0, random);
    accepted += result.path.size() > 1 ? random.probability() : 0.0;
  } while (random.next_outcome());
  EXPECT_NEAR(accepted, 0.1 + 0.2 + 0.2, 1e-15);
}

TEST(RejectionTest, ChosenTokensAreAcceptedWithTheirMass) {
  Draft draft = Draft::root(0);
  draft.add(2, 0);
  const Tensor probs = at::tensor({0.1, 0.2, 0.7, 0.5, 0.5, 0.0}).view({2, 3});
  const auto distribution = rejection_results(draft, probs);
  ASSERT_EQ(distribution.size(), 4U);
  EXPECT_NEAR(distribution.at({1, 0}), 0.35, 1e-15);
  EXPECT_NEAR(distribution.at({1, 1}), 0.35, 1e-15);
  EXPECT_NEAR(distribution.at({0, 0}), 0.1, 1e-15);
  EXPECT_NEAR(distribution.at({0, 1}), 0.2, 1e-15);
}

TEST(RejectionTest, ChosenSiblingsAreTriedInOrder) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(0, 0);
  draft.add(1, 0);  // once more: it has no mass left
  const Tensor probs = at::tensor({0.2, 0.5, 0.3}).unsqueeze(0).repeat({4, 1});
  std::map<int64_t, double> accepted;
  EnumeratingRandomness random;
  do {
    const VerifyResult result = verify_with(RejectionVerifier(), draft, probs, 0, random);
    accepted[result.path.back()] += random.probability();
    if (result.path.back() == 0) {
      EXPECT_EQ(result.next, 2);
    }
  } while (random.next_outcome());
  EXPECT_NEAR(accepted[1], 0.5, 1e-15);
  EXPECT_NEAR(accepted[2], 0.2, 1e-15);
  EXPECT_NEAR(accepted[0], 0.3, 1e-15);
  EXPECT_EQ(accepted.count(3), 0U);
}

TEST(RejectionTest, GreedyDistributionsNeedNoRandomness) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 1);
  const Tensor probs = at::one_hot(at::tensor({1, 0, 0}, at::kLong), 3).to(at::kDouble);
  const auto distribution = rejection_results(draft, probs);
  EXPECT_EQ(distribution, (std::map<std::pair<size_t, Token>, double>{{{1, 0}, 1.0}}));
}

TEST(RejectionTest, ARejectionThatRoundingAloneAllowsIsNone) {
  // p and q are one distribution but for the last bit: a rejection would leave a residual of
  // nothing.
  const double half = 0.5;
  const double less = std::nextafter(half, 0.0);
  Draft draft = Draft::root(0);
  draft.probs = {TokenProbs(std::vector<double>{half, half})};
  draft.child_probs[0] = 0;
  draft.add(0, 0);
  const Tensor probs = at::tensor({less, half, 1.0, 0.0}).view({2, 2});
  const auto distribution = rejection_results(draft, probs);
  ASSERT_EQ(distribution.size(), 1U);
  EXPECT_EQ(distribution.begin()->first, (std::pair<size_t, Token>{1, 0}));

  Draft chosen = Draft::root(0);
  chosen.add(0, 0);
  EXPECT_EQ(rejection_results(chosen, at::tensor({less, 0.0, 0.0, 1.0}).view({2, 2})).size(), 1U);
}

TEST(RejectionTest, RefusesDistributionsThatTheDraftWasNotDrawnFrom) {
  const Tensor probs = at::tensor({0.5, 0.5}).unsqueeze(0).repeat({2, 1});
  CounterRandomness random(1);
  const auto verify = [&](const Draft& draft) {
    verify_with(RejectionVerifier(), draft, probs, 0, random);
  };
  Draft draft = Draft::root(0);
  draft.probs = {TokenProbs(std::vector<double>{0.0, 1.0})};
  draft.child_probs[0] = 0;
  draft.add(0, 0);
  EXPECT_THROW(verify(draft), InternalError) << "token 0 has no mass in its distribution";
  draft.tokens[1] = 7;
  EXPECT_THROW(verify(draft), InternalError) << "outside the vocabulary";
  draft.tokens[1] = 1;
  draft.child_probs[0] = 1;
  EXPECT_THROW(verify(draft), InternalError) << "no such distribution";
  draft.child_probs[0] = 0;
  draft.probs = {TokenProbs(std::vector<double>{0.5, 0.5, 0.0})};
  EXPECT_THROW(verify(draft), InternalError) << "another vocabulary";
  EXPECT_THROW(verify(Draft::root(0)), InternalError) << "two distributions for one node";
}

}  // namespace
}  // namespace specdec
