// Forwards and chains over a cache in tiers run as graphs where all of their pages fit on the
// device at once, and op by op where they do not: with the bits of a cache that is all there.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/module_chains.h"
#include "kv/stateful_store.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/tiered_device.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/recording_ops.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

using testing::ElementsAre;

constexpr int64_t kAllBlocks = 200;  // of all that these tests hold
constexpr int64_t kRowBlocks = 63;   // a row of kKept tokens: 5 layers of 12 pages, 3 of a window

TransformerOptions tier_options(int64_t graphs = 32) {
  return {.ops = cuda_ops(at::kCPU), .graphs = graphs};
}

std::vector<int64_t> tier_graphs(const TransformerModel& model) {
  const GraphCounts counts = model.graph_counts();
  return {counts.warm_ups, counts.captures, counts.replays};
}

/// A model in tiers beside one whose cache never moves and that has no graphs.
class CudaTierGraphsTest : public TieredDeviceTest {
 protected:
  std::unique_ptr<TransformerModel> model_of(int64_t blocks, int64_t host_blocks = 0) {
    return std::make_unique<TransformerModel>(weights_, tiered(blocks, host_blocks),
                                              tier_options());
  }
  /// Decodes a token in a row of both, which do not keep it.
  void decode(TransformerModel& model, Token token, RowId row = 0) {
    const RowId rows[] = {row};
    const Tensor wanted = plain_.decode_get_logits({&token, 1}, rows).clone();
    EXPECT_TRUE(at::equal(model.decode_get_logits({&token, 1}, rows), wanted));
    for (TransformerModel* each : {&plain_, &model}) {
      each->truncate(each->length(row) - 1, row);
    }
  }
  static int64_t demotions(const TransformerModel& model) {
    return model.cache().statistics().tiers->demotions;
  }

  std::shared_ptr<const TransformerWeights> weights_ = deep_gemma();
  TransformerModel plain_{weights_, paged_kv(), tier_options(0)};
};

TEST_F(CudaTierGraphsTest, WhatFitsAtOnceRunsAsThePagedCacheDoes) {
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto model = model_of(kAllBlocks);
  int64_t moves = 0;
  const Move move = [&moves](RowTiers& tiers, RowId row) {
    switch (moves++ % 5) {
      case 0:
      case 1:
        tiers.demote(row);
        return;
      case 2:
        tiers.promote(row);
        return;
      case 3:
        tiers.prefetch_async(row);
        return;
      default:
        return;
    }
  };
  for (int round = 0; round < 4; ++round) {
    const std::vector<Tensor> expected = logits_of(plain_);
    (void)logits_of(paged);
    const std::vector<Tensor> logits = logits_of(*model, round == 0 ? Move() : move);
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(at::equal(logits[i], expected[i])) << round << ", " << i;
    }
  }
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged));
  EXPECT_GT(model->graph_counts().replays, 10);
  EXPECT_GT(model->cache().statistics().tiers->promotions, 200);
}

// Rows that do not fit together take turns: their pages lie in other slots each time.
TEST_F(CudaTierGraphsTest, AGraphFindsPagesThatLeftAndCameBack) {
  const auto model = model_of(kRowBlocks + 8);
  RowId other = 0;
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
    other = each->open();
    restore_text(*each, other);
    each->truncate(kKept - 20, other);
  }
  for (Token token = 0; token < 8; ++token) {
    const int64_t before = demotions(*model);
    decode(*model, token, token % 2 == 0 ? 0 : other);
    EXPECT_GT(demotions(*model), before);
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 6));
  const Token both[] = {3, 4};
  const RowId rows[] = {0, other};
  for (int forward = 0; forward < 3; ++forward) {  // not at once
    const Tensor wanted = plain_.decode_get_logits(both, rows).clone();
    EXPECT_TRUE(at::equal(model->decode_get_logits(both, rows), wanted));
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 6));
  for (Token token = 0; token < 3; ++token) {
    decode(*model, token);
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(2, 2, 7)) << "results of two tokens lie elsewhere";
}

TEST_F(CudaTierGraphsTest, ARowThatFitsAgainRunsAsAGraphAgain) {
  const auto model = model_of(kRowBlocks - 1);
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  const auto decode_three = [&] {
    for (Token token = 0; token < 3; ++token) {
      decode(*model, token);
    }
    return tier_graphs(*model);
  };
  EXPECT_THAT(decode_three(), ElementsAre(0, 0, 0)) << "one block too many";
  for (TransformerModel* each : {&plain_, model.get()}) {
    each->truncate(150);
  }
  EXPECT_THAT(decode_three(), ElementsAre(1, 1, 1));
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  EXPECT_THAT(decode_three(), ElementsAre(1, 1, 1));
}

TEST_F(CudaTierGraphsTest, NothingIsCopiedOrLaunchedBesideAGraphOfResidentPages) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TransformerModel model(weights_, tiered(kRowBlocks, 0), {.ops = ops});
  for (TransformerModel* each : {&plain_, &model}) {
    restore_text(*each);
  }
  for (Token token = 0; token < 3; ++token) {
    ops->take_calls();
    const int64_t before = copies_->copied;
    decode(model, token);
    EXPECT_EQ(ops->take_calls().empty(), token > 0);
    EXPECT_EQ(copies_->copied == before, token > 0);
  }
}

TEST_F(CudaTierGraphsTest, AFullDiskIsAnErrorThatLosesNothing) {
  const auto model = model_of(kRowBlocks + 8);
  RowId other = 0;
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
    other = each->open();
    restore_text(*each, other);
  }
  decode(*model, 1);
  decode(*model, 2);
  const Token token = 5;
  const RowId row[] = {other};
  {
    const FullDisk full;  // row 0's new pages have to be written
    EXPECT_THAT(error_message<Error>([&] {
                  (void)model->decode_get_logits({&token, 1}, row);
                }),
                testing::HasSubstr("cannot be written"));
  }
  EXPECT_EQ(model->length(other), kKept);
  EXPECT_EQ(model->pending(other), 0);
  decode(*model, 5, other);
  decode(*model, 3);
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 2));
}

TEST_F(CudaTierGraphsTest, AForgottenWaitIsFound) {
  const auto model = model_of(kRowBlocks);
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  decode(*model, 1);
  decode(*model, 2);
  (void)model->cache().row_tiers()->demote(0);
  copies_->ops_wait = false;
  const Token token = 3;
  EXPECT_FALSE(
      at::equal(model->decode_get_logits({&token, 1}), plain_.decode_get_logits({&token, 1})));
}

/// A chain behind some tokens, which the model does not keep.
DrawnChain chain_of(TransformerModel& model, Token first, const std::vector<int64_t>& layers = {}) {
  const ChainDraws draws;
  const ForwardOptions options{.layers = layers};
  const auto drawn =
      model.draw_chain(std::vector<Token>{first, 9},
                       first % 2 == 0 ? draws.drawn(4) : draws.best(4), options, {}, 0);
  EXPECT_TRUE(drawn.has_value());
  EXPECT_EQ(model.pending(), 5);
  DrawnChain chain = drawn.value_or(DrawnChain());
  chain.probs = chain.probs.defined() ? chain.probs.clone() : chain.probs;
  model.truncate(model.length());
  return chain;
}

void expect_equal_chains(const DrawnChain& chain, const DrawnChain& wanted) {
  EXPECT_EQ(chain.tokens, wanted.tokens);
  ASSERT_EQ(chain.probs.defined(), wanted.probs.defined());
  EXPECT_TRUE(!wanted.probs.defined() || at::equal(chain.probs, wanted.probs));
}

TEST_F(CudaTierGraphsTest, ChainsAreGraphsWhereTheyFit) {
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto fits = model_of(kRowBlocks);
  const auto streams = model_of(kRowBlocks - 1);
  for (TransformerModel* each : {&plain_, &paged, fits.get(), streams.get()}) {
    restore_text(*each);
  }
  for (Token first = 0; first < 9; ++first) {
    if (first % 3 == 2) {
      (void)fits->cache().row_tiers()->demote(0);
    }
    const DrawnChain wanted = chain_of(plain_, first);
    (void)chain_of(paged, first);
    expect_equal_chains(chain_of(*fits, first), wanted);
    expect_equal_chains(chain_of(*streams, first), wanted);
  }
  EXPECT_EQ(tier_graphs(*fits), tier_graphs(paged));
  EXPECT_GT(fits->graph_counts().replays, 2);
  EXPECT_THAT(tier_graphs(*streams), ElementsAre(0, 0, 0));
}

// `self` evaluates the first layers of its target, whose pages may fit where those of all do not.
TEST_F(CudaTierGraphsTest, AChainOfSomeLayersBringsTheirPagesAlone) {
  const std::vector<int64_t> layers = {0, 1};
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto model = model_of(30);  // a third layer has room beside these
  for (TransformerModel* each : {&plain_, &paged, model.get()}) {
    restore_text(*each);
  }
  RowTiers& tiers = *model->cache().row_tiers();
  (void)tiers.demote(0);
  for (Token first = 0; first < 8; ++first) {
    const DrawnChain wanted = chain_of(plain_, first, layers);
    (void)chain_of(paged, first, layers);
    expect_equal_chains(chain_of(*model, first, layers), wanted);
    EXPECT_EQ(tiers.bytes(0).memory, (3 + 12) * kBlock) << first << ": nothing is read ahead";
    (void)tiers.demote(0);
  }
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged));
  EXPECT_GT(model->graph_counts().replays, 2);
  decode(*model, 3);
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged)) << "all layers do not fit";
}

using TieredModules = std::vector<std::unique_ptr<FeatureModel>>;

/// Keeps tokens in each, and draws a chain behind them.
std::optional<DrawnChain> chain_of_modules(ModuleChains& chains, const TieredModules& modules,
                                           const Tensor& numbers, int64_t length) {
  std::vector<Tensor> features;
  for (const auto& module : modules) {
    module->truncate(0);
    module->extend(std::vector<Token>(static_cast<size_t>(length), 3), {.logits = Logits::kNone},
                   {.features = numbers.narrow(0, 0, length)});
    features.push_back(numbers.narrow(0, std::ssize(features), 1));
  }
  return chains.draw(ChainDraws().drawn(4), numbers.narrow(0, 9, 1).repeat({1, 3}).narrow(1, 0, 40),
                     features);
}

TEST_F(CudaTierGraphsTest, AChainOfModulesIsAGraphWhereItFits) {
  const auto head = random_mtp_head(*weights_, 3, {.seed = 7});
  const auto modules_on = [&](const KvStoreFactory& store) {
    TransformerOptions options = tier_options();
    options.max_length = 64;
    TieredModules modules;
    for (size_t module = 0; module < 3; ++module) {
      modules.push_back(make_mtp_model(head, module, weights_, store, options));
    }
    return modules;
  };
  const auto chains_on = [](const TieredModules& modules) {
    return ModuleChains({modules[0].get(), modules[1].get(), modules[2].get()}, 8);
  };
  const TieredModules paged = modules_on(paged_kv());
  const TieredModules modules = modules_on(tiered(1, 0));
  ModuleChains wanted = chains_on(paged);
  ModuleChains chains = chains_on(modules);
  const Tensor numbers = at::randn({16, 16});
  ASSERT_TRUE(chains.can_draw(4));
  for (int round = 0; round < 4; ++round) {
    const auto expected = chain_of_modules(wanted, paged, numbers, 13);
    const auto drawn = chain_of_modules(chains, modules, numbers, 13);
    ASSERT_TRUE(expected.has_value() && drawn.has_value());
    expect_equal_chains(*drawn, *expected);
  }
  EXPECT_EQ(chains.graph_counts().replays, wanted.graph_counts().replays);
  EXPECT_GT(chains.graph_counts().replays, 0);
  // The second module has room for its step, the third one none for its three.
  EXPECT_FALSE(chain_of_modules(chains, modules, numbers, 15).has_value());
  for (const auto& module : modules) {
    EXPECT_EQ(module->pending(), 0);
    EXPECT_EQ(module->length(), 15);
  }
  EXPECT_TRUE(chain_of_modules(chains, modules, numbers, 13).has_value());
}

TEST_F(CudaTierGraphsTest, RecurrentModelsRunAsGraphs) {
  const auto weights = tiny_recurrent_gemma(40, at::kFloat, 1, kEmulated);
  const auto model_on = [&](bool is_tiered, int64_t graphs) {
    const KvStoreFactory store = [=, this](const std::vector<LayerKv>& layers,
                                           const KvStoreOptions& options) {
      KvCacheOptions own{.dtype = options.dtype, .max_length = options.max_length};
      if (is_tiered) {
        own.max_bytes = 1 << 20;
        own.memory_bytes = 64 << 10;
        own.disk = folder_.path();
        own.copies = copies_;
      }
      own.as_device = true;
      return make_cache(layers, own);
    };
    return std::make_unique<TransformerModel>(
        weights, store,
        TransformerOptions{.ops = cuda_ops(at::kCPU), .active_layers = 3, .graphs = graphs});
  };
  const auto plain = model_on(false, 0);
  const auto model = model_on(true, 8);
  for (const auto& each : {plain.get(), model.get()}) {
    each->prefill_get_last_logits(std::vector<Token>{9});
  }
  for (Token token = 0; token < 8; ++token) {
    if (token == 4) {
      EXPECT_GT(model->cache().row_tiers()->demote(0), 0);
    }
    const Tensor wanted = plain->decode_get_logits({&token, 1}).clone();
    EXPECT_TRUE(at::equal(model->decode_get_logits({&token, 1}), wanted));
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 7));
}

}  // namespace
}  // namespace specdec
