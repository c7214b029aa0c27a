// Forwards and chains over a cache in tiers run as graphs where all of their pages are on the
// device, and op by op where some have left: with the bits of a cache that is all there.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/error.h"
#include "core/row_tiers.h"
#include "kv/paged_kv.h"
#include "tests/core/kernels/cuda/machine.h"
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

std::vector<int64_t> tier_graphs(const TransformerModel& model) {
  const GraphCounts counts = model.graph_counts();
  return {counts.warm_ups, counts.captures, counts.replays};
}

/// A row's pages leave, and come back to other slots.
void replace_pages(RowTiers& tiers, RowId row) {
  (void)tiers.demote(row);
  (void)tiers.promote(row);
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
  /// Decodes until a forward runs as a graph: how many ran op by op before it.
  int64_t streamed_forwards(TransformerModel& model, RowId row = 0) {
    const std::vector<int64_t> before = tier_graphs(model);
    for (int64_t forward = 0; forward < 4; ++forward) {
      decode(model, forward, row);
      if (tier_graphs(model) != before) {
        return forward;
      }
    }
    return -1;
  }

  std::shared_ptr<const TransformerWeights> weights_ = deep_gemma();
  TransformerModel plain_{weights_, paged_kv(), tier_options(0)};
};

TEST_F(CudaTierGraphsTest, WhatFitsAtOnceRunsAsThePagedCacheDoes) {
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto model = model_of(kAllBlocks);
  for (int round = 0; round < 3; ++round) {
    const std::vector<Tensor> expected = logits_of(plain_);
    (void)logits_of(paged);
    const std::vector<Tensor> logits = logits_of(*model, round == 0 ? Move() : replace_pages);
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(at::equal(logits[i], expected[i])) << round << ", " << i;
    }
  }
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged));
  EXPECT_GT(model->graph_counts().replays, 5);
  EXPECT_GT(model->cache().statistics().tiers->promotions, 100);
}

// Rows that do not fit together take turns: a forward or two bring the pages of the row whose turn
// it is, each layer's beside what is computed of the one before, and the others are graphs.
TEST_F(CudaTierGraphsTest, RowsThatTakeTurnsRunAsGraphsOnceTheyAreThere) {
  const auto model = model_of(kRowBlocks + 8);
  RowId other = 0;
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
    other = each->open();
    restore_text(*each, other);
    each->truncate(kKept - 20, other);
  }
  for (int64_t turn = 0; turn < 6; ++turn) {
    const int64_t streamed = streamed_forwards(*model, turn % 2 == 0 ? 0 : other);
    EXPECT_GE(streamed, 1);
    EXPECT_LE(streamed, 2);
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 4));
  const Token both[] = {3, 4};
  const RowId rows[] = {0, other};
  for (int forward = 0; forward < 3; ++forward) {  // never all there
    const Tensor wanted = plain_.decode_get_logits(both, rows).clone();
    EXPECT_TRUE(at::equal(model->decode_get_logits(both, rows), wanted));
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 4));
}

TEST_F(CudaTierGraphsTest, AGraphFindsPagesThatLeftAndCameBack) {
  const auto model = model_of(kAllBlocks);
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  RowTiers& tiers = *model->cache().row_tiers();
  for (Token token = 0; token < 6; ++token) {
    replace_pages(tiers, 0);
    decode(*model, token);
  }
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 4));
  (void)tiers.demote(0);
  EXPECT_EQ(streamed_forwards(*model), 1) << "which brings all pages";
  EXPECT_EQ(streamed_forwards(*model), 0);
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 6));
}

TEST_F(CudaTierGraphsTest, ARowThatFitsAgainRunsAsAGraphAgain) {
  const auto model = model_of(kRowBlocks - 1);
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  EXPECT_EQ(streamed_forwards(*model), -1) << "one block too many";
  for (TransformerModel* each : {&plain_, model.get()}) {
    each->truncate(150);
  }
  EXPECT_LE(streamed_forwards(*model), 2);
  EXPECT_EQ(streamed_forwards(*model), 0);
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 0));
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  EXPECT_EQ(streamed_forwards(*model), -1);
}

TEST_F(CudaTierGraphsTest, NothingIsCopiedOrLaunchedBesideAGraphOfResidentPages) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TransformerModel model(weights_, tiered(kRowBlocks, 0), {.ops = ops});
  for (TransformerModel* each : {&plain_, &model}) {
    restore_text(*each);
  }
  replace_pages(*model.cache().row_tiers(), 0);
  for (Token token = 0; token < 3; ++token) {
    ops->take_calls();
    const int64_t before = copies_->copied;
    decode(model, token);
    EXPECT_EQ(ops->take_calls().empty(), token > 0);
    EXPECT_EQ(copies_->copied, before);
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
  EXPECT_LE(streamed_forwards(*model), 2);
}

TEST_F(CudaTierGraphsTest, AForgottenWaitIsFound) {
  if (cuda::runs_on_a_gpu()) {
    GTEST_SKIP() << "its copies may be done at once";
  }
  const auto model = model_of(kRowBlocks);
  for (TransformerModel* each : {&plain_, model.get()}) {
    restore_text(*each);
  }
  RowTiers& tiers = *model->cache().row_tiers();
  replace_pages(tiers, 0);
  decode(*model, 1);
  decode(*model, 2);
  (void)tiers.demote(0);
  copies_->ops_wait = false;
  (void)tiers.promote(0);
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

TEST_F(CudaTierGraphsTest, ChainsAreGraphsWhereTheyFit) {
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto fits = model_of(kRowBlocks);
  const auto streams = model_of(kRowBlocks - 1);
  for (TransformerModel* each : {&plain_, &paged, fits.get(), streams.get()}) {
    restore_text(*each);
  }
  RowTiers& tiers = *fits->cache().row_tiers();
  replace_pages(tiers, 0);
  for (Token first = 0; first < 6; ++first) {
    if (first % 3 == 2) {
      replace_pages(tiers, 0);
    }
    const DrawnChain wanted = chain_of(plain_, first);
    (void)chain_of(paged, first);
    expect_equal_chains(chain_of(*fits, first), wanted);
    expect_equal_chains(chain_of(*streams, first), wanted);
  }
  EXPECT_EQ(tier_graphs(*fits), tier_graphs(paged));
  EXPECT_GT(fits->graph_counts().replays, 2);
  EXPECT_THAT(tier_graphs(*streams), ElementsAre(0, 0, 0));
  (void)tiers.demote(0);
  const int64_t replays = fits->graph_counts().replays;
  for (const Token first : {4, 4}) {
    expect_equal_chains(chain_of(*fits, first), chain_of(plain_, first));
  }
  EXPECT_GT(fits->graph_counts().replays, replays) << "the first one brings all pages";
}

TEST_F(CudaTierGraphsTest, ANewChainMovesNothingBeforeItsSteps) {
  NotedPages::Notes notes;
  TransformerModel model(weights_, noted(tiered(kAllBlocks, 0), notes), tier_options());
  restore_text(model);
  (void)chain_of(model, 2);
  EXPECT_EQ(notes.calls, 4) << "its forwards alone";
  (void)chain_of(model, 2);
  EXPECT_EQ(notes.calls, 5) << "a graph";
}

// `self` evaluates the first layers of its target, whose pages may fit where those of all do not.
TEST_F(CudaTierGraphsTest, AChainOfSomeLayersNeedsTheirPagesAlone) {
  const std::vector<int64_t> layers = {0, 1};
  TransformerModel paged(weights_, paged_kv(), tier_options());
  const auto model = model_of(30);  // a third layer has room beside these
  for (TransformerModel* each : {&plain_, &paged, model.get()}) {
    restore_text(*each);
  }
  RowTiers& tiers = *model->cache().row_tiers();
  replace_pages(tiers, 0);
  for (Token first = 0; first < 8; ++first) {
    const DrawnChain wanted = chain_of(plain_, first, layers);
    (void)chain_of(paged, first, layers);
    expect_equal_chains(chain_of(*model, first, layers), wanted);
    EXPECT_EQ(tiers.bytes(0).memory, 30 * kBlock) << first << ": nothing leaves";
    replace_pages(tiers, 0);
  }
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged));
  EXPECT_GT(model->graph_counts().replays, 2);
  decode(*model, 3);
  EXPECT_EQ(tier_graphs(*model), tier_graphs(paged)) << "all layers do not fit";
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
  EXPECT_THAT(tier_graphs(*model), ElementsAre(1, 1, 6)) << "one brings the pages";
}

}  // namespace
}  // namespace specdec
