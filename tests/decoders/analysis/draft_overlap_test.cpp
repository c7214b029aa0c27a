#include "decoders/analysis/draft_overlap.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/randomness.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(DraftOverlapTest, IsOneMinusTheTotalVariation) {
  const std::vector<double> p = {0.5, 0.3, 0.2};
  const std::vector<double> q = {0.2, 0.2, 0.6};
  EXPECT_NEAR(overlap(p, q), 0.6, 1e-15);
  EXPECT_NEAR(overlap(p, p), 1.0, 1e-15);
  EXPECT_EQ(overlap(std::vector<double>{1.0, 0.0}, std::vector<double>{0.0, 1.0}), 0.0);
}

TEST(DraftOverlapTest, HasOneEntryForEachNodeWithChildren) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 0);
  draft.add(0, 1);
  draft.probs = {TokenProbs(std::vector<double>{0.2, 0.2, 0.6})};
  draft.child_probs[1] = 0;
  TargetProbs p(at::tensor({0.5, 0.3, 0.2}, at::kDouble).repeat({4, 1}));
  // The root's children were found deterministically: the mass on both. Node 1's was drawn.
  EXPECT_THAT(draft_overlaps(draft, p),
              ElementsAre(DoubleNear(0.5, 1e-15), DoubleNear(0.6, 1e-15)));
  EXPECT_THAT(draft_overlaps(draft, p, 1), ElementsAre(DoubleNear(0.5, 1e-15)));
}

TEST(DraftOverlapTest, IsTheProbabilityThatRejectionAccepts) {
  const std::vector<double> p = {0.1, 0.45, 0.25, 0.2};
  const std::vector<double> q = {0.4, 0.15, 0.4, 0.05};
  const Tensor target = at::tensor(p, at::kDouble).repeat({2, 1});
  double accepted = 0.0;
  for (size_t token = 0; token < q.size(); ++token) {
    Draft draft = Draft::root(0);
    draft.add(static_cast<Token>(token), 0);
    draft.probs = {TokenProbs(q)};
    draft.child_probs[0] = 0;
    EnumeratingRandomness random;
    do {
      const VerifyResult result = verify_with(RejectionVerifier(), draft, target, 1, random);
      accepted += result.path.size() == 2 ? q[token] * random.probability() : 0.0;
    } while (random.next_outcome());
  }
  EXPECT_NEAR(accepted, overlap(p, q), 1e-12);
}

}  // namespace
}  // namespace specdec
