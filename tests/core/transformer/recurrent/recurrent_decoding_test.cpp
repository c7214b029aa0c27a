// Speculation with models that have recurrent layers, as target and as draft model.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/speculative_beam.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
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

// Beams part within a draft, where a target may have no checkpoint of its states, or pages of its
// windows any more: it reads again what lies behind the nearest length that it can go back to.
TEST(RecurrentDecodingTest, SpeculativeBeamsReadAgainWhatTheTargetCannotGoBackTo) {
  at::set_num_threads(1);
  const RecurrentWeights recurrent = tiny_recurrent_gemma(kDecodedVocab, at::kFloat);
  Task task = recurrent_task();
  for (Token token = 0; token < 50; ++token) {  // more than is read together with a draft
    task.prompt.push_back(token * 7 % kDecodedVocab);
  }
  task.stop.max_new_tokens = 24;
  const SpeculativeBeamSearch::Options options{
      .beams = {.num_beams = 3, .num_return_sequences = 3}, .draft_length = 3, .draft_width = 6};
  struct Cache {
    RecurrentWeights weights;
    StateOptions states;
    int64_t window_slack;
  };
  const Cache caches[] = {{recurrent, {.every = 1, .most_checkpoints = 8}, 0},
                          {recurrent, {.every = 8, .most_checkpoints = 2}, 0},
                          {recurrent, {.every = 64, .most_checkpoints = 0}, 0},
                          {tiny_gemma(kDecodedVocab, at::kFloat), {}, 1}};
  for (const Cache& one : caches) {
    CounterRandomness random(1);
    TransformerModel plain(one.weights, paged_kv());
    const Generation wanted =
        BeamSearchDecoding(plain, options.beams).generate(task.request(random));
    TransformerModel target(one.weights,
                            [&](const std::vector<LayerKv>& layers, const KvStoreOptions& store) {
                              return make_cache(layers, {.dtype = store.dtype,
                                                         .page_size = 2,
                                                         .max_length = store.max_length,
                                                         .window_slack = one.window_slack,
                                                         .states = one.states});
                            });
    const Generation found = SpeculativeBeamSearch(target, draft_model_of(one.weights), options)
                                 .generate(task.request(random));
    ASSERT_EQ(found.hypotheses.size(), wanted.hypotheses.size());
    for (size_t i = 0; i < wanted.hypotheses.size(); ++i) {
      EXPECT_EQ(found.hypotheses[i].tokens, wanted.hypotheses[i].tokens);
      EXPECT_EQ(found.hypotheses[i].score, wanted.hypotheses[i].score);
    }
    EXPECT_LT(found.steps.size(), wanted.steps.size()) << "drafts are accepted";
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
