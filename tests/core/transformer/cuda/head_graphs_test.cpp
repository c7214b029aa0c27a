// Drafts of heads that keep no cache of their own, run on the CPU (core/kernels/cuda/emulation): as
// graphs they have the tokens and distributions that they have op by op.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/row_view.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/heads/medusa_head.h"
#include "kv/paged_kv.h"
#include "kv/tracing_store.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/core/transformer/cuda/module_bench.h"
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

/// Draws a chain by forwards of one token each.
std::optional<DrawnChain> drawn_by_forwards(std::span<const std::unique_ptr<FeatureModel>> modules,
                                            const ChainRequest& chain, const Tensor& logits,
                                            std::vector<Tensor> features) {
  const auto drawing = modules.front()->ops().sampler()->begin_chain(chain, 40);
  size_t depth = 0;  // of the token that is fed
  draw_steps(steps_of(*drawing, chain.count), [&](int64_t, const Tensor& newest) {
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

/// Modules whose chains are graphs, beside others without graphs over the same text.
class ModuleChains {
 public:
  explicit ModuleChains(const std::shared_ptr<Ops>& ops, const KvStoreFactory& store = paged_kv(),
                        TransformerOptions options = graph_options()) {
    const auto weights = small_gemma();
    options.ops = ops;
    graphed_ = three_models(weights, options, store);
    options.ops = cuda_ops(at::kCPU);
    options.graphs = 0;
    plain_ = three_models(weights, options, store);
    drafts_.emplace(drafts_of(graphed_));
  }

  /// Draws behind tokens in both, which keep them: the chains and what they leave are the same.
  void draw(const ChainRequest& request, const std::vector<Token>& fed) {
    const Tensor features = at::randn({std::ssize(fed), 16});
    const Tensor logits = fed_by_forwards(plain_, fed, features, plain_newest_);
    const auto wanted = drawn_by_forwards(plain_, request, logits, plain_newest_);
    const auto drawn = draw_known(
        *drafts_,
        [&] {
          return drafts_->draw_chain(request, {fed, features, newest_});
        },
        &waited);
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->read_backs, (ReadBacks{1, wanted->read_backs.bytes}));
    ASSERT_EQ(drawn->probs.defined(), wanted->probs.defined());
    EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
    held_.hold(drawn->probs);
    expect_the_same_newest(newest_, plain_newest_);
    for (size_t module = 0; module < 3; ++module) {
      EXPECT_EQ(graphed_[module]->pending(), std::ssize(fed) + plain_[module]->pending());
    }
    keep_fed(graphed_, std::ssize(fed));
    forget_pending();
  }
  /// Draws nothing behind what makes logits that are no numbers, and is as it was.
  void draw_damaged(const ChainRequest& request, const std::vector<Token>& fed) {
    const Tensor damaged = at::full({std::ssize(fed), 16}, std::nan(""));
    const std::vector<Tensor> before = newest_;
    EXPECT_FALSE(drafts_->draw_chain(request, {fed, damaged, newest_}).has_value());
    for (size_t module = 0; module < 3; ++module) {
      EXPECT_EQ(graphed_[module]->pending(), 0);
      EXPECT_EQ(graphed_[module]->length(), plain_[module]->length());
      EXPECT_TRUE(newest_[module].is_same(before[module]));
    }
  }
  void truncate(int64_t length) {
    for (const auto* modules : {&graphed_, &plain_}) {
      for (const auto& module : *modules) {
        module->truncate(std::min(module->length(), length));
      }
    }
  }
  /// Both go on behind other features of the text.
  void take_newest(const std::vector<Tensor>& features) {
    newest_ = features;
    plain_newest_ = features;
  }
  ModuleDrafts& drafts() { return *drafts_; }

  int64_t waited = 0;  ///< chains that were the first of their key

 private:
  void forget_pending() { truncate(std::numeric_limits<int64_t>::max()); }

  FeatureModels graphed_, plain_;
  std::optional<ModuleDrafts> drafts_;
  std::vector<Tensor> newest_ = random_features();
  std::vector<Tensor> plain_newest_ = newest_;
  HeldProbs held_;
};

// Beside the graph, the target's features are copied, as beside that of one module.
TEST(CudaHeadGraphTest, AStepOfSeveralModulesIsOneGraph) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ModuleChains chains(ops);
  ModuleDrafts& drafts = chains.drafts();
  ASSERT_TRUE(drafts.can_draw(2, 63));
  EXPECT_FALSE(drafts.can_draw(2, 64));
  EXPECT_FALSE(drafts.can_draw(3, 63));
  const ChainDraws draws;
  for (Token chain = 0; chain < 14; ++chain) {
    SCOPED_TRACE(chain);
    chains.truncate(chain == 5 ? 1 : 40);
    const DraftLaunches launches(*ops);
    chains.draw(chain % 2 == 0 ? draws.drawn(5) : draws.best(4), {chain, 9});
    const std::vector<std::string> calls = ops->take_calls();
    const std::string copy = "copy [2, 16] -> [2, 16]";
    if (chain == 9) {
      const std::string newest = "copy [1, 16] -> [1, 16]";
      EXPECT_THAT(calls, testing::ElementsAre(copy, newest, newest));
    } else if (chain > 2) {
      EXPECT_THAT(calls, testing::ElementsAre(copy));
    }
    if (chain == 8) {  // as forwards leave them
      chains.take_newest(random_features());
    }
  }
  EXPECT_EQ(chains.waited, 3) << "the first of each key";
  EXPECT_EQ(drafts.graph_counts().warm_ups, 3);
  EXPECT_EQ(drafts.graph_counts().captures, 3);
  EXPECT_EQ(drafts.graph_counts().replays, 8);
}

/// As many as a step may commit; a chain of one token feeds none that is drawn.
TEST(CudaHeadGraphTest, ModulesAreFedWhatAStepCommits) {
  ModuleChains chains(cuda_ops(at::kCPU));
  const ChainDraws draws;
  for (const int64_t fed : {1, 4, 2}) {
    for (const int64_t count : {1, 2, 3}) {
      for (Token round = 0; round < 3; ++round) {
        SCOPED_TRACE(testing::Message() << fed << " " << count << " " << round);
        std::vector<Token> tokens(static_cast<size_t>(fed), round);
        tokens.back() = 30;
        chains.draw(draws.best(count), tokens);
        chains.truncate(5);
      }
    }
  }
  EXPECT_EQ(chains.drafts().graph_counts(), (GraphCounts{9, 9, 9}));
}

TEST(CudaHeadGraphTest, DamagedModulesLeaveTheirFeaturesAsTheyWere) {
  ModuleChains chains(cuda_ops(at::kCPU));
  const ChainDraws draws;
  for (Token round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    chains.draw(draws.best(4), {round, 9});
    chains.draw_damaged(draws.best(4), {3, round});
    chains.draw(draws.best(4), {3, round});
  }
  std::vector<Tensor> newest = random_features();
  newest.front().fill_(std::nan(""));
  const std::vector<Token> fed = {3, 4};
  const Tensor features = at::randn({2, 16});
  EXPECT_FALSE(chains.drafts().draw_chain(draws.best(4), {fed, features, newest}).has_value())
      << "the second module's logits";
  chains.take_newest(random_features());
  chains.draw(draws.best(4), {5, 6});
  EXPECT_GT(chains.drafts().graph_counts().replays, 9);
}

TEST(CudaHeadGraphTest, WhatModulesAreNotFedIsAnError) {
  ModuleChains chains(cuda_ops(at::kCPU));
  const ChainDraws draws;
  const std::vector<Token> fed = {3, 4};
  const Tensor features = at::randn({2, 16});
  std::vector<Tensor> newest = random_features();
  const auto draw = [&](const FedModules& given, int64_t count) {
    (void)chains.drafts().draw_chain(draws.best(count), given);
  };
  EXPECT_THROW(draw({fed, features, newest}, 64), InternalError) << "ask can_draw() first";
  EXPECT_THROW(draw({fed, features.narrow(0, 0, 1), newest}, 4), InternalError);
  EXPECT_THROW(draw({fed, features, std::span(newest).first(2)}, 4), InternalError);
  EXPECT_THROW(draw({{}, features.narrow(0, 0, 0), newest}, 4), InternalError);
  const std::vector<Token> unknown = {40};
  EXPECT_THROW(draw({unknown, features.narrow(0, 0, 1), newest}, 4), Error);
  newest[1] = Tensor();
  EXPECT_THROW(draw({fed, features, newest}, 4), InternalError) << "it has kept nothing";
  chains.draw(draws.best(4), fed);
}

TEST(CudaHeadGraphTest, ModulesChainsFollowWhatGrows) {
  GrownCaches caches;
  ModuleChains chains(cuda_ops(at::kCPU), caches.factory(), GrownCaches::options(8));
  const ChainDraws draws;
  for (const auto& [length, count] : GrownCaches::kCases) {
    SCOPED_TRACE(length);
    for (Token chain = 0; chain < 4; ++chain) {  // the distributions lie in two places in turn
      caches.resize(length);
      chains.draw(draws.drawn(count), {chain});
    }
  }
  EXPECT_GE(chains.drafts().graph_counts().captures, 4);
}

TEST(CudaHeadGraphTest, WhatIsTracedIsNotRecorded) {
  const KvStoreFactory traced = [](const std::vector<LayerKv>& layers,
                                   const KvStoreOptions& options) {
    return std::make_unique<TracingStore>(paged_kv()(layers, options), std::ssize(layers));
  };
  const auto weights = small_gemma();
  EXPECT_FALSE(drafts_of(three_models(weights, graph_options(), traced)).can_draw(1, 4));
  for (const bool is_traced : {false, true}) {
    TransformerModel target(weights, is_traced ? traced : paged_kv(), graph_options());
    RowView row(target, target.open());
    EXPECT_EQ(target.internals()->keys_may_be_recorded(), !is_traced);
    EXPECT_EQ(row.internals()->keys_may_be_recorded(), !is_traced);
  }
}

}  // namespace
}  // namespace specdec
