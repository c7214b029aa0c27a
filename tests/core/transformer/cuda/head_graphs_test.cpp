// Drafts of heads that read one hidden state, run on the CPU (core/kernels/cuda/emulation): as
// graphs they have the tokens and distributions that they have op by op.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/transformer/heads/medusa_head.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

/// Five heads over every other token of the target's head, or each over all tokens.
MedusaHead five_heads(const TransformerWeights& target, bool are_shared) {
  MedusaHead heads = new_medusa_head({.num_heads = 5, .num_layers = 2, .share_lm_head = are_shared},
                                     unpack(target), at::kFloat);
  RandomTensors random({.seed = 8});
  for (auto& blocks : heads.blocks) {
    blocks.front().weight = random.matrix(16, 16);
  }
  if (are_shared) {
    heads.target_ids = at::arange(0, 40, 2);
  }
  return heads;
}

TEST(CudaHeadGraphTest, AChainOfSeveralHeadsIsOneGraph) {
  const auto weights = small_gemma();
  const MedusaHead heads = five_heads(*weights, true);
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  MedusaModel graphed(heads, weights, graph_options(ops));
  TransformerOptions without = graph_options();
  without.graphs = 0;
  MedusaModel plain(heads, weights, without);
  const ChainDraws draws;
  HeldProbs held;
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
    held.hold(drawn->probs);
  }
  EXPECT_EQ(graphed.graph_counts().captures, 2);
  EXPECT_EQ(graphed.graph_counts().replays, 2);
  EXPECT_FALSE(graphed.draw_chain(draws.best(3), at::full({1, 16}, std::nan(""))).has_value());
  EXPECT_THAT(
      [&] {
        graphed.draw_chain(draws.best(6), at::randn({1, 16}));
      },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr("6 deep by 5 heads")));
  EXPECT_THAT(
      [&] {
        MedusaModel(heads, weights).draw_chain(draws.best(2), at::randn({1, 16}));
      },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr("as samples() says")));
}

TransformerOptions without_graphs(const std::shared_ptr<Ops>& ops) {
  TransformerOptions options = graph_options(ops);
  options.graphs = 0;
  return options;
}

/// A tree as shapes grow it by device_logits.
std::optional<DrawnTree> grown_by_heads(const MedusaModel& model, TreeRequest request,
                                        const Tensor& hidden) {
  request.vocabulary = model.vocabulary() ? &*model.vocabulary() : nullptr;
  std::unique_ptr<DraftTreeDrawing> drawing;
  int64_t found = 0;
  for (const std::vector<int64_t>& level : branching_nodes(request.parents)) {
    const ForwardResult result = model.device_logits(hidden, found);
    if (drawing == nullptr) {
      drawing = result.sampler->begin_tree(request, result.logits.size(1));
    }
    drawing->draw(found++, at::cat(std::vector<Tensor>(level.size(), result.logits)), {});
  }
  return drawing->read(found);
}

// Trees of the same levels share a graph, whatever follows what in them.
TEST(CudaHeadGraphTest, ATreeOfSeveralHeadsIsOneGraph) {
  const std::vector<TreeCase> shapes = {
      tree_of_parents({-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}), ranked_tree(),
      tree_of_parents({-1, 0, 0, 0, 2, 3, 3, 4, 6, 6}), tree_of_parents({-1, 0, 1, 2, 3, 4, 4})};
  const auto weights = small_gemma();
  for (const bool are_shared : {true, false}) {
    SCOPED_TRACE(are_shared);
    const MedusaHead heads = five_heads(*weights, are_shared);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    MedusaModel graphed(heads, weights, graph_options(ops));
    MedusaModel plain(heads, weights, GrownCaches::options(0));
    int64_t left_out = 0;
    for (int64_t draft = 0; draft < 24; ++draft) {
      SCOPED_TRACE(draft);
      TreeCase tree = shapes[static_cast<size_t>(draft) % shapes.size()];
      tree.draws = draft / 4 % 2 == 0;
      tree.sampling =
          tree.draws ? SamplingParams{.temperature = 0.9, .top_k = 2} : SamplingParams{};
      tree.position = draft;
      const Tensor hidden = at::randn({1, 16});
      const auto wanted = grown_by_heads(plain, tree.request(), hidden);
      expect_the_same_tree(plain.draw_tree(tree.request(), hidden), wanted);
      const DraftLaunches launches(*ops);
      const auto drawn = graphed.draw_tree(tree.request(), hidden);
      EXPECT_LE(launches.copies(), 1);
      if (draft >= 16) {
        EXPECT_THAT(ops->take_calls(), testing::ElementsAre("copy [1, 16] -> [1, 16]"));
      }
      expect_the_same_tree(drawn, wanted);
      left_out += std::count(drawn->tokens.begin() + 1, drawn->tokens.end(), -1);
      if (draft % 6 == 0) {  // chains share the memory of a level
        const ChainDraws draws;
        EXPECT_EQ(graphed.draw_chain(draws.drawn(4), hidden)->tokens,
                  plain.draw_chain(draws.drawn(4), hidden)->tokens);
      }
    }
    EXPECT_GT(left_out, 0) << "some nodes have fewer tokens than children";
    EXPECT_EQ(graphed.graph_counts().captures, 2 * 2 + 1) << "of two kinds of levels, and a chain";
    EXPECT_EQ(plain.graph_counts().warm_ups, 0);
    const Tensor damaged = at::full({1, 16}, std::nan(""));
    EXPECT_FALSE(graphed.draw_tree(shapes.front().request(), damaged).has_value());
    const TreeCase deep = tree_of_parents({-1, 0, 1, 2, 3, 4, 5});
    EXPECT_THROW(graphed.draw_tree(deep.request(), at::randn({1, 16})), InternalError);
  }
}

TEST(CudaHeadGraphTest, DistributionsOfATreeOfHeadsStayAsTheyAre) {
  const auto weights = small_gemma();
  MedusaModel model(five_heads(*weights, false), weights, graph_options());
  TreeCase tree = ranked_tree();
  tree.sampling = {.temperature = 1.0};
  tree.draws = true;
  HeldProbs held;
  for (int64_t draft = 0; draft < 6; ++draft) {
    held.hold(model.draw_tree(tree.request(), at::randn({1, 16}))->probs);
  }
  EXPECT_EQ(model.graph_counts().captures, 2) << "they lie in two places in turn";
}

/// Logits of all levels lie in one place, op by op as in graphs.
TEST(CudaHeadGraphTest, LevelsOfATreeOfHeadsShareMemory) {
  std::set<const void*> logits;
  const auto weights = small_gemma();
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU),
                                                  [&](const std::string& name, const Tensor& out) {
                                                    if (name == "linear" && out.size(1) == 40) {
                                                      logits.insert(out.const_data_ptr());
                                                    }
                                                  });
  MedusaModel model(five_heads(*weights, false), weights, without_graphs(ops));
  for (int draft = 0; draft < 2; ++draft) {
    ASSERT_TRUE(model.draw_tree(ranked_tree().request(), at::randn({1, 16})).has_value());
  }
  EXPECT_EQ(logits.size(), 1U);
}

TEST(CudaHeadGraphTest, LargeTreesOfSeveralHeadsHaveNoGraph) {
  const auto weights = small_gemma();
  const MedusaHead heads = five_heads(*weights, false);
  for (const size_t nodes : {64U, 65U}) {
    MedusaModel model(heads, weights, graph_options());
    std::vector<int64_t> parents(nodes, 0);
    parents.front() = -1;
    parents.back() = 39;
    const TreeCase tree = tree_of_parents(parents);
    for (int draft = 0; draft < 3; ++draft) {
      const Tensor hidden = at::randn({1, 16});
      expect_the_same_tree(model.draw_tree(tree.request(), hidden),
                           grown_by_heads(model, tree.request(), hidden));
    }
    EXPECT_EQ(model.graph_counts().replays, nodes > 64 ? 0 : 1);
  }
}

}  // namespace
}  // namespace specdec
