#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/kernels/forwarding_ops.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"

/// What tests of trees that are drawn on a device share.
namespace specdec {

inline std::unique_ptr<TransformerModel> tree_model(uint64_t seed = 1,
                                                    TransformerOptions options = emulated(),
                                                    const KvStoreFactory& kv = paged_kv()) {
  options.max_length = 96;
  return std::make_unique<TransformerModel>(small_gemma(seed), kv, options);
}

inline std::unique_ptr<TransformerModel> tree_model_without_graphs(
    uint64_t seed = 1, const KvStoreFactory& kv = paged_kv()) {
  TransformerOptions options = emulated();
  options.graphs = 0;
  return tree_model(seed, options, kv);
}

/// A tree and what it is drawn by.
struct TreeCase {
  std::vector<int64_t> parents;
  std::vector<int64_t> ranks;
  SamplingParams sampling = {};
  bool draws = false;
  int64_t position = 31;

  TreeRequest request() const {
    TreeRequest request{.parents = parents, .ranks = ranks, .sampling = sampling};
    if (draws) {
      request.random =
          DeviceRandomness{.key = *CounterRandomness(8).device_key(), .position = position};
    }
    return request;
  }
};

/// Siblings have the ranks from 0 on.
inline TreeCase tree_of_parents(std::vector<int64_t> parents) {
  TreeCase tree{.parents = std::move(parents), .ranks = {0}};
  for (size_t node = 1; node < tree.parents.size(); ++node) {
    tree.ranks.push_back(tree.parents[node] == tree.parents[node - 1] ? tree.ranks.back() + 1 : 0);
  }
  return tree;
}

/// The shape of tree_shape, which leaves ranks out.
inline TreeCase ranked_tree() {
  return {.parents = {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, .ranks = {0, 0, 1, 3, 0, 2, 0, 0, 0, 1}};
}

/// A model whose trees are graphs, beside one that grows them level by level over the same text.
class TreePair {
 public:
  explicit TreePair(uint64_t seed = 1, TransformerOptions options = emulated(),
                    const KvStoreFactory& kv = paged_kv())
      : drawing_(tree_model(seed, std::move(options), kv)),
        growing_(tree_model_without_graphs(seed, kv)) {}

  void prefill(TokenSpan text) {
    drawing_->prefill_get_last_logits(text);
    growing_->prefill_get_last_logits(text);
  }
  /// Draws a tree with both, which have to be the same, and keeps `fed` and a path of it.
  void draw(TokenSpan fed, const TreeCase& tree) {
    const int64_t kept = growing_->length();
    const GraphCounts before = drawing_->graph_counts();
    std::optional<DrawnTree> drawn = drawing_->draw_tree(fed, tree.request());
    const GraphCounts after = drawing_->graph_counts();
    const int64_t runs = after.replays - before.replays;
    const bool is_one = after.warm_ups + after.captures == before.warm_ups + before.captures;
    replayed += is_one && runs == 1 ? 1 : 0;
    expect_the_same_tree(drawn, grown_tree(*growing_, fed, tree.request()));
    const auto fed_size = std::ssize(fed);
    std::vector<int64_t> path = chain_path(fed_size);
    std::vector<int64_t> grown;  // the same, as the other model numbers it
    int64_t parent = 0;
    int64_t place = 0;
    for (const auto& level : branching_nodes(tree.parents)) {
      for (const int64_t node : level) {
        if (node > 0 && tree.parents[static_cast<size_t>(node)] == parent &&
            drawn->tokens[static_cast<size_t>(node)] >= 0) {
          path.push_back(fed_size - 1 + place);
          grown.push_back(place - 1);
          parent = node;
        }
        ++place;
      }
    }
    EXPECT_EQ(drawing_->pending(), fed_size - 1 + place);
    EXPECT_EQ(growing_->pending(), place - 1);
    drawing_->commit(path);
    growing_->commit(grown);
    EXPECT_EQ(drawing_->length(), kept + std::ssize(path));
    left_out += std::count(drawn->tokens.begin(), drawn->tokens.end(), -1);
  }
  void truncate(int64_t length) {
    drawing_->truncate(length);
    growing_->truncate(length);
  }
  /// What trees leave in the cache is what forwards do.
  void expect_the_same_cache() {
    const std::vector<Token> next = {7};
    EXPECT_TRUE(
        at::equal(drawing_->extend_get_last_logits(next), growing_->extend_get_last_logits(next)));
  }
  TransformerModel& drawing() { return *drawing_; }
  TransformerModel& growing() { return *growing_; }

  int64_t left_out = 0;  ///< nodes that were not there
  int64_t replayed = 0;  ///< trees that ran as one graph that was there

 private:
  std::unique_ptr<TransformerModel> drawing_, growing_;
};

/// Ops of an emulated device that tell graphs of drafts, which hold the logits of several steps,
/// from those of forwards. With a `factor`, the logits of the second step of the first such graph
/// are multiplied by it, and all that follow.
class DraftGraphOps final : public ForwardingOps {
 public:
  explicit DraftGraphOps(std::optional<double> factor = {})
      : ForwardingOps(cuda_ops(at::kCPU)), factor_(factor) {}

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40) {
      steps_ += is_recording_ ? 1 : 0;
      is_damaged_ = is_damaged_ || (factor_ && steps_ > 1);
      if (is_damaged_) {
        ForwardingOps::scale(out, *factor_);  // in the graph, too
      }
    }
  }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    is_recording_ = true;
    steps_ = 0;
    std::unique_ptr<OpsGraph> graph = ops().record(calls);
    is_recording_ = false;
    const bool is_draft = std::exchange(steps_, 0) > 1;
    recorded_ += is_draft ? 1 : 0;
    if (is_draft) {
      graph = std::make_unique<DraftGraph>(std::move(graph), runs_);
    }
    return graph;
  }
  bool is_damaged() const { return is_damaged_; }
  /// Drafts that ran as a graph that was there.
  int64_t replays() const { return runs_ - recorded_; }

 private:
  class DraftGraph final : public OpsGraph {
   public:
    DraftGraph(std::unique_ptr<OpsGraph> graph, int64_t& runs)
        : graph_(std::move(graph)), runs_(runs) {}
    void run() override {
      ++runs_;
      graph_->run();
    }

   private:
    std::unique_ptr<OpsGraph> graph_;
    int64_t& runs_;
  };

  std::optional<double> factor_;
  int64_t steps_ = 0, recorded_ = 0, runs_ = 0;
  bool is_recording_ = false, is_damaged_ = false;
};

}  // namespace specdec
