// Chains of several modules of a head, run on the CPU (core/kernels/cuda/emulation): as graphs they
// have the bits of chains that forwards draw token by token.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/row_view.h"
#include "core/transformer/draft_steps.h"
#include "kv/paged_kv.h"
#include "kv/tracing_store.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/core/transformer/cuda/module_bench.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

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
TEST(CudaModuleChainTest, AStepOfSeveralModulesIsOneGraph) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ModuleChains chains(ops);
  ModuleDrafts& drafts = chains.drafts();
  ASSERT_TRUE(drafts.can_draw_chain(2, 63));
  EXPECT_FALSE(drafts.can_draw_chain(2, 64));
  EXPECT_FALSE(drafts.can_draw_chain(3, 63));
  const ChainDraws draws;
  for (Token chain = 0; chain < 14; ++chain) {
    SCOPED_TRACE(chain);
    chains.truncate(chain == 5 ? 1 : 40);
    ops->take_calls();
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

/// A chain of one token feeds its modules and draws: behind their layers each but the last one
/// norms what it came to, once.
TEST(CudaModuleChainTest, FedTokensAreNormedOnce) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ModuleChains chains(ops);
  const ChainDraws draws;
  chains.draw(draws.best(1), {7, 9});
  const std::vector<std::string> calls = ops->take_calls();
  const auto count = [&](const std::string& call) {
    return std::count(calls.begin(), calls.end(), call);
  };
  // Two norms of what enters a module and two of its layer, and one of what leaves but the last.
  EXPECT_EQ(count("rms_norm [2, 16] -> [2, 16]"), 3 * 4 + 2);
  EXPECT_EQ(count("rms_norm [1, 16] -> [1, 16]"), 0);
  EXPECT_EQ(count("embed_rows [2] -> [2, 16]"), 3);
}

/// As many as a step may commit; a chain of one token feeds none that is drawn.
TEST(CudaModuleChainTest, ModulesAreFedWhatAStepCommits) {
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

TEST(CudaModuleChainTest, DamagedModulesLeaveTheirFeaturesAsTheyWere) {
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

TEST(CudaModuleChainTest, WhatModulesAreNotFedIsAnError) {
  ModuleChains chains(cuda_ops(at::kCPU));
  const ChainDraws draws;
  const std::vector<Token> fed = {3, 4};
  const Tensor features = at::randn({2, 16});
  std::vector<Tensor> newest = random_features();
  const auto draw = [&](const FedModules& given, int64_t count) {
    (void)chains.drafts().draw_chain(draws.best(count), given);
  };
  EXPECT_THROW(draw({fed, features, newest}, 64), InternalError) << "ask can_draw_chain() first";
  EXPECT_THROW(draw({fed, features.narrow(0, 0, 1), newest}, 4), InternalError);
  EXPECT_THROW(draw({fed, features, std::span(newest).first(2)}, 4), InternalError);
  EXPECT_THROW(draw({{}, features.narrow(0, 0, 0), newest}, 4), InternalError);
  const std::vector<Token> unknown = {40};
  EXPECT_THROW(draw({unknown, features.narrow(0, 0, 1), newest}, 4), Error);
  newest[1] = Tensor();
  EXPECT_THROW(draw({fed, features, newest}, 4), InternalError) << "it has kept nothing";
  chains.draw(draws.best(4), fed);
}

TEST(CudaModuleChainTest, ModulesChainsFollowWhatGrows) {
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

TEST(CudaModuleChainTest, WhatIsTracedIsNotRecorded) {
  const KvStoreFactory traced = [](const std::vector<LayerKv>& layers,
                                   const KvStoreOptions& options) {
    return std::make_unique<TracingStore>(paged_kv()(layers, options), std::ssize(layers));
  };
  const auto weights = small_gemma();
  EXPECT_FALSE(drafts_of(three_models(weights, graph_options(), traced)).can_draw_chain(1, 4));
  for (const bool is_traced : {false, true}) {
    TransformerModel target(weights, is_traced ? traced : paged_kv(), graph_options());
    RowView row(target, target.open());
    EXPECT_EQ(target.internals()->keys_may_be_recorded(), !is_traced);
    EXPECT_EQ(row.internals()->keys_may_be_recorded(), !is_traced);
  }
}

}  // namespace
}  // namespace specdec
