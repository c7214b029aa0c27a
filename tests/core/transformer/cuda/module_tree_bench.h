#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/module_bench.h"

/// What tests of trees of several modules share.
namespace specdec {

/// What forwards of a tree's levels made of its nodes, in each module.
struct GrownNodes {
  std::vector<std::vector<Tensor>> features;  ///< [nodes][modules]
  std::vector<std::vector<int64_t>> pending;  ///< the same
};

/// Evaluates nodes of one depth on a module.
inline ForwardResult evaluate_nodes(FeatureModel& model, size_t module, const TreeRequest& tree,
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

inline std::optional<DrawnTree> tree_by_forwards(const FeatureModels& modules,
                                                 const TreeRequest& tree, const Tensor& logits,
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

}  // namespace specdec
