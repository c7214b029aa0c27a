// Chains of heads that keep no cache of their own, run on the CPU (core/kernels/cuda/emulation): as
// graphs they have the tokens and distributions that they have op by op.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/transformer/heads/assistant_head.h"
#include "core/transformer/heads/medusa_head.h"
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

}  // namespace
}  // namespace specdec
