#include "decoders/verifiers/sample_match.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

constexpr int64_t kMatchVocab = 7;

std::vector<std::unique_ptr<Drafter>> drafters_of(const LogitTable& table) {
  std::vector<std::unique_ptr<Drafter>> all;
  all.push_back(
      std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kMatchVocab, table)));
  all.push_back(std::make_unique<PromptLookupDrafter>(PromptLookupOptions{.min_ngram = 1}));
  all.push_back(std::make_unique<TreeDrafter>(table));
  all.push_back(
      std::make_unique<TreeDrafter>(table, TreeDrafterOptions{.branches = 3, .sample = false}));
  return all;
}

TEST(SampleMatchTest, GivesTheTokensOfPlainSamplingWhateverDrafts) {
  const LogitTable table = random_table(kMatchVocab, 3);
  const LogitTable drafts = mixed_table(table, random_table(kMatchVocab, 4), 0.3);
  const Task task{{1, 2, 3, 1, 2},
                  {.temperature = 1.0, .top_k = 5, .repetition_penalty = 1.1},
                  {.max_new_tokens = 24, .end_ids = {6}}};
  FakeModel target(kMatchVocab, table);
  AutoregressiveDecoding plain(target);
  int64_t accepted = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CounterRandomness random(seed);
    const std::vector<Token> expected = plain.generate(task.request(random)).tokens;
    for (auto& drafter : drafters_of(drafts)) {
      SpeculativeDecoding decoding(target, std::move(drafter),
                                   std::make_unique<SampleMatchVerifier>(),
                                   std::make_unique<FixedDraftLength>(4));
      CounterRandomness same(seed);
      const Generation generation = decoding.generate(task.request(same));
      EXPECT_EQ(generation.tokens, expected) << "seed " << seed;
      for (const StepStatistics& step : generation.steps) {
        accepted += step.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 150) << "drafts must be accepted for this to mean anything";
}

TEST(SampleMatchTest, AcceptsADrawnTokenWithTheProbabilityThatBothDrawIt) {
  const std::vector<double> p = {0.1, 0.2, 0.7};
  const std::vector<double> q = {0.5, 0.3, 0.2};
  double accepted = 0.0;
  EnumeratingRandomness random;
  do {
    Draft draft = Draft::root(0);
    draft.probs = {TokenProbs(q)};
    draft.child_probs[0] = 0;
    draft.add(static_cast<Token>(random.draw(q)), 0);
    const Tensor probs = at::tensor(p, at::kDouble).unsqueeze(0).repeat({2, 1});
    const VerifyResult result = verify_with(SampleMatchVerifier(), draft, probs, 1, random);
    accepted += result.path.size() > 1 ? random.probability() : 0.0;
  } while (random.next_outcome());
  EXPECT_NEAR(accepted, 0.1 * 0.5 + 0.2 * 0.3 + 0.7 * 0.2, 1e-15);
}

TEST(SampleMatchTest, RefusesDistributionsOfAnotherShape) {
  CounterRandomness random(1);
  EXPECT_THROW(
      verify_with(SampleMatchVerifier(), Draft::root(0), at::ones({2, 3}, at::kDouble), 1, random),
      InternalError);
}

}  // namespace
}  // namespace specdec
