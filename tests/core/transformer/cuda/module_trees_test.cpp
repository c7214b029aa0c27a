// Trees of several modules of a head, run on the CPU (core/kernels/cuda/emulation): as graphs they
// have the bits of trees that forwards grow level by level.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/module_tree_bench.h"

namespace specdec {
namespace {

/// Leaves alone, a chain, levels of different sizes, one more than there are modules, and more
/// children than there are tokens.
std::vector<TreeCase> module_tree_cases() {
  std::vector<int64_t> wide(44, 0);
  wide.front() = -1;
  wide.insert(wide.end(), {1, 1, 42, 43});
  return {tree_of_parents({-1, 0, 0}), tree_of_parents({-1, 0, 1, 2, 3, 4, 5}), ranked_tree(),
          tree_of_parents({-1, 0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 6, 7, 7, 9, 10, 12, 12}),
          tree_of_parents(wide)};
}

TEST(CudaModuleTreeTest, TreesHaveTheBitsOfThoseThatGrow) {
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0},
      {.temperature = 0.7, .top_k = 2},
      {.temperature = 1.3, .top_p = 0.6},
      {.temperature = 0.9, .top_k = 20, .top_p = 0.95, .min_p = 0.05}};
  int64_t left_out = 0;
  size_t next = 0;  // the emulation is slow: each shape with some of the options
  for (const TreeCase& shape : module_tree_cases()) {
    ModulePair pair;
    pair.keep(std::vector<Token>{5, 6});
    for (const bool draws : {true, false}) {
      TreeCase tree = shape;
      tree.draws = draws;
      tree.sampling = !draws && next % 2 == 0 ? SamplingParams{} : cases[next % cases.size()];
      ++next;
      SCOPED_TRACE(testing::Message() << shape.parents.size() << " nodes, T = "
                                      << tree.sampling.temperature << (draws ? ", drawn" : ""));
      // The second of a key is recorded; distributions lie in two places in turn.
      for (Token draft = 0; draft < (draws ? 5 : 3); ++draft) {
        tree.position = draft;
        pair.draw(tree.request());
        pair.keep(std::vector<Token>{draft});
        pair.truncate(4 + draft % 2);
      }
    }
    EXPECT_GT(pair.replayed, 0);
    EXPECT_EQ(pair.waited, 3) << "drawn ones in two places";
    pair.expect_the_same_caches();
    left_out += pair.left_out;
  }
  EXPECT_GT(left_out, 20) << "some distributions have fewer tokens than children are asked for";
}

KvStoreFactory module_cache(KvFormat format, int64_t exact_recent) {
  return [=](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    KvCacheOptions own;
    own.format = format;
    own.exact_recent = exact_recent;
    own.dtype = options.dtype;
    own.page_size = 4;
    own.max_length = options.max_length;
    own.window_slack = 4;
    return make_cache(layers, own);
  };
}

TEST(CudaModuleTreeTest, TreesOverOtherCachesHaveTheBitsOfThoseThatGrow) {
  for (const auto& [format, recent] : std::vector<std::pair<KvFormat, int64_t>>{
           {KvFormat::kQ8, 0}, {KvFormat::kQ4, 5}, {KvFormat::kHierarchical, 0}}) {
    SCOPED_TRACE(static_cast<int>(format));
    ModulePair pair(cuda_ops(at::kCPU), module_cache(format, recent));
    pair.keep(std::vector<Token>{3, 1, 4, 1, 5, 9, 2, 6, 5});
    TreeCase tree = ranked_tree();
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    for (Token draft = 0; draft < 6; ++draft) {
      tree.position = draft;
      pair.draw(tree.request());
      pair.keep(std::vector<Token>{draft, 8});
    }
    EXPECT_GT(pair.replayed, 0);
    pair.expect_the_same_caches();
  }
}

/// Levels of the same sizes, whose features go to other nodes.
const std::vector<std::vector<int64_t>> kSharedLevels = {{-1, 0, 0, 0, 1, 1, 2, 5, 6, 6},
                                                         {-1, 0, 0, 0, 2, 3, 3, 5, 5, 6}};

// Beside the graph, the target's features are copied.
TEST(CudaModuleTreeTest, TreesOfTheSameLevelsAreOneGraph) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ModulePair pair(ops);
  for (Token draft = 0; draft < 8; ++draft) {
    SCOPED_TRACE(draft);
    TreeCase tree = tree_of_parents(kSharedLevels[static_cast<size_t>(draft / 2 % 2)]);
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    tree.position = draft;
    pair.keep(std::vector<Token>{draft, 9});
    ops->take_calls();
    pair.draw(tree.request());
    if (draft < 2) {  // levels of two nodes, fed to two modules and to the last one
      const std::vector<std::string> calls = ops->take_calls();
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "gather_rows [1, 16] -> [2, 16]"), 2);
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "gather_rows [2, 16] -> [2, 16]"), 1);
    } else {
      EXPECT_THAT(ops->take_calls(), testing::ElementsAre("copy [2, 16] -> [2, 16]"));
    }
  }
  EXPECT_EQ(pair.waited, 2) << "in two places";
  EXPECT_EQ(pair.drafts().graph_counts().warm_ups, 2);
  EXPECT_EQ(pair.drafts().graph_counts().captures, 2);
  EXPECT_EQ(pair.drafts().graph_counts().replays, 4);
}

/// A tree of branches alone has a key of its own beside a chain of as many tokens.
TEST(CudaModuleTreeTest, ChainsAndTreesTakeTurns) {
  ModulePair pair;
  const FeatureModels plain = three_models(small_gemma(), graph_options());
  ModuleDrafts alone = drafts_of(plain);
  const ChainDraws draws;
  TreeCase tree = tree_of_parents({-1, 0, 1, 2, 3});
  tree.sampling = draws.sampling;
  for (Token draft = 0; draft < 4; ++draft) {
    pair.keep(std::vector<Token>{draft});
    pair.draw(tree.request());
    pair.truncate(0);
    const std::vector<Token> fed = {draft, 4};
    const Tensor features = at::randn({2, 16});
    std::vector<Tensor> newest = random_features();
    const std::vector<Tensor> before = newest;
    const auto draw = [&](ModuleDrafts& drafts) {
      newest = before;
      return draw_known(drafts, [&] {
        return drafts.draw_chain(draws.best(4), {fed, features, newest});
      });
    };
    const auto drawn = draw(pair.drafts());
    const auto wanted = draw(alone);
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    for (size_t module = 0; module < 3; ++module) {
      pair.drawing()[module]->truncate(0);
      plain[module]->truncate(0);
    }
    pair.take_newest(before);
  }
  EXPECT_EQ(pair.drafts().graph_counts().captures, 2);
  EXPECT_EQ(pair.drafts().graph_counts().replays, 4);
}

TEST(CudaModuleTreeTest, DamagedLogitsDrawNothing) {
  ModulePair pair;
  TreeCase tree = ranked_tree();
  const Tensor damaged = at::full({2, 16}, std::nan(""));
  for (Token draft = 0; draft < 5; ++draft) {
    SCOPED_TRACE(draft);
    pair.keep(std::vector<Token>{draft});
    pair.draw_nothing(tree.request(), damaged);
    pair.draw(tree.request());
    pair.draw_nothing(tree.request(), damaged);
    // What follows nodes of depth 1 comes of the first module's features.
    pair.take_newest({damaged.narrow(0, 0, 1), at::randn({1, 16}), at::randn({1, 16})});
    pair.draw_nothing(tree.request(), at::randn({2, 16}));
    pair.take_newest(random_features());
    pair.draw(tree.request());
  }
}

TEST(CudaModuleTreeTest, WhatAGraphCannotHoldIsNotDrawn) {
  ModulePair pair;
  const std::vector<Token> fed = {5};
  const Tensor features = at::randn({1, 16});
  std::vector<Tensor> newest = random_features();
  std::vector<int64_t> large(65, 0);  // with the root one more than a tree's memory is kept for
  large.front() = -1;
  large.back() = 1;
  const TreeCase tree = tree_of_parents(large);
  EXPECT_TRUE(pair.drafts().can_draw_chain(1, 64));
  EXPECT_FALSE(pair.drafts().can_draw_tree(1, 64));
  EXPECT_THROW(pair.drafts().draw_tree(tree.request(), {fed, features, newest}), InternalError);
  for (const auto& module : pair.drawing()) {
    EXPECT_EQ(module->pending(), 0);
  }
  EXPECT_TRUE(pair.drafts().can_draw_tree(1, 63));
  EXPECT_TRUE(pair.drafts().can_draw_tree(2, 63));
  EXPECT_FALSE(pair.drafts().can_draw_tree(3, 63));
  const TreeCase small = ranked_tree();
  EXPECT_THROW(
      pair.drafts().draw_tree(small.request(), {fed, features, std::span(newest).first(2)}),
      InternalError);
  pair.draw(small.request());
}

}  // namespace
}  // namespace specdec
