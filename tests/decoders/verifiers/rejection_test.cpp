#include "decoders/verifiers/rejection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"

namespace specdec {
namespace {

using Law = std::vector<double>;

/// The law of (accepted nodes, next token) for a draft that is given.
std::map<std::pair<size_t, Token>, double> rejection_verdicts(const Draft& draft,
                                                              const Tensor& probs) {
  std::map<std::pair<size_t, Token>, double> law;
  EnumeratingRandomness random;
  do {
    const Verdict verdict = RejectionVerifier().judge(draft, probs, 0, random);
    law[{verdict.path.size() - 1, verdict.next}] += random.probability();
  } while (random.next_outcome());
  return law;
}

/// The law of the first token when `count` siblings are drawn from q without replacement.
Law first_token_law(const Law& p, const Law& q, int64_t count) {
  const auto vocab = static_cast<int64_t>(p.size());
  Law law(p.size(), 0.0);
  EnumeratingRandomness random;
  do {
    Draft draft = Draft::root(0);
    draft.probs = at::tensor(q).unsqueeze(0);
    draft.law[0] = 0;
    Law left = q;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = random.draw(left);
      left[static_cast<size_t>(token)] = 0.0;
      draft.add(static_cast<Token>(token), 0);
    }
    const Tensor probs = at::tensor(p).unsqueeze(0).repeat({draft.size(), 1});
    const Verdict verdict = RejectionVerifier().judge(draft, probs, 0, random);
    EXPECT_EQ(probs.size(1), vocab);
    const Token first =
        verdict.path.size() > 1 ? draft.tokens[static_cast<size_t>(verdict.path[1])] : verdict.next;
    law[static_cast<size_t>(first)] += random.probability();
  } while (random.next_outcome());
  return law;
}

void expect_near(const Law& law, const Law& expected) {
  for (size_t i = 0; i < law.size(); ++i) {
    EXPECT_NEAR(law[i], expected[i], 1e-15) << "token " << i;
  }
}

TEST(RejectionTest, SiblingsWithoutReplacementKeepTheLaw) {
  const Law p = {0.1, 0.2, 0.3, 0.4};
  for (const Law& q : {Law{0.4, 0.3, 0.2, 0.1}, Law{0.25, 0.25, 0.25, 0.25},
                       Law{0.1, 0.2, 0.3, 0.4}, Law{0.97, 0.01, 0.01, 0.01}}) {
    for (const int64_t count : {1, 2, 3, 4}) {
      expect_near(first_token_law(p, q, count), p);
    }
  }
}

TEST(RejectionTest, LawsWithoutCommonTokensKeepTheLaw) {
  expect_near(first_token_law({0.0, 0.0, 0.3, 0.7}, {0.5, 0.5, 0.0, 0.0}, 2), {0.0, 0.0, 0.3, 0.7});
  expect_near(first_token_law({0.0, 1.0}, {1.0, 0.0}, 1), {0.0, 1.0});
}

TEST(RejectionTest, TheAcceptanceRateIsTheOverlap) {
  const Law p = {0.1, 0.2, 0.7};
  const Law q = {0.5, 0.3, 0.2};
  double accepted = 0.0;
  EnumeratingRandomness random;
  do {
    Draft draft = Draft::root(0);
    draft.probs = at::tensor(q).unsqueeze(0);
    draft.law[0] = 0;
    draft.add(static_cast<Token>(random.draw(q)), 0);
    const Verdict verdict =
        RejectionVerifier().judge(draft, at::tensor(p).unsqueeze(0).repeat({2, 1}), 0, random);
    accepted += verdict.path.size() > 1 ? random.probability() : 0.0;
  } while (random.next_outcome());
  EXPECT_NEAR(accepted, 0.1 + 0.2 + 0.2, 1e-15);
}

TEST(RejectionTest, ChosenTokensAreAcceptedWithTheirMass) {
  Draft draft = Draft::root(0);
  draft.add(2, 0);
  const Tensor probs = at::tensor({0.1, 0.2, 0.7, 0.5, 0.5, 0.0}).view({2, 3});
  const auto law = rejection_verdicts(draft, probs);
  ASSERT_EQ(law.size(), 4U);
  EXPECT_NEAR(law.at({1, 0}), 0.35, 1e-15);
  EXPECT_NEAR(law.at({1, 1}), 0.35, 1e-15);
  EXPECT_NEAR(law.at({0, 0}), 0.1, 1e-15);
  EXPECT_NEAR(law.at({0, 1}), 0.2, 1e-15);
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
    const Verdict verdict = RejectionVerifier().judge(draft, probs, 0, random);
    accepted[verdict.path.back()] += random.probability();
    if (verdict.path.back() == 0) {
      EXPECT_EQ(verdict.next, 2);
    }
  } while (random.next_outcome());
  EXPECT_NEAR(accepted[1], 0.5, 1e-15);
  EXPECT_NEAR(accepted[2], 0.2, 1e-15);
  EXPECT_NEAR(accepted[0], 0.3, 1e-15);
  EXPECT_EQ(accepted.count(3), 0U);
}

TEST(RejectionTest, GreedyLawsNeedNoChance) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 1);
  const Tensor probs = at::one_hot(at::tensor({1, 0, 0}, at::kLong), 3).to(at::kDouble);
  const auto law = rejection_verdicts(draft, probs);
  EXPECT_EQ(law, (std::map<std::pair<size_t, Token>, double>{{{1, 0}, 1.0}}));
}

TEST(RejectionTest, ARejectionThatRoundingAloneAllowsIsNone) {
  // p and q are one law but for the last bit: a rejection would leave a residual of nothing.
  const double half = 0.5;
  const double less = std::nextafter(half, 0.0);
  Draft draft = Draft::root(0);
  draft.probs = at::tensor({half, half}).unsqueeze(0);
  draft.law[0] = 0;
  draft.add(0, 0);
  const Tensor probs = at::tensor({less, half, 1.0, 0.0}).view({2, 2});
  const auto law = rejection_verdicts(draft, probs);
  ASSERT_EQ(law.size(), 1U);
  EXPECT_EQ(law.begin()->first, (std::pair<size_t, Token>{1, 0}));

  Draft chosen = Draft::root(0);
  chosen.add(0, 0);
  EXPECT_EQ(rejection_verdicts(chosen, at::tensor({less, 0.0, 0.0, 1.0}).view({2, 2})).size(), 1U);
}

TEST(RejectionTest, RefusesLawsThatTheDraftWasNotDrawnFrom) {
  const Tensor probs = at::tensor({0.5, 0.5}).unsqueeze(0).repeat({2, 1});
  CounterRandomness random(1);
  const auto judge = [&](const Draft& draft) {
    RejectionVerifier().judge(draft, probs, 0, random);
  };
  Draft draft = Draft::root(0);
  draft.probs = at::tensor({0.0, 1.0}).unsqueeze(0);
  draft.law[0] = 0;
  draft.add(0, 0);
  EXPECT_THROW(judge(draft), InternalError) << "token 0 has no mass in its law";
  draft.tokens[1] = 7;
  EXPECT_THROW(judge(draft), InternalError) << "outside the vocabulary";
  draft.tokens[1] = 1;
  draft.law[0] = 1;
  EXPECT_THROW(judge(draft), InternalError) << "no such law";
  draft.law[0] = 0;
  draft.probs = at::ones({1, 3}, at::kDouble);
  EXPECT_THROW(judge(draft), InternalError) << "another vocabulary";
  draft.probs = at::ones({1, 2}, at::kFloat);
  EXPECT_THROW(judge(draft), InternalError) << "another precision";
  EXPECT_THROW(judge(Draft::root(0)), InternalError) << "two laws for one node";
}

}  // namespace
}  // namespace specdec
