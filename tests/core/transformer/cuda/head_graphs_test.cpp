// Chains of heads that keep no cache of their own, run on the CPU (core/kernels/cuda/emulation): as
// graphs they have the tokens and distributions that they have op by op.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/transformer/chain_steps.h"
#include "core/transformer/heads/assistant_head.h"
#include "core/transformer/heads/medusa_head.h"
#include "core/transformer/heads/module_chains.h"
#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

TransformerOptions graph_options(std::shared_ptr<Ops> ops = cuda_ops(at::kCPU)) {
  return {.max_length = 64, .ops = std::move(ops)};
}

// Beside the graph, the newest token is embedded and joined with the target's hidden state.
TEST(CudaHeadGraphTest, AnAssistantsChainIsOneGraph) {
  const auto weights = small_gemma();
  const auto head = random_assistant(
      *weights, {.hidden_size = 8, .intermediate_size = 12, .heads = 2, .layers = 3}, {.seed = 9});
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  AssistantModel graphed(head, {.target = weights}, ops);
  AssistantModel plain(head, {.target = weights, .graphs = 0}, cuda_ops(at::kCPU));
  TransformerModel target(weights, paged_kv(), graph_options());
  const Internals& keys = *target.internals();
  ASSERT_TRUE(graphed.draws_chains() && keys.keys_may_be_recorded());
  const ChainDraws draws;
  for (Token chain = 0; chain < 8; ++chain) {
    SCOPED_TRACE(chain);
    if (chain == 5) {
      target.truncate(1);  // what graphs read next is new
    }
    target.extend_get_last_logits(std::vector<Token>{chain, 9});
    const bool is_drawn = chain % 2 == 0;
    const ChainRequest request = is_drawn ? draws.drawn(4) : draws.best(4);
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain.draw_chain(request, 7, hidden, keys, 0);
    ops->take_calls();
    const auto drawn = graphed.draw_chain(request, 7, hidden, keys, 0);
    if (chain >= 2) {
      EXPECT_THAT(ops->take_calls(),
                  testing::ElementsAre("embed_rows [1] -> [1, 16]", "concat [1, 16] -> [1, 32]"));
    }
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 4 * (is_drawn ? 8 : 12)}));
    EXPECT_TRUE(!is_drawn || at::equal(drawn->probs, wanted->probs));
  }
  const GraphCounts counts = graphed.graph_counts();
  EXPECT_EQ(counts.warm_ups, 2);
  EXPECT_EQ(counts.captures, 2);
  EXPECT_EQ(counts.replays, 4);
  const Tensor damaged = at::full({1, 16}, std::nan(""));
  EXPECT_FALSE(graphed.draw_chain(draws.best(4), 7, damaged, keys, 0).has_value());
  EXPECT_EQ(graphed.graph_counts().replays, 5);

  // Keys of another target, and tokens that come from elsewhere, are those of this draft.
  TransformerModel other(small_gemma(2), paged_kv(), graph_options());
  for (TransformerModel* each : {&other, &target, &other, &target, &other}) {
    each->extend_get_last_logits(std::vector<Token>{3, 1});
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain.draw_chain(draws.best(3), 8, hidden, *each->internals(), 0);
    EXPECT_EQ(graphed.draw_chain(draws.best(3), 8, hidden, *each->internals(), 0)->tokens,
              wanted->tokens);
  }
}

TEST(CudaHeadGraphTest, AChainOfSeveralHeadsIsOneGraph) {
  const auto weights = small_gemma();
  MedusaHead heads = new_medusa_head({.num_heads = 5, .num_layers = 2, .share_lm_head = true},
                                     unpack(*weights), at::kFloat);
  RandomTensors random({.seed = 8});
  for (auto& blocks : heads.blocks) {
    blocks.front().weight = random.matrix(16, 16);
  }
  heads.target_ids = at::arange(0, 40, 2);
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  MedusaModel graphed(heads, weights, graph_options(ops));
  TransformerOptions without = graph_options();
  without.graphs = 0;
  MedusaModel plain(heads, weights, without);
  const ChainDraws draws;
  for (int64_t chain = 0; chain < 6; ++chain) {
    SCOPED_TRACE(chain);
    const bool is_drawn = chain % 2 == 0;
    const ChainRequest request = is_drawn ? draws.drawn(5) : draws.best(3);
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain.draw_chain(request, hidden);
    ops->take_calls();
    const auto drawn = graphed.draw_chain(request, hidden);
    if (chain >= 2) {
      EXPECT_THAT(ops->take_calls(), testing::ElementsAre("copy [1, 16] -> [1, 16]"));
    }
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->read_backs, wanted->read_backs);
    EXPECT_TRUE(!is_drawn || at::equal(drawn->probs, wanted->probs));
  }
  EXPECT_EQ(graphed.graph_counts().captures, 2);
  EXPECT_EQ(graphed.graph_counts().replays, 2);
  EXPECT_FALSE(graphed.draw_chain(draws.best(3), at::full({1, 16}, std::nan(""))).has_value());
  EXPECT_THROW(graphed.draw_chain(draws.best(6), at::randn({1, 16})), InternalError);
}

/// Three modules of a head, each with a cache of its own.
std::vector<std::unique_ptr<FeatureModel>> three_models(
    const std::shared_ptr<const TransformerWeights>& weights, const TransformerOptions& options) {
  const auto head = random_mtp_head(*weights, 3, {.seed = 7});
  std::vector<std::unique_ptr<FeatureModel>> models;
  for (size_t module = 0; module < 3; ++module) {
    models.push_back(make_mtp_model(head, module, weights, paged_kv(), options));
  }
  return models;
}

/// Draws a chain by forwards of one token each.
std::optional<DrawnChain> drawn_by_forwards(std::span<const std::unique_ptr<FeatureModel>> modules,
                                            const ChainRequest& chain, const Tensor& logits,
                                            std::vector<Tensor> features) {
  const auto drawing = modules.front()->ops().sampler()->begin_chain(chain, 40);
  size_t depth = 0;  // of the token that is fed
  draw_steps(*drawing, chain.count, [&](const Tensor& newest) {
    if (!newest.defined()) {
      return logits;
    }
    ++depth;
    const size_t says = std::min(depth, modules.size() - 1);
    Tensor said;
    const std::vector<Tensor> before = features;
    for (size_t module = says; module < modules.size(); ++module) {
      const ForwardResult result = modules[module]->forward(
          {.tokens = newest.clone(),
           .rows = {0},
           .inputs = {.features = before[depth > module ? module : module - 1],
                      .own_features = true}},
          {.hidden = Hidden::kAll});
      features[module] = result.final_hidden;
      said = module == says ? result.logits : said;
    }
    return said;
  });
  return drawing->read();
}

// Beside the graph, the features of the newest token are copied, and the first token is drawn.
TEST(CudaHeadGraphTest, AChainOfSeveralModulesIsOneGraph) {
  const auto weights = small_gemma();
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  const auto graphed = three_models(weights, graph_options(ops));
  const auto plain = three_models(weights, graph_options());
  ModuleChains chains({graphed[0].get(), graphed[1].get(), graphed[2].get()}, 8);
  ASSERT_TRUE(chains.can_draw(4));
  EXPECT_FALSE(chains.can_draw(66));
  const ChainDraws draws;
  for (Token chain = 0; chain < 8; ++chain) {
    SCOPED_TRACE(chain);
    const ForwardInputs inputs{.features = at::randn({2, 16})};
    for (const auto* modules : {&graphed, &plain}) {
      for (const auto& module : *modules) {
        module->truncate(chain == 5 ? 1 : module->length());
        module->extend(std::vector<Token>{chain, 9}, {.logits = Logits::kNone}, inputs);
      }
    }
    const bool is_drawn = chain % 2 == 0;
    const ChainRequest request = is_drawn ? draws.drawn(5) : draws.best(4);
    const Tensor logits = at::randn({1, 40});
    const std::vector<Tensor> features = {at::randn({1, 16}), at::randn({1, 16}),
                                          at::randn({1, 16})};
    const auto wanted = drawn_by_forwards(plain, request, logits, features);
    ops->take_calls();
    const auto drawn = chains.draw(request, logits, features);
    if (chain >= 2) {
      const std::string copy = "copy [1, 16] -> [1, 16]";
      EXPECT_THAT(ops->take_calls(), testing::ElementsAre(copy, copy, copy));
    }
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->read_backs, wanted->read_backs);
    EXPECT_TRUE(!is_drawn || at::equal(drawn->probs, wanted->probs));
    for (size_t module = 0; module < 3; ++module) {
      EXPECT_EQ(graphed[module]->pending(), plain[module]->pending()) << module;
    }
  }
  EXPECT_EQ(chains.graph_counts().captures, 2);
  EXPECT_EQ(chains.graph_counts().replays, 4);
}

}  // namespace
}  // namespace specdec
