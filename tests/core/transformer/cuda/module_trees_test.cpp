// Trees of several modules of a head, run on the CPU (core/kernels/cuda/emulation): as graphs they
// have the bits of trees that forwards grow level by level.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/module_bench.h"

namespace specdec {
namespace {

/// What forwards of a tree's levels made of its nodes, in each module.
struct GrownNodes {
  std::vector<std::vector<Tensor>> features;  ///< [nodes][modules]
  std::vector<std::vector<int64_t>> pending;  ///< the same
};

/// Evaluates nodes of one depth on a module.
ForwardResult evaluate_nodes(FeatureModel& model, size_t module, const TreeRequest& tree,
                             std::span<const int64_t> nodes, std::pair<size_t, Tensor> fed,
                             GrownNodes& grown) {
  const auto& [source, tokens] = fed;
  TokenBatch batch{.tokens = tokens.clone()};
  std::vector<Tensor> before;
  int64_t next = model.pending();
  for (const int64_t node : nodes) {
    const auto parent = static_cast<size_t>(tree.parents[static_cast<size_t>(node)]);
    before.push_back(grown.features[parent][source]);
    batch.parents.push_back(grown.pending[parent][module]);
    grown.pending[static_cast<size_t>(node)][module] = next++;
  }
  batch.inputs = {.features = at::cat(before), .own_features = true};
  ForwardResult result = model.forward(batch, {.hidden = Hidden::kAll});
  for (size_t i = 0; i < nodes.size(); ++i) {
    grown.features[static_cast<size_t>(nodes[i])][module] =
        result.final_hidden.narrow(0, static_cast<int64_t>(i), 1).clone();
  }
  return result;
}

std::optional<DrawnTree> tree_by_forwards(const FeatureModels& modules, const TreeRequest& tree,
                                          const Tensor& logits,
                                          const std::vector<Tensor>& features) {
  const auto drawing = modules.front()->ops().sampler()->begin_tree(tree, 40);
  const size_t last = modules.size() - 1;
  GrownNodes grown{.features = std::vector(tree.parents.size(), std::vector<Tensor>(last + 1)),
                   .pending = std::vector(tree.parents.size(), std::vector<int64_t>(last + 1, -1))};
  grown.features.front() = features;
  const auto levels = branching_nodes(tree.parents);
  Tensor tokens = drawing->draw(0, logits, {});
  for (size_t depth = 1; depth < levels.size(); ++depth) {
    const size_t says = std::min(depth, last);
    Tensor said;
    for (size_t module = says; module <= last; ++module) {
      const size_t source = depth > module ? module : module - 1;
      const ForwardResult result =
          evaluate_nodes(*modules[module], module, tree, levels[depth], {source, tokens}, grown);
      said = module == says ? result.logits : said;
    }
    tokens = drawing->draw(static_cast<int64_t>(depth), said, {});
  }
  return drawing->read(std::ssize(levels));
}

/// Modules whose trees are graphs, beside others that grow them over the same text.
class ModulePair {
 public:
  explicit ModulePair(const std::shared_ptr<Ops>& ops = cuda_ops(at::kCPU),
                      const KvStoreFactory& store = paged_kv())
      : drawing_(three_models(small_gemma(), graph_options(ops), noted(store))),
        growing_(three_models(small_gemma(), without_graphs(), noted(store))) {}

  void keep(TokenSpan tokens) {
    const ForwardInputs inputs{.features = at::randn({std::ssize(tokens), 16})};
    for_all([&](FeatureModel& module) {
      module.truncate(module.length());
      module.extend(tokens, {.logits = Logits::kNone}, inputs);
    });
  }
  void truncate(int64_t length) {
    for_all([&](FeatureModel& module) { module.truncate(std::min(module.length(), length)); });
  }
  /// Draws behind tokens, which both keep.
  void draw(const TreeRequest& tree, const std::vector<Token>& fed = {7, 11}) {
    const Tensor features = at::randn({std::ssize(fed), 16});
    const GraphCounts before = drafts_.graph_counts();
    const auto drawn = draw_known(
        drafts_,
        [&] {
          return drafts_.draw_tree(tree, {fed, features, newest_});
        },
        &waited);
    replayed += drafts_.graph_counts().replays - before.replays;
    const Tensor logits = fed_by_forwards(growing_, fed, features, growing_newest_);
    const auto wanted = tree_by_forwards(growing_, tree, logits, growing_newest_);
    expect_the_same_newest(newest_, growing_newest_);
    expect_the_same_tree(drawn, wanted);
    EXPECT_EQ(drawn->read_backs.count, 1);
    const std::vector<Token>& tokens = drawn->tokens;
    left_out += std::count(tokens.begin(), tokens.end(), -1);
    held_.hold(drawn->probs);
    expect_the_same_nodes(tree, std::ssize(fed));
  }
  /// What drafts leave in the caches is what forwards do.
  void expect_the_same_caches() {
    truncate(64);
    const ForwardInputs inputs{.features = at::randn({1, 16})};
    for (size_t module = 0; module < 3; ++module) {
      expect_the_same_kept(module);
      const std::vector<Token> next = {7};
      const auto logits = [&](const FeatureModels& models) {
        return models[module]->extend(next, {.logits = Logits::kLast}, inputs).logits;
      };
      EXPECT_TRUE(at::equal(logits(drawing_), logits(growing_))) << module;
    }
  }
  /// Draws nothing behind features that make damaged logits, and keeps nothing.
  void draw_nothing(const TreeRequest& tree, const Tensor& features) {
    const std::vector<Token> fed(static_cast<size_t>(features.size(0)), 5);
    EXPECT_FALSE(drafts_.draw_tree(tree, {fed, features, newest_}).has_value());
    for (size_t module = 0; module < 3; ++module) {
      EXPECT_EQ(drawing_[module]->pending(), 0);
      EXPECT_EQ(drawing_[module]->length(), growing_[module]->length());
    }
  }
  /// Both go on behind other features of the text.
  void take_newest(const std::vector<Tensor>& features) {
    newest_ = features;
    growing_newest_ = features;
  }
  ModuleDrafts& drafts() { return drafts_; }
  const FeatureModels& drawing() const { return drawing_; }

  int64_t left_out = 0;  ///< nodes that were not there
  int64_t waited = 0;    ///< trees that were the first of their key
  int64_t replayed = 0;  ///< trees that ran as a graph that was there

 private:
  static TransformerOptions without_graphs() {
    TransformerOptions options = graph_options();
    options.graphs = 0;
    return options;
  }
  template <class F>
  void for_all(const F& f) {
    for (const FeatureModels* models : {&drawing_, &growing_}) {
      for (const auto& module : *models) {
        f(*module);
      }
    }
  }

  /// Keeps a branch of the pending nodes, another one each time, in both: so what a module wrote
  /// of them is seen. Goes back to what was kept before where the caches have it still.
  void expect_the_same_nodes(const TreeRequest& tree, int64_t fed) {
    const auto levels = branching_nodes(tree.parents);
    for (size_t module = 0; module < 3; ++module) {
      std::vector<int64_t> nodes;  // that the module evaluated, in the order of pending ones
      for (size_t depth = 1; depth < levels.size() && (depth <= module || module == 2); ++depth) {
        nodes.insert(nodes.end(), levels[depth].begin(), levels[depth].end());
      }
      EXPECT_EQ(drawing_[module]->pending(), fed + std::ssize(nodes)) << module;
      EXPECT_EQ(growing_[module]->pending(), std::ssize(nodes)) << module;
      std::vector<int64_t> path;  // to a node, the last one first
      const auto count = nodes.size();
      for (int64_t node = nodes.empty() ? 0 : nodes[count - 1 - draws_ % count]; node > 0;
           node = tree.parents[static_cast<size_t>(node)]) {
        path.insert(path.begin(), std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
      }
      const int64_t before = growing_[module]->length();
      growing_[module]->commit(path);
      std::vector<int64_t> behind_fed = chain_path(fed);
      for (const int64_t node : path) {
        behind_fed.push_back(fed + node);
      }
      drawing_[module]->commit(behind_fed);
      expect_the_same_kept(module);
      for (const FeatureModels* models : {&drawing_, &growing_}) {
        FeatureModel& model = *(*models)[module];
        if (model.rewindable_to(before) == before) {
          model.truncate(before);
        }
      }
    }
    ++draws_;
  }
  void expect_the_same_kept(size_t module) {
    const auto [keys, values] = stores_[module]->key_values(0, 0);
    const auto [grown_keys, grown_values] = stores_[3 + module]->key_values(0, 0);
    ASSERT_GT(keys.numel(), 0);
    EXPECT_TRUE(at::allclose(keys, grown_keys, 0.0, 0.0, true)) << "keys of module " << module;
    EXPECT_TRUE(at::allclose(values, grown_values, 0.0, 0.0, true))
        << "values of module " << module;
  }
  KvStoreFactory noted(const KvStoreFactory& store) {
    return [this, store](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
      std::unique_ptr<KvStore> made = store(layers, options);
      stores_.push_back(made.get());
      return made;
    };
  }

  std::vector<const KvStore*> stores_;  ///< of the modules that draw, then of those that grow
  size_t draws_ = 0;
  FeatureModels drawing_, growing_;
  ModuleDrafts drafts_ = drafts_of(drawing_);
  std::vector<Tensor> newest_ = random_features();
  std::vector<Tensor> growing_newest_ = newest_;
  HeldProbs held_;
};

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
  ASSERT_TRUE(pair.drafts().can_draw(1, 64));
  EXPECT_FALSE(pair.drafts().draw_tree(tree.request(), {fed, features, newest}).has_value());
  for (const auto& module : pair.drawing()) {
    EXPECT_EQ(module->pending(), 0);
  }
  EXPECT_FALSE(pair.drafts().can_draw(1, 65));
  large.resize(68, 2);
  const TreeCase larger = tree_of_parents(large);
  EXPECT_THROW(pair.drafts().draw_tree(larger.request(), {fed, features, newest}), InternalError);
  const TreeCase small = ranked_tree();
  EXPECT_THROW(
      pair.drafts().draw_tree(small.request(), {fed, features, std::span(newest).first(2)}),
      InternalError);
  pair.draw(small.request());
}

}  // namespace
}  // namespace specdec
