// Trees that a model draws on its device, run on the CPU (core/kernels/cuda/emulation): as one
// graph or forward by forward they have the bits of trees that grow level by level.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "core/row_view.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/speculative.h"
#include "kv/compressed_store.h"
#include "kv/kv_cache.h"
#include "kv/tracing_store.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/locked_model.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<TransformerModel> tree_model(uint64_t seed = 1,
                                             TransformerOptions options = emulated(),
                                             const KvStoreFactory& kv = paged_kv()) {
  options.max_length = 96;
  return std::make_unique<TransformerModel>(small_gemma(seed), kv, options);
}

std::unique_ptr<TransformerModel> without_graphs(uint64_t seed = 1,
                                                 const KvStoreFactory& kv = paged_kv()) {
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
TreeCase tree_of_parents(std::vector<int64_t> parents) {
  TreeCase tree{.parents = std::move(parents), .ranks = {0}};
  for (size_t node = 1; node < tree.parents.size(); ++node) {
    tree.ranks.push_back(tree.parents[node] == tree.parents[node - 1] ? tree.ranks.back() + 1 : 0);
  }
  return tree;
}

/// The shape of tree_shape, which leaves ranks out.
TreeCase ranked_tree() {
  return {.parents = {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, .ranks = {0, 0, 1, 3, 0, 2, 0, 0, 0, 1}};
}

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

/// A model whose trees are graphs, beside one that grows them level by level over the same text.
class TreePair {
 public:
  explicit TreePair(uint64_t seed = 1, TransformerOptions options = emulated(),
                    const KvStoreFactory& kv = paged_kv())
      : drawing_(tree_model(seed, std::move(options), kv)), growing_(without_graphs(seed, kv)) {}

  void prefill(TokenSpan text) {
    drawing_->prefill_get_last_logits(text);
    growing_->prefill_get_last_logits(text);
  }
  /// Draws a tree with both, which have to be the same, and keeps `fed` and a path of it.
  void draw(TokenSpan fed, const TreeCase& tree) {
    const int64_t kept = growing_->length();
    std::optional<DrawnTree> drawn = drawing_->draw_tree(fed, tree.request());
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

 private:
  std::unique_ptr<TransformerModel> drawing_, growing_;
};

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
    EXPECT_GT(pair.drawing().graph_counts().replays, 0);
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

/// They share the sampler's memory.
TEST(CudaDrawnTreeTest, ModelsTakeTurns) {
  const TransformerOptions shared = emulated();
  TreePair one(1, shared);
  TreePair other(2, shared);
  TreeCase tree = ranked_tree();
  for (Token draft = 0; draft < 5; ++draft) {
    SCOPED_TRACE(draft);
    tree.sampling = draft < 3 ? SamplingParams{} : SamplingParams{.temperature = 1.0};
    tree.draws = !tree.sampling.greedy();
    for (TreePair* pair : {&one, &other}) {
      pair->draw(std::vector<Token>{draft, 3}, tree);
    }
  }
  one.expect_the_same_cache();
  other.expect_the_same_cache();
}

TEST(CudaDrawnTreeTest, RowsAreApart) {
  const auto model = tree_model();
  const std::vector<Token> text = {5, 6, 7};
  model->prefill_get_last_logits(text);
  const RowId row = model->fork(0, 2);
  RowView view(*model, row);
  const TreeCase tree = ranked_tree();
  const auto plain = without_graphs();
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

/// Ops of a head whose logits become damaged from the third row on.
class DamagedTreeOps final : public ForwardingOps {
 public:
  explicit DamagedTreeOps(double number) : ForwardingOps(cuda_ops(at::kCPU)), number_(number) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 && ++heads_ > 2) {
      out.fill_(number_);
    }
  }

 private:
  double number_;
  int64_t heads_ = 0;
};

TEST(CudaDrawnTreeTest, DamagedLogitsAreTheHostsError) {
  for (const double damaged : std::vector<double>{std::nan(""), -INFINITY}) {
    const auto ops = std::make_shared<DamagedTreeOps>(damaged);
    const auto model = tree_model(1, {.ops = ops});
    TreeCase tree = ranked_tree();
    EXPECT_FALSE(model->draw_tree(std::vector<Token>{4}, tree.request()).has_value());
    EXPECT_EQ(model->pending(), 0);
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    EXPECT_FALSE(model->draw_tree(std::vector<Token>{4}, tree.request()).has_value());
    EXPECT_EQ(model->pending(), 0);

    const auto target = tree_model();
    SpeculativeDecoding strategy(
        *target, std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*model, 0)),
        verifier_of(DeviceRule::kRejection), tree_shape());
    EXPECT_THAT(
        [&] {
          generate_chains(strategy, {1, 2}, {.temperature = 1.0}, 5);
        },
        ThrowsMessage<Error>(HasSubstr("logit")));
  }
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

/// Speculation whose trees are drawn by another model, or the target's first layer.
Generation generate_trees(std::optional<uint64_t> draft_seed, int64_t graphs,
                          const SamplingParams& sampling, GraphCounts* counts = nullptr) {
  TransformerOptions options = emulated();
  options.graphs = graphs;
  const auto target = tree_model(1, options);
  const auto draft = tree_model(draft_seed.value_or(1), options);
  std::unique_ptr<Drafter> drafter =
      std::make_unique<SelfDrafter>(*target, SelfDrafterOptions{.layers = 1});
  if (draft_seed) {
    drafter = std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*draft, draft->open()));
  }
  SpeculativeDecoding strategy(
      *target, std::move(drafter),
      verifier_of(sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection), tree_shape());
  generate_chains(strategy, kChainPrompts.front(), sampling, 12);
  Generation generation = generate_chains(strategy, kChainPrompts.back(), sampling, 12);
  if (counts != nullptr) {
    *counts = draft->graph_counts();
  }
  return generation;
}

/// The draft model is like the target, so whole paths are accepted: their nodes stay in its cache.
TEST(CudaDrawnTreeTest, AcceptedNodesAreNotReadAgain) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  const auto target = tree_model();
  SpeculativeDecoding strategy(
      *target, std::make_unique<DraftModelDrafter>(tree_model(1, {.ops = ops, .graphs = 0})),
      verifier_of(DeviceRule::kNone),
      std::make_unique<StaticTreeShape>(
          tree_of_paths({{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}, {0, 0, 0, 0}})));
  const Generation generation = generate_chains(strategy, kChainPrompts.front(), {}, 12);
  int64_t accepted = 0;
  for (const StepStatistics& step : generation.steps) {
    accepted += step.accepted;
  }
  EXPECT_GE(accepted, 8);
  // A forward of the prompt; then of the newest token or two, or of a level.
  std::vector<std::string> embeddings = ops->take_calls();
  std::erase_if(embeddings, [](const std::string& call) { return call.find("embed_rows") != 0; });
  ASSERT_FALSE(embeddings.empty());
  EXPECT_EQ(embeddings.front(), "embed_rows [4] -> [4, 16]");
  embeddings.erase(embeddings.begin());
  EXPECT_THAT(embeddings, testing::Each(testing::AnyOf("embed_rows [1] -> [1, 16]",
                                                       "embed_rows [2] -> [2, 16]")));
}

TEST(CudaDrawnTreeTest, GraphsChangeNoGeneration) {
  struct Case {
    std::optional<uint64_t> draft_seed;
    SamplingParams sampling;
  };
  const std::vector<Case> cases = {// few: the emulation is slow
                                   {1, {.temperature = 1.0}},
                                   {2, {}},
                                   {std::nullopt, {.temperature = 1.3, .top_k = 2}}};
  int64_t accepted = 0;
  for (const auto& [seed, sampling] : cases) {
    SCOPED_TRACE(testing::Message() << seed.value_or(0) << " at " << sampling.temperature);
    GraphCounts counts;
    const Generation graphed = generate_trees(seed, 32, sampling, &counts);
    accepted += expect_the_hosts_drafts(graphed, generate_trees(seed, 0, sampling));
    EXPECT_EQ(counts.replays > 0, seed.has_value());
  }
  EXPECT_GT(accepted, 5);
}

}  // namespace
}  // namespace specdec
