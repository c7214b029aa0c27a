// Speculation with models that have recurrent layers, as target and as draft model.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/kv_cache.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/target_table.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

using RecurrentWeights = std::shared_ptr<const TransformerWeights>;

constexpr int64_t kDecodedVocab = 31;

std::unique_ptr<DraftShape> recurrent_shape(bool tree) {
  if (tree) {
    return std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}}));
  }
  return std::make_unique<FixedDraftLength>(3);
}

std::unique_ptr<Drafter> draft_model_of(const RecurrentWeights& weights) {
  return std::make_unique<DraftModelDrafter>(
      std::make_unique<TransformerModel>(weights, paged_kv(2)));
}

Task recurrent_task() {
  return {.prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, .stop = {.max_new_tokens = 50}};
}

TEST(RecurrentDecodingTest, GreedySpeculationGivesTheTokensOfGreedyDecoding) {
  at::set_num_threads(1);
  const RecurrentWeights recurrent = tiny_recurrent_gemma(kDecodedVocab, at::kFloat);
  const RecurrentWeights other = tiny_recurrent_gemma(kDecodedVocab, at::kFloat, 2);
  const RecurrentWeights attending = tiny_gemma(kDecodedVocab, at::kFloat);
  const std::pair<RecurrentWeights, RecurrentWeights> pairs[] = {
      {recurrent, recurrent}, {recurrent, other}, {recurrent, attending}, {attending, recurrent}};
  for (const auto& [weights, draft] : pairs) {
    TransformerModel plain(weights, paged_kv());
    CounterRandomness random(1);
    const Task task = recurrent_task();
    const auto wanted = AutoregressiveDecoding(plain).generate(task.request(random)).tokens;
    for (const bool tree : {false, true}) {
      TransformerModel target(weights, paged_kv(2));
      SpeculativeDecoding decoding(target, draft_model_of(draft),
                                   std::make_unique<ExactMatchVerifier>(), recurrent_shape(tree));
      const Generation generation = decoding.generate(task.request(random));
      EXPECT_EQ(generation.tokens, wanted);
      int64_t rejected = 0;
      for (const StepStatistics& step : generation.steps) {
        rejected += step.drafted - step.accepted;
      }
      if (draft == weights && !tree) {
        EXPECT_EQ(rejected, 0) << "its own drafts are all accepted";
      }
    }
    TransformerModel target(weights, paged_kv(2));
    SpeculativeDecoding decoding(target, std::make_unique<PromptLookupDrafter>(),
                                 std::make_unique<ExactMatchVerifier>(), recurrent_shape(false));
    EXPECT_EQ(decoding.generate(task.request(random)).tokens, wanted);
  }
}

TEST(RecurrentDecodingTest, TheOutputsDistributionIsTheTargets) {
  const RecurrentWeights weights = tiny_recurrent_gemma(3);
  const RecurrentWeights other = tiny_recurrent_gemma(3, at::kDouble, 2);
  const Task task{.prompt = {0, 1, 2, 2, 1, 0, 0},
                  .sampling = {.temperature = 0.9},
                  .stop = {.max_new_tokens = 4}};
  const SequenceDistribution wanted = reference_distribution(target_table(weights), task);
  for (const bool tree : {false, true}) {
    TransformerModel target(weights, paged_kv(2));
    SpeculativeDecoding decoding(target, draft_model_of(other),
                                 std::make_unique<RejectionVerifier>(), recurrent_shape(tree));
    EXPECT_LT(max_difference(exact_distribution(decoding, task), wanted), 1e-12);
  }
}

}  // namespace
}  // namespace specdec
