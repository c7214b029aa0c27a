// EAGLE-3 heads of several layers, run on the CPU (core/kernels/cuda/emulation): the first layer
// reads embeddings beside features, those after it the residual stream alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/transformer/heads/feature_model.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"

namespace specdec {
namespace {

using Weights = std::shared_ptr<const TransformerWeights>;

/// A head whose draft vocabulary is 24 of the target's 40 tokens, in disorder.
std::shared_ptr<const EagleHead> layered_head(const Weights& target, int64_t layers) {
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *target);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  config.layers = layers;
  const auto head = random_eagle_head(config, {.seed = 6});
  head->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  return head;
}

/// Where a target and its head run.
struct LayeredPlace {
  Placement place = {};
  std::shared_ptr<Ops> ops = nullptr;  ///< nullptr: the CPU's
  int64_t graphs = 0;

  TransformerOptions options() const { return {.max_length = 64, .ops = ops, .graphs = graphs}; }
};

LayeredPlace on_device(int64_t graphs) {
  return {.place = kEmulated, .ops = cuda_ops(at::kCPU), .graphs = graphs};
}

/// Speculation with such a head. Requests come twice, so that graphs are recorded and launched:
/// those of the head are counted.
std::vector<Generation> layered_generations(const LayeredPlace& where, int64_t layers, bool is_tree,
                                            const SamplingParams& sampling,
                                            GraphCounts* counts = nullptr) {
  const Weights weights = small_gemma(1, where.place);
  const auto head = layered_head(weights, layers);
  TransformerModel target(weights, paged_kv(), where.options());
  auto model = make_eagle_model(head, weights, paged_kv(), where.options());
  const FeatureModel& drafting = *model;
  std::vector<std::unique_ptr<LanguageModel>> modules;
  modules.push_back(std::move(model));
  auto drafter = std::make_unique<FeatureDrafter>(
      std::move(modules), FeatureDrafterOptions{.capture_layers = head->config.capture_layers,
                                                .hidden_size = head->config.hidden_size});
  std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
  SpeculativeDecoding strategy(
      target, std::move(drafter),
      verifier_of(sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection),
      is_tree ? tree_shape() : std::move(shape));
  std::vector<Generation> generations;
  for (size_t request = 0; request < 4; ++request) {
    generations.push_back(generate_chains(strategy, kChainPrompts[request % 2], sampling, 6));
  }
  if (counts != nullptr) {
    *counts = drafting.graph_counts();
  }
  return generations;
}

/// The steps of both drafted and accepted the same: the accepted tokens.
int64_t expect_equal_generations(const std::vector<Generation>& own,
                                 const std::vector<Generation>& wanted) {
  int64_t accepted = 0;
  for (size_t request = 0; request < wanted.size(); ++request) {
    SCOPED_TRACE(request);
    EXPECT_EQ(own[request].tokens, wanted[request].tokens);
    EXPECT_EQ(own[request].steps.size(), wanted[request].steps.size());
    for (size_t i = 0; i < std::min(own[request].steps.size(), wanted[request].steps.size()); ++i) {
      const StepStatistics& step = wanted[request].steps[i];
      EXPECT_EQ(own[request].steps[i].drafted, step.drafted);
      EXPECT_EQ(own[request].steps[i].accepted, step.accepted);
      EXPECT_EQ(own[request].steps[i].rejected, step.rejected);
      accepted += step.accepted;
    }
  }
  return accepted;
}

TEST(CudaLayeredEagleTest, GreedyDraftsAreTheCpusWithGraphsAndWithout) {
  for (const bool is_tree : {false, true}) {
    SCOPED_TRACE(is_tree);
    const auto wanted = layered_generations({}, 3, is_tree, {});
    GraphCounts counts;
    EXPECT_GT(expect_equal_generations(layered_generations(on_device(16), 3, is_tree, {}, &counts),
                                       wanted),
              0);
    EXPECT_GT(counts.replays, 0);
    expect_equal_generations(layered_generations(on_device(0), 3, is_tree, {}), wanted);
  }
}

TEST(CudaLayeredEagleTest, SampledDraftsAreTheSameWithGraphsAndWithout) {
  for (const bool is_tree : {false, true}) {
    SCOPED_TRACE(is_tree);
    const SamplingParams sampling{.temperature = 1.0};
    GraphCounts counts;
    EXPECT_GT(
        expect_equal_generations(layered_generations(on_device(64), 2, is_tree, sampling, &counts),
                                 layered_generations(on_device(0), 2, is_tree, sampling)),
        0);
    EXPECT_GT(counts.replays, 0);
  }
}

TEST(CudaLayeredEagleTest, LogitsAndFeaturesAreTheCpus) {
  const Weights weights = small_gemma();
  const Weights on_cpu = small_gemma(1, Placement{});
  for (const int64_t layers : {1, 2, 4}) {
    SCOPED_TRACE(layers);
    const auto own = make_eagle_model(layered_head(weights, layers), weights, paged_kv(),
                                      on_device(8).options());
    const auto wanted = make_eagle_model(layered_head(on_cpu, layers), on_cpu, paged_kv(),
                                         TransformerOptions{.max_length = 64});
    for (Token round = 0; round < 5; ++round) {
      const bool is_own = round == 3;
      const TokenBatch batch{
          .tokens = token_tensor(std::vector<Token>{round, 9, 30}),
          .parents = {-1, 0, 0},
          .inputs = {.features = at::randn({3, is_own ? 16 : 32}), .own_features = is_own}};
      const ForwardOptions options{.hidden = Hidden::kAll, .draft_columns = true};
      const ForwardResult result = own->forward(batch, options);
      const ForwardResult expected = wanted->forward(batch, options);
      EXPECT_TRUE(at::allclose(result.logits, expected.logits, 1e-4, 1e-4));
      EXPECT_TRUE(at::allclose(result.final_hidden, expected.final_hidden, 1e-4, 1e-4));
      own->commit(std::vector<int64_t>{0, 2});
      wanted->commit(std::vector<int64_t>{0, 2});
    }
    EXPECT_GT(own->graph_counts().replays, 0);
  }
}

}  // namespace
}  // namespace specdec
