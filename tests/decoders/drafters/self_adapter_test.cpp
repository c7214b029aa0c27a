// The drafter `self` with an adapter that only its drafts pass, over tiny random Gemmas: the
// output's distribution, greedy tokens, what it drafts, and the keys and values that stay.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/transformer/adapters/lora_writer.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/draft_bench.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using SharedTarget = std::shared_ptr<const TransformerWeights>;

/// A drafter by the first two layers and a random adapter of them.
SelfDrafterOptions adapted_options(const SharedTarget& target) {
  const TemporaryFolder folder;
  save_lora(random_lora(*target, {.rank = 2, .alpha = 4.0, .layers = 2}, 5), folder.path(),
            at::kDouble);
  auto stack = std::make_shared<AdapterStack>(target);
  stack->push({load_lora(folder.path(), target)});
  return {.layers = 2, .adapters = std::move(stack)};
}

std::unique_ptr<SpeculativeDecoding> adapted_decoding(TransformerModel& target,
                                                      const SelfDrafterOptions& options,
                                                      std::unique_ptr<Verifier> verifier,
                                                      std::unique_ptr<DraftShape> shape) {
  return std::make_unique<SpeculativeDecoding>(target,
                                               std::make_unique<SelfDrafter>(target, options),
                                               std::move(verifier), std::move(shape));
}

std::vector<std::unique_ptr<DraftShape>> draft_shapes() {
  std::vector<std::unique_ptr<DraftShape>> all;
  all.push_back(std::make_unique<FixedDraftLength>(3));
  all.push_back(std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {0, 0, 0}})));
  all.push_back(
      std::make_unique<DynamicTreeShape>(DynamicTreeOptions{.nodes = 5, .depth = 3, .top_k = 2}));
  return all;
}

TEST(SelfAdapterTest, TheOutputsDistributionIsTheTargets) {
  at::set_num_threads(1);
  const SharedTarget weights = tiny_gemma(3);
  const SelfDrafterOptions options = adapted_options(weights);
  TransformerModel target(weights, paged_kv());
  TransformerModel oracle(weights, paged_kv());
  const LogitTable table = [&](TokenSpan history) {
    const Tensor logits = oracle.prefill_get_last_logits(history);
    return std::vector<double>(logits.const_data_ptr<double>(),
                               logits.const_data_ptr<double>() + logits.numel());
  };
  const Task task{
      .prompt = {1, 2}, .sampling = {.temperature = 0.8}, .stop = {.max_new_tokens = 3}};
  const SequenceDistribution expected = reference_distribution(table, task);
  for (auto& shape : draft_shapes()) {
    const auto decoding =
        adapted_decoding(target, options, std::make_unique<RejectionVerifier>(), std::move(shape));
    EXPECT_LE(max_difference(exact_distribution(*decoding, task), expected), kSameDistribution);
  }
}

TEST(SelfAdapterTest, GreedyTokensKeysAndValuesAreThoseOfPlainDecoding) {
  at::set_num_threads(1);
  const SharedTarget weights = tiny_gemma(11, at::kFloat);
  const SelfDrafterOptions options = adapted_options(weights);
  const Task task{.prompt = {3, 1, 4}, .stop = {.max_new_tokens = 40}};
  CounterRandomness random(1);
  TransformerModel plain(weights, paged_kv());
  const auto tokens = AutoregressiveDecoding(plain).generate(task.request(random)).tokens;
  for (auto& shape : draft_shapes()) {
    TransformerModel target(weights, paged_kv());
    const auto decoding =
        adapted_decoding(target, options, std::make_unique<ExactMatchVerifier>(), std::move(shape));
    const Generation generation = decoding->generate(task.request(random));
    EXPECT_EQ(generation.tokens, tokens);
    int64_t drafted = 0;
    for (const StepStatistics& step : generation.steps) {
      drafted += step.drafted;
    }
    EXPECT_GT(drafted, 20);
    const int64_t kept = std::min(target.length(), plain.length());
    ASSERT_GT(kept, 30);
    for (int64_t layer = 0; layer < 3; ++layer) {
      const auto [keys, values] = target.internals()->key_values(layer, 0);
      const auto [plain_keys, plain_values] = plain.internals()->key_values(layer, 0);
      EXPECT_TRUE(at::equal(keys.narrow(1, 0, kept), plain_keys.narrow(1, 0, kept))) << layer;
      EXPECT_TRUE(at::equal(values.narrow(1, 0, kept), plain_values.narrow(1, 0, kept))) << layer;
    }
  }
}

TEST(SelfAdapterTest, DraftsAreTheAdaptedLayersBestTokens) {
  const SharedTarget weights = tiny_gemma(97);
  const SelfDrafterOptions options = adapted_options(weights);
  const std::vector<Token> committed = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto kept = TokenSpan(committed).first(committed.size() - 1);
  TransformerModel target(weights, paged_kv());
  target.prefill_get_last_logits(kept);
  SelfDrafter drafter(target, options);
  DraftBench bench;
  FixedDraftLength shape(4);
  const Draft draft = drafter.propose(bench.context(committed, shape, {4, 4, 1}));
  ASSERT_EQ(draft.proposed(), 4);
  EXPECT_EQ(target.pending(), 0);
  // Each token is the best one after a single forward of what was drafted before it.
  for (int64_t node = 1; node <= draft.proposed(); ++node) {
    const Tensor logits =
        target
            .forward(
                {.tokens = token_tensor(TokenSpan(draft.tokens).first(static_cast<size_t>(node)))},
                {.layers = {0, 1}, .draft_adapters = options.adapters.get()})
            .logits;
    target.truncate(target.length());
    EXPECT_EQ(draft.tokens[static_cast<size_t>(node)], logits[node - 1].argmax().item<Token>())
        << node;
  }
  SelfDrafter plain(target, {.layers = 2});
  EXPECT_NE(plain.propose(bench.context(committed, shape, {4, 4, 1})).tokens, draft.tokens);
}

}  // namespace
}  // namespace specdec
