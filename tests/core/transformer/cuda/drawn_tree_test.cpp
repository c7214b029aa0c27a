// Trees that a model draws on its device, run on the CPU (core/kernels/cuda/emulation): as one
// graph or forward by forward they have the bits of trees that grow level by level.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/row_view.h"
#include "core/transformer/heads/feature_model.h"
#include "kv/compressed_store.h"
#include "kv/paged_kv.h"
#include "kv/tracing_store.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/support/locked_model.h"

namespace specdec {
namespace {

/// Single nodes, a chain, levels of different sizes, more children than there are tokens.
std::vector<TreeCase> tree_cases() {
  std::vector<int64_t> wide(44, 0);  // 43 children of the root, of 40 tokens; two have children
  wide.front() = -1;
  wide.insert(wide.end(), {1, 1, 42, 43});
  return {tree_of_parents({-1, 0}), tree_of_parents({-1, 0, 1, 2, 3}), ranked_tree(),
          tree_of_parents({-1, 0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 6, 7, 7, 9, 10, 12, 12}),
          tree_of_parents(wide)};
}

const std::vector<SamplingParams> kTreeSampling = {
    {.temperature = 1.0},
    {.temperature = 0.7, .top_k = 2},
    {.temperature = 1.3, .top_p = 0.6},
    {.temperature = 0.9, .top_k = 20, .top_p = 0.95, .min_p = 0.05}};

TEST(CudaDrawnTreeTest, TreesHaveTheBitsOfThoseThatGrow) {
  int64_t left_out = 0;
  size_t next = 0;  // the emulation is slow: each shape with some of the options
  for (const TreeCase& shape : tree_cases()) {
    TreePair pair;
    pair.prefill(std::vector<Token>{5, 6});
    for (const bool draws : {true, false}) {
      TreeCase tree = shape;
      tree.draws = draws;
      tree.sampling =
          !draws && next % 2 == 0 ? SamplingParams{} : kTreeSampling[next % kTreeSampling.size()];
      ++next;
      SCOPED_TRACE(testing::Message() << shape.parents.size() << " nodes, T = "
                                      << tree.sampling.temperature << (draws ? ", drawn" : ""));
      for (Token draft = 0; draft < 4; ++draft) {  // the third is recorded
        tree.position = draft;
        pair.draw(std::vector<Token>{draft}, tree);
        pair.truncate(std::min<int64_t>(pair.growing().length(), 6));
      }
    }
    EXPECT_GT(pair.replayed, 0);
    pair.expect_the_same_cache();
    left_out += pair.left_out;
  }
  EXPECT_GT(left_out, 20) << "some distributions have fewer tokens than children are asked for";
}

KvStoreFactory tree_cache(const KvCacheOptions& own) {
  return [own](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    KvCacheOptions all = own;
    all.dtype = options.dtype;
    all.page_size = 4;
    all.max_length = options.max_length;
    return make_cache(layers, all);
  };
}

/// Caches that graphs of trees read, and two that they cannot hold: with means, and traced.
TEST(CudaDrawnTreeTest, TreesOverEveryCacheHaveTheBitsOfThoseThatGrow) {
  const std::vector<KvStoreFactory> caches = {
      tree_cache({.format = KvFormat::kQ8, .window_slack = 4}),
      tree_cache({.format = KvFormat::kQ4, .window_slack = 4, .exact_recent = 5}),
      tree_cache({.format = KvFormat::kHierarchical, .window_slack = 4}),
      [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
        return std::make_unique<CompressedStore>(paged_kv(4)(layers, options), layers,
                                                 Pooling{.chunk = 2, .recent = 3, .sink = 1});
      },
      [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
        return std::make_unique<TracingStore>(paged_kv(4)(layers, options), std::ssize(layers));
      }};
  for (size_t cache = 0; cache < caches.size(); ++cache) {
    SCOPED_TRACE(cache);
    TreePair pair(1, emulated(), caches[cache]);
    pair.prefill(std::vector<Token>{3, 1, 4, 1, 5, 9, 2, 6, 5});
    TreeCase tree = ranked_tree();
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    for (Token draft = 0; draft < 6; ++draft) {  // of one token that is fed, and of two
      SCOPED_TRACE(draft);
      tree.position = draft;
      const std::vector<Token> fed = {draft, 8};
      pair.draw(TokenSpan(fed).first(draft < 4 ? 1 : 2), tree);
    }
    EXPECT_EQ(pair.replayed > 0, cache < 3);
    pair.expect_the_same_cache();
  }
}

// A tree's tables go up once; what is copied beside them are its tables for the sampler, and the
// tree that is read back.
TEST(CudaDrawnTreeTest, ATreeIsOneGraph) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TreePair pair(1, {.ops = ops});
  pair.prefill(std::vector<Token>{5, 6});
  TransformerModel& graphed = pair.drawing();
  int64_t graphs = graphed.graph_counts().warm_ups;
  const SamplingParams drawn{.temperature = 0.8, .top_k = 12, .top_p = 0.95};
  for (Token draft = 0; draft < 14; ++draft) {
    SCOPED_TRACE(draft);
    TreeCase tree = ranked_tree();
    tree.sampling = drawn;
    tree.draws = draft % 4 < 2;
    tree.position = draft;
    const std::vector<Token> fed = {draft, 9};  // of each length, drawn and best
    const TokenSpan tokens = TokenSpan(fed).first(1 + draft % 2);
    const DraftLaunches launches(*ops);
    const auto found = graphed.draw_tree(tokens, tree.request());
    if (draft >= 4) {
      EXPECT_EQ(launches.ops() > 0, draft < 8) << "the second of a key runs op by op";
      EXPECT_LE(launches.copies(), 1);
    }
    expect_the_same_tree(found, grown_tree(pair.growing(), tokens, tree.request()));
    const GraphCounts counts = graphed.graph_counts();
    graphs += draft < 4 ? 3 : 1;  // forwards of the first tree of a key
    EXPECT_EQ(counts.warm_ups + counts.captures + counts.replays, graphs);
    EXPECT_EQ(graphed.pending(), std::ssize(tokens) + 4);
    graphed.commit(chain_path(std::ssize(tokens)));
    pair.growing().commit({});
  }
  TreeCase other = ranked_tree();  // how tokens are drawn, and by which layers, is part of a graph
  other.sampling = drawn;
  other.sampling.temperature = 1.7;
  other.draws = true;
  const std::vector<Token> next = {7};
  TransformerModel& plain = pair.growing();
  for (const ForwardOptions& options :
       std::vector<ForwardOptions>{{}, {.layers = {0}}, {}, {}, {.layers = {0}}, {}}) {
    expect_the_same_tree(graphed.draw_tree(next, other.request(), options),
                         plain.draw_tree(next, other.request(), options));
    pair.truncate(plain.length());
  }
  pair.expect_the_same_cache();
}

TEST(CudaDrawnTreeTest, TreesOfTheSameLevelsShareAGraph) {
  TreePair pair;
  pair.prefill(std::vector<Token>{5, 6});
  const std::vector<std::vector<int64_t>> shapes = {{-1, 0, 0, 0, 1, 1, 2, 5, 6, 6},
                                                    {-1, 0, 0, 0, 2, 3, 3, 4, 4, 5}};
  GraphCounts before;
  for (Token draft = 0; draft < 6; ++draft) {
    SCOPED_TRACE(draft);
    before = draft == 1 ? pair.drawing().graph_counts() : before;  // without the first's forwards
    TreeCase tree = tree_of_parents(shapes[static_cast<size_t>(draft % 2)]);
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    tree.position = draft;
    pair.draw(std::vector<Token>{draft}, tree);
    pair.truncate(2);
  }
  const GraphCounts counts = pair.drawing().graph_counts();
  EXPECT_EQ(counts.captures - before.captures, 1);
  EXPECT_EQ(counts.replays - before.replays, 3);
}

TEST(CudaDrawnTreeTest, DistributionsThatAreHeldStayAsTheyAre) {
  const auto model = tree_model();
  TreeCase tree = ranked_tree();
  tree.sampling = {.temperature = 1.0};
  tree.draws = true;
  std::vector<Tensor> held;
  std::vector<Tensor> as_they_were;
  for (Token draft = 0; draft < 5; ++draft) {
    held.push_back(model->draw_tree(std::vector<Token>{draft}, tree.request())->probs);
    as_they_were.push_back(held.back().clone());
    model->truncate(0);
    if (draft > 0) {  // two at a time; then those of one lie where another's lay
      EXPECT_TRUE(at::equal(held[held.size() - 2], as_they_were[held.size() - 2])) << draft;
      held[held.size() - 2].reset();
    }
  }
}

/// They share the sampler's memory: a graph finds there what the other model's trees left.
TEST(CudaDrawnTreeTest, ModelsTakeTurns) {
  const TransformerOptions shared = emulated();
  TreePair one(1, shared);
  TreePair other(2, shared);
  for (TreePair* pair : {&one, &other}) {
    pair->prefill(std::vector<Token>{5, 6});
  }
  TreeCase tree = ranked_tree();
  for (const bool draws : {false, true}) {
    tree.sampling = {.temperature = draws ? 1.0 : 0.0};
    tree.draws = draws;
    for (Token draft = 0; draft < 5; ++draft) {
      SCOPED_TRACE(draft);
      tree.position = draft;
      for (TreePair* pair : {&one, &other}) {
        pair->draw(std::vector<Token>{draft, 3}, tree);
        pair->truncate(2);
      }
    }
  }
  for (TreePair* pair : {&one, &other}) {
    EXPECT_EQ(pair->replayed, 4) << "two of each kind";
    pair->expect_the_same_cache();
  }
}

TEST(CudaDrawnTreeTest, RowsAreApart) {
  const auto model = tree_model();
  const std::vector<Token> text = {5, 6, 7};
  model->prefill_get_last_logits(text);
  const RowId row = model->fork(0, 2);
  RowView view(*model, row);
  const TreeCase tree = ranked_tree();
  const auto plain = tree_model_without_graphs();
  for (Token draft = 0; draft < 4; ++draft) {
    SCOPED_TRACE(draft);
    const std::vector<Token> fed = {draft};
    const auto in_view = view.draw_tree(fed, tree.request());
    EXPECT_EQ(model->pending(row), 5);
    EXPECT_EQ(model->pending(), 0);
    plain->prefill_get_last_logits(std::span(text).first(2));
    expect_the_same_tree(in_view, grown_tree(*plain, fed, tree.request()));
    const auto in_row_0 = model->draw_tree(fed, tree.request());
    plain->prefill_get_last_logits(text);
    expect_the_same_tree(in_row_0, grown_tree(*plain, fed, tree.request()));
    view.truncate(2);
    model->truncate(3);
  }
}

/// Logits of a head after a tree's levels lie in the memory of its widest one, as those of trees
/// that are about as wide.
TEST(CudaDrawnTreeTest, LevelsOfAHeadsTreeShareMemory) {
  std::set<const void*> logits;
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU),
                                                  [&](const std::string& name, const Tensor& out) {
                                                    if (name == "linear" && out.size(1) == 40) {
                                                      logits.insert(out.const_data_ptr());
                                                    }
                                                  });
  const auto weights = small_gemma();
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *weights);
  const auto model = make_eagle_model(random_eagle_head(config, {.seed = 5}), weights, paged_kv(),
                                      {.max_length = 64, .ops = ops});
  for (int draft = 0; draft < 2; ++draft) {
    logits.clear();  // the second of a key runs op by op, where graphs do
    for (const std::vector<int64_t>& parents : std::vector<std::vector<int64_t>>{
             {-1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}, {-1, 0, 0, 0, 1, 2, 3, 4, 5, 7}}) {
      const TreeCase tree = tree_of_parents(parents);
      ASSERT_TRUE(model->draw_tree(std::vector<Token>{3}, tree.request()).has_value());
      model->truncate(0);
    }
  }
  EXPECT_EQ(logits.size(), 1);
}

TEST(CudaDrawnTreeTest, LargeTreesAreDrawnForwardByForward) {
  for (const size_t nodes : {64U, 65U}) {
    SCOPED_TRACE(nodes);
    std::vector<int64_t> parents(nodes, 0);
    parents.front() = -1;
    for (size_t leaf = nodes - 30; leaf < nodes; ++leaf) {
      parents[leaf] = 1;
    }
    TreePair pair;
    pair.prefill(std::vector<Token>{5, 6});
    const int64_t before = pair.drawing().graph_counts().replays;
    for (Token draft = 0; draft < 3; ++draft) {
      pair.draw(std::vector<Token>{draft}, tree_of_parents(parents));
      pair.truncate(2);
    }
    // The forwards of larger ones are graphs by themselves; three of the others come to a
    // recording.
    EXPECT_EQ(pair.drawing().graph_counts().replays > before, nodes > 64);
  }
}

TEST(CudaDrawnTreeTest, ACallOutOfOrderChangesNothing) {
  const TreeCase tree = ranked_tree();
  const auto model = tree_model();
  model->forward(batch_of(std::vector<Token>{3}));
  EXPECT_THROW(model->draw_tree(std::vector<Token>{4}, tree.request()), InternalError);
  EXPECT_EQ(model->pending(), 1);
  model->truncate(0);
  EXPECT_THROW(model->draw_tree(std::vector<Token>{}, tree.request()), InternalError);
  EXPECT_THROW(model->draw_tree(std::vector<Token>{40}, tree.request()), Error);
  TreeCase root = tree;
  root.parents = {-1};
  root.ranks = {0};
  EXPECT_THROW(model->draw_tree(std::vector<Token>{4}, root.request()), InternalError);
  const std::vector<Token> long_text(92, 3);  // of 96; four more nodes are evaluated
  model->prefill_get_last_logits(TokenSpan(long_text).first(91));
  EXPECT_TRUE(model->draw_tree(std::vector<Token>{4}, tree.request()).has_value());
  model->truncate(91);
  EXPECT_THROW(model->draw_tree(std::vector<Token>{4, 5}, tree.request()), Error) << "96 fit";
  EXPECT_EQ(model->pending(), 0);
  LockedModel locked(*model);
  EXPECT_THROW(locked.draw_tree(std::vector<Token>{1}, tree.request()), InternalError);
}

}  // namespace
}  // namespace specdec
