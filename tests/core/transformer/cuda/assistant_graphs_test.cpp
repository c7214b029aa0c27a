// Chains of Gemma 4's assistant, run on the CPU (core/kernels/cuda/emulation): as graphs they have
// the tokens and distributions that they have op by op.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/families/gemma/assistant.h"
#include "core/transformer/heads/assistant_head.h"
#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

/// A head of all tokens, or of clusters of them; `others` is what tokens of no chosen one get.
struct AssistantKind {
  std::string name;
  int64_t clusters;
  CentroidFill others = CentroidFill::kBelowMinimum;
  at::ScalarType dtype = at::kFloat;
};

const std::vector<AssistantKind> kAssistantKinds = {
    {"whole", 0},
    {"ordered", 8},
    {"ordered, of chosen tokens only", 8, CentroidFill::kNothing},
    {"ordered, in fragments", 8, CentroidFill::kBelowMinimum, at::kBFloat16}};

std::shared_ptr<const AssistantHead> assistant_of(const TransformerInfo& target,
                                                  const AssistantKind& kind, int64_t layers) {
  const auto head = random_assistant(target,
                                     {.hidden_size = 8,
                                      .intermediate_size = 12,
                                      .heads = 2,
                                      .layers = layers,
                                      .clusters = kind.clusters,
                                      .chosen = 3},
                                     {.seed = 9, .dtype = kind.dtype});
  if (kind.clusters > 0) {
    head->ordered.ordering = at::randperm(40, at::kLong).view({kind.clusters, -1});
  }
  return head;
}

/// Chains of an assistant by graphs and op by op, behind the same target.
class AssistantChains {
 public:
  AssistantChains(const std::shared_ptr<const TransformerWeights>& weights,
                  const AssistantKind& kind, int64_t layers)
      : head_(assistant_of(*weights, kind, layers)),
        graphed_(head_, {.fill = kind.others, .target = weights}, ops_),
        plain_(head_, {.fill = kind.others, .target = weights, .graphs = 0}, cuda_ops(at::kCPU)) {}

  /// One behind `keys`, which is the same both ways.
  std::optional<DrawnChain> expect_same(const ChainRequest& request, const Internals& keys) {
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain_.draw_chain(request, 7, hidden, keys, 0);
    ops_->take_calls();
    auto drawn = graphed_.draw_chain(request, 7, hidden, keys, 0);
    EXPECT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->probs.defined(), wanted->probs.defined());
    EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
    return drawn;
  }
  std::vector<std::string> take_calls() { return ops_->take_calls(); }
  AssistantModel& graphed() { return graphed_; }
  const GraphCounts& counts() const { return graphed_.graph_counts(); }

 private:
  std::shared_ptr<RecordingOps> ops_ = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  std::shared_ptr<const AssistantHead> head_;
  AssistantModel graphed_, plain_;
};

class CudaAssistantGraphTest : public testing::TestWithParam<AssistantKind> {};

// Beside the graph, the newest token is embedded and joined with the target's hidden state.
TEST_P(CudaAssistantGraphTest, AChainIsOneGraph) {
  const auto weights = small_gemma();
  AssistantChains chains(weights, GetParam(), 3);
  TransformerModel target(weights, paged_kv(), graph_options());
  const Internals& keys = *target.internals();
  ASSERT_TRUE(chains.graphed().draws_chains() && keys.keys_may_be_recorded());
  const ChainDraws draws;
  HeldProbs held;
  for (Token chain = 0; chain < 12; ++chain) {
    SCOPED_TRACE(chain);
    if (chain == 5) {
      target.truncate(1);  // what graphs read next is new
    }
    target.extend_get_last_logits(std::vector<Token>{chain, 9});
    const bool is_drawn = chain % 2 == 0;
    const auto drawn = chains.expect_same(is_drawn ? draws.drawn(4) : draws.best(4), keys);
    if (chain > 2) {
      EXPECT_THAT(chains.take_calls(),
                  testing::ElementsAre("embed_rows [1] -> [1, 16]", "concat [1, 16] -> [1, 32]"));
    }
    EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 4 * (is_drawn ? 8 : 12)}));
    held.hold(drawn->probs);
  }
  EXPECT_EQ(chains.counts().warm_ups, 3);
  EXPECT_EQ(chains.counts().captures, 3);
  EXPECT_EQ(chains.counts().replays, 6);
  const Tensor damaged = at::full({1, 16}, std::nan(""));
  EXPECT_FALSE(chains.graphed().draw_chain(draws.best(4), 7, damaged, keys, 0).has_value());
  EXPECT_EQ(chains.counts().replays, 7);

  // Keys of another target, and tokens that come from elsewhere, are those of this draft.
  TransformerModel other(small_gemma(2), paged_kv(), graph_options());
  for (TransformerModel* each : {&other, &target, &other, &target, &other}) {
    each->extend_get_last_logits(std::vector<Token>{3, 1});
    chains.expect_same(draws.best(3), *each->internals());
  }
}

TEST_P(CudaAssistantGraphTest, ChainsFollowWhatGrows) {
  const auto weights = small_gemma();
  AssistantChains chains(weights, GetParam(), 2);
  GrownCaches caches;
  TransformerModel target(weights, caches.factory(), GrownCaches::options(0));
  const ChainDraws draws;
  for (const auto& [length, count] : GrownCaches::kCases) {
    SCOPED_TRACE(length);
    caches.resize(length);
    for (int chain = 0; chain < 3; ++chain) {
      chains.expect_same(draws.drawn(count), *target.internals());
    }
  }
  EXPECT_GE(chains.counts().captures, 4);
}

// They are as long as the longest text so far: here all else stays where it is.
TEST_P(CudaAssistantGraphTest, RotaryTablesThatMoveMakeAnotherKey) {
  const auto weights = small_gemma();
  AssistantChains long_first(weights, GetParam(), 2);
  AssistantChains short_first(weights, GetParam(), 2);
  GrownCaches caches;
  TransformerModel target(weights, caches.factory(), GrownCaches::options(0));
  const ChainDraws draws;
  const auto draw = [&](AssistantChains& chains, int64_t length) {
    caches.resize(length);
    chains.expect_same(draws.best(2), *target.internals());
    return chains.counts();
  };
  EXPECT_EQ(draw(long_first, 520).warm_ups, 1);
  EXPECT_EQ(draw(long_first, 514).captures, 1);
  EXPECT_EQ(draw(long_first, 520).replays, 1);
  EXPECT_EQ(draw(short_first, 514).warm_ups, 1);
  EXPECT_EQ(draw(short_first, 514).captures, 1);
  EXPECT_EQ(draw(short_first, 520).warm_ups, 2) << "its tables were made for 515 positions";
  EXPECT_EQ(draw(short_first, 520).captures, 2);
  EXPECT_EQ(draw(short_first, 514).replays, 1);
}

INSTANTIATE_TEST_SUITE_P(Heads, CudaAssistantGraphTest, testing::ValuesIn(kAssistantKinds),
                         [](const auto& info) {
                           return std::string("head") + std::to_string(info.index);
                         });

TEST(CudaAssistantReferenceTest, AnOrderedHeadsChainIsTheReferences) {
  const Golden golden("gemma4-assistant-ordered-a");
  const auto weights = load_rows(test_data("gemma4-e-a"), at::kFloat);
  TransformerModel target(weights, paged_kv(), emulated());
  target.prefill_get_last_logits(golden.tokens("tokens"));
  const std::vector<Token> wanted = golden.tokens("draft_tokens");
  AssistantModel model(load_assistant(golden.folder(), *weights).head, {.target = weights},
                       cuda_ops(at::kCPU));
  const ChainDraws draws;
  for (int chain = 0; chain < 3; ++chain) {
    const auto drawn =
        model.draw_chain(draws.best(std::ssize(wanted)), golden.tokens("first_token").front(),
                         golden.tensor("target_hidden").unsqueeze(0), *target.internals(), 0);
    ASSERT_TRUE(drawn.has_value());
    EXPECT_EQ(drawn->tokens, wanted) << chain;
  }
  EXPECT_EQ(model.graph_counts().replays, 1);
}

}  // namespace
}  // namespace specdec
