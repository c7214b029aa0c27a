#include "decoders/verifiers/synthetic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "decoders/drafters/synthetic.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "tests/support/draft_bench.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

Draft propose_synthetic(int64_t max_tokens, int64_t max_depth, int64_t max_branches) {
  const std::vector<Token> committed = {3, 5};
  FixedDraftLength shape(1);
  DraftBench bench;
  return SyntheticDrafter().propose(
      bench.context(committed, shape, {max_tokens, max_depth, max_branches}));
}

TEST(SyntheticTest, DraftsAsMuchAsAsked) {
  EXPECT_EQ(propose_synthetic(4, 4, 1).parents, (std::vector<int64_t>{-1, 0, 1, 2, 3}));
  EXPECT_EQ(propose_synthetic(4, 2, 1).parents, (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(propose_synthetic(5, 2, 3).parents, (std::vector<int64_t>{-1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(propose_synthetic(2, 9, 3).parents, (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(propose_synthetic(2, 9, 3).tokens, (std::vector<Token>{5, 5, 5}));
}

TEST(SyntheticTest, AcceptsWithTheGivenProbabilitiesByDepth) {
  const Draft draft = propose_synthetic(8, 4, 2);
  const Tensor probs = at::full({draft.size(), 6}, 1.0 / 6, at::kDouble);
  const SyntheticVerifier verifier({0.9, 0.5});  // the last one for all deeper tokens
  std::vector<double> distribution(5, 0.0);
  EnumeratingRandomness random;
  do {
    const VerifyResult result = verify_with(verifier, draft, probs, 2, random);
    distribution[result.path.size() - 1] += random.probability();
  } while (random.next_outcome());
  const std::vector<double> expected = {0.1, 0.9 * 0.5, 0.9 * 0.25, 0.9 * 0.125, 0.9 * 0.125};
  for (size_t i = 0; i < distribution.size(); ++i) {
    EXPECT_NEAR(distribution[i], expected[i], 1e-14) << i;
  }
}

TEST(SyntheticTest, TokensPerStepFollowTheAcceptanceAtAnyTemperature) {
  FakeModel target(9, random_table(9, 1), 20000);
  for (const double temperature : {0.0, 1.0}) {
    SpeculativeDecoding decoding(target, std::make_unique<SyntheticDrafter>(),
                                 std::make_unique<SyntheticVerifier>(std::vector<double>{0.7}),
                                 std::make_unique<FixedDraftLength>(3));
    const Task task{{1, 2}, {.temperature = temperature}, {.max_new_tokens = 2000}};
    CounterRandomness random(7);
    const Generation generation = decoding.generate(task.request(random));
    const double per_step = 1999.0 / static_cast<double>(generation.steps.size());
    EXPECT_NEAR(per_step, 1.0 + 0.7 + 0.49 + 0.343, 0.15) << "at temperature " << temperature;
  }
}

TEST(SyntheticTest, RefusesProbabilitiesOutOfRange) {
  EXPECT_THROW(SyntheticVerifier({}), ConfigError);
  EXPECT_THROW(SyntheticVerifier({0.5, 1.1}), ConfigError);
  EXPECT_THROW(SyntheticVerifier({-0.1}), ConfigError);
  EXPECT_THROW(SyntheticVerifier({std::nan("")}), ConfigError);
}

}  // namespace
}  // namespace specdec
