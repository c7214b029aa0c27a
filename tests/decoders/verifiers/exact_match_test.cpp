#include "decoders/verifiers/exact_match.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

/// One-hot distributions.
Tensor best(const std::vector<int64_t>& tokens, int64_t vocab = 4) {
  return at::one_hot(at::tensor(tokens), vocab).to(at::kDouble);
}

VerifyResult verify(const Draft& draft, const Tensor& probs) {
  CounterRandomness random(1);
  return verify_with(ExactMatchVerifier(), draft, probs, 0, random);
}

TEST(ExactMatchTest, FollowsAChainToTheFirstDifference) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 1);
  draft.add(3, 2);
  const VerifyResult all = verify(draft, best({1, 2, 3, 0}));
  EXPECT_EQ(all.path, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(all.next, 0);
  const VerifyResult some = verify(draft, best({1, 3, 3, 0}));
  EXPECT_EQ(some.path, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(some.next, 3);
  const VerifyResult none = verify(draft, best({0, 2, 3, 0}));
  EXPECT_EQ(none.path, std::vector<int64_t>{0});
  EXPECT_EQ(none.next, 0);
}

TEST(ExactMatchTest, FindsTheBranchOfATree) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 0);
  draft.add(3, 1);
  draft.add(3, 2);
  const VerifyResult result = verify(draft, best({2, 0, 3, 0, 1}));
  EXPECT_EQ(result.path, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(result.next, 1);
}

TEST(ExactMatchTest, ADraftOfNothingYieldsOneToken) {
  const VerifyResult result = verify(Draft::root(0), best({3}));
  EXPECT_EQ(result.path, std::vector<int64_t>{0});
  EXPECT_EQ(result.next, 3);
}

TEST(ExactMatchTest, RefusesSampling) {
  const ExactMatchVerifier verifier;
  EXPECT_NO_THROW(verifier.check({}));
  EXPECT_THAT([&] { verifier.check({.temperature = 0.5}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("temperature 0.5")));
}

TEST(ExactMatchTest, RefusesDistributionsOfAnotherShape) {
  EXPECT_THROW(verify(Draft::root(0), best({1, 2})), InternalError);
  EXPECT_THROW(verify(Draft::root(0), best({1}).to(at::kFloat)), InternalError);
}

}  // namespace
}  // namespace specdec
