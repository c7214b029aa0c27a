// Chains and trees of Gemma 4's assistant, run on the CPU (core/kernels/cuda/emulation): as graphs
// they have the tokens and distributions that they have op by op, and level by level.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/families/gemma/assistant.h"
#include "core/transformer/heads/assistant_head.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

/// A head of all tokens, or of clusters of them; `others` is what tokens of no chosen one get.
struct AssistantKind {
  std::string name;
  int64_t clusters;
  CentroidFill others = CentroidFill::kBelowMinimum;
  at::ScalarType dtype = at::kFloat;
};

const std::vector<AssistantKind> kAssistantKinds = {
    {"whole", 0},
    {"ordered", 8},
    {"ordered, of chosen tokens only", 8, CentroidFill::kNothing},
    {"ordered, in fragments", 8, CentroidFill::kBelowMinimum, at::kBFloat16}};

std::shared_ptr<const AssistantHead> assistant_of(const TransformerInfo& target,
                                                  const AssistantKind& kind, int64_t layers) {
  const auto head = random_assistant(target,
                                     {.hidden_size = 8,
                                      .intermediate_size = 12,
                                      .heads = 2,
                                      .layers = layers,
                                      .clusters = kind.clusters,
                                      .chosen = 3},
                                     {.seed = 9, .dtype = kind.dtype});
  if (kind.clusters > 0) {
    head->ordered.ordering = at::randperm(40, at::kLong).view({kind.clusters, -1});
  }
  return head;
}

/// A tree as shapes grow it by device_step.
std::optional<DrawnTree> grown_by_steps(AssistantModel& model, const TreeRequest& request,
                                        const Tensor& hidden, const Internals& keys) {
  const auto drawing = model.sampler()->begin_tree(request, 40);
  std::vector<Tensor> own(request.parents.size());
  Tensor tokens = at::full({1}, 7, at::kInt);
  int64_t found = 0;
  for (const std::vector<int64_t>& level : branching_nodes(request.parents)) {
    std::vector<Tensor> before;
    for (const int64_t node : level) {
      const int64_t parent = request.parents[static_cast<size_t>(node)];
      before.push_back(parent < 0 ? hidden : own[static_cast<size_t>(parent)]);
    }
    const auto step = model.device_step(keys.embed(tokens), at::cat(before), keys, 0);
    for (size_t i = 0; i < level.size(); ++i) {
      own[static_cast<size_t>(level[i])] = step.hidden.narrow(0, static_cast<int64_t>(i), 1);
    }
    tokens = drawing->draw(found++, step.logits, {});
  }
  return drawing->read(found);
}

/// Drafts of an assistant by graphs, op by op and level by level, behind the same target.
class AssistantDrafts {
 public:
  AssistantDrafts(const std::shared_ptr<const TransformerWeights>& weights,
                  const AssistantKind& kind, int64_t layers)
      : head_(assistant_of(*weights, kind, layers)),
        graphed_(head_, {.fill = kind.others, .target = weights}, ops_),
        plain_(head_, {.fill = kind.others, .target = weights, .graphs = 0}, cuda_ops(at::kCPU)) {}

  /// Draws a chain behind `keys` with and without graphs and expects the same one.
  std::optional<DrawnChain> expect_same(const ChainRequest& request, const Internals& keys) {
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain_.draw_chain(request, 7, hidden, keys, 0);
    ops_->take_calls();
    auto drawn = graphed_.draw_chain(request, 7, hidden, keys, 0);
    EXPECT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->probs.defined(), wanted->probs.defined());
    EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
    return drawn;
  }
  /// Draws a tree with and without graphs and expects the same one: it finds no tables of its
  /// levels in place.
  std::optional<DrawnTree> expect_same_tree(const TreeRequest& request, const Internals& keys) {
    const Tensor hidden = at::randn({1, 16});
    const auto wanted = plain_.draw_tree(request, 7, hidden, keys, 0);
    const DraftLaunches launches(*ops_);
    auto drawn = graphed_.draw_tree(request, 7, hidden, keys, 0);
    copies_ = launches.copies();
    expect_the_same_tree(drawn, wanted);
    expect_the_same_tree(drawn, grown_by_steps(plain_, request, hidden, keys));
    return drawn;
  }
  int64_t copies() const { return copies_; }  ///< of the newest tree
  std::vector<std::string> take_calls() { return ops_->take_calls(); }
  AssistantModel& graphed() { return graphed_; }
  const GraphCounts& counts() const { return graphed_.graph_counts(); }

 private:
  std::shared_ptr<RecordingOps> ops_ = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  std::shared_ptr<const AssistantHead> head_;
  AssistantModel graphed_, plain_;
  int64_t copies_ = 0;
};

class CudaAssistantGraphTest : public testing::TestWithParam<AssistantKind> {};

// Beside the graph, the newest token is embedded and joined with the target's hidden state.
TEST_P(CudaAssistantGraphTest, AChainIsOneGraph) {
  const auto weights = small_gemma();
  AssistantDrafts chains(weights, GetParam(), 3);
  TransformerModel target(weights, paged_kv(), graph_options());
  const Internals& keys = *target.internals();
  ASSERT_TRUE(chains.graphed().draws_drafts() && keys.keys_may_be_recorded());
  const ChainDraws draws;
  HeldProbs held;
  for (Token chain = 0; chain < 12; ++chain) {
    SCOPED_TRACE(chain);
    if (chain == 5) {
      target.truncate(1);  // what graphs read next is new
    }
    target.extend_get_last_logits(std::vector<Token>{chain, 9});
    const bool is_drawn = chain % 2 == 0;
    const auto drawn = chains.expect_same(is_drawn ? draws.drawn(4) : draws.best(4), keys);
    if (chain > 2) {
      EXPECT_THAT(chains.take_calls(),
                  testing::ElementsAre("embed_rows [1] -> [1, 16]", "concat [1, 16] -> [1, 32]"));
    }
    EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 4 * (is_drawn ? 8 : 12)}));
    held.hold(drawn->probs);
  }
  EXPECT_EQ(chains.counts().warm_ups, 3);
  EXPECT_EQ(chains.counts().captures, 3);
  EXPECT_EQ(chains.counts().replays, 6);
  const Tensor damaged = at::full({1, 16}, std::nan(""));
  EXPECT_FALSE(chains.graphed().draw_chain(draws.best(4), 7, damaged, keys, 0).has_value());
  EXPECT_EQ(chains.counts().replays, 7);

  // Keys of another target, and tokens that come from elsewhere, are those of this draft.
  TransformerModel other(small_gemma(2), paged_kv(), graph_options());
  for (TransformerModel* each : {&other, &target, &other, &target, &other}) {
    each->extend_get_last_logits(std::vector<Token>{3, 1});
    chains.expect_same(draws.best(3), *each->internals());
  }
}

TEST_P(CudaAssistantGraphTest, ChainsFollowWhatGrows) {
  const auto weights = small_gemma();
  AssistantDrafts chains(weights, GetParam(), 2);
  GrownCaches caches;
  TransformerModel target(weights, caches.factory(), GrownCaches::options(0));
  const ChainDraws draws;
  for (const auto& [length, count] : GrownCaches::kCases) {
    SCOPED_TRACE(length);
    caches.resize(length);
    for (int chain = 0; chain < 3; ++chain) {
      chains.expect_same(draws.drawn(count), *target.internals());
    }
  }
  EXPECT_GE(chains.counts().captures, 4);
}

// They are as long as the longest text so far: here all else stays where it is.
TEST_P(CudaAssistantGraphTest, RotaryTablesThatMoveMakeAnotherKey) {
  const auto weights = small_gemma();
  AssistantDrafts long_first(weights, GetParam(), 2);
  AssistantDrafts short_first(weights, GetParam(), 2);
  GrownCaches caches;
  TransformerModel target(weights, caches.factory(), GrownCaches::options(0));
  const ChainDraws draws;
  const auto draw = [&](AssistantDrafts& chains, int64_t length) {
    caches.resize(length);
    chains.expect_same(draws.best(2), *target.internals());
    return chains.counts();
  };
  EXPECT_EQ(draw(long_first, 520).warm_ups, 1);
  EXPECT_EQ(draw(long_first, 514).captures, 1);
  EXPECT_EQ(draw(long_first, 520).replays, 1);
  EXPECT_EQ(draw(short_first, 514).warm_ups, 1);
  EXPECT_EQ(draw(short_first, 514).captures, 1);
  EXPECT_EQ(draw(short_first, 520).warm_ups, 2) << "its tables were made for 515 positions";
  EXPECT_EQ(draw(short_first, 520).captures, 2);
  EXPECT_EQ(draw(short_first, 514).replays, 1);
}

/// Two of the same levels, whose hidden states go to other nodes, and one of others.
const std::vector<std::vector<int64_t>> kAssistantTrees = {
    {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, {-1, 0, 0, 0, 2, 3, 3, 5, 5, 6}, {-1, 0, 1, 2, 3, 3}};
const std::vector<int64_t> kAssistantRanks = {0, 0, 1, 2, 0, 1, 2, 3, 4, 5};

TreeCase assistant_tree(size_t shape) {
  const std::vector<int64_t>& parents = kAssistantTrees[shape];
  TreeCase tree{.parents = parents, .ranks = kAssistantRanks};
  tree.ranks.resize(parents.size());
  return tree;
}

// What is copied beside it: the tables of its nodes, and those of the sampler.
TEST_P(CudaAssistantGraphTest, ATreeIsOneGraph) {
  const auto weights = small_gemma();
  AssistantDrafts drafts(weights, GetParam(), 3);
  TransformerModel target(weights, paged_kv(), graph_options());
  const Internals& keys = *target.internals();
  for (Token draft = 0; draft < 18; ++draft) {
    SCOPED_TRACE(draft);
    if (draft == 13) {
      target.truncate(1);  // what graphs read next is new
    }
    target.extend_get_last_logits(std::vector<Token>{draft, 9});
    TreeCase tree = assistant_tree(static_cast<size_t>(draft % 3));
    tree.sampling = {.temperature = 0.8, .top_k = 12, .top_p = 0.95};
    tree.draws = draft % 2 == 0;
    tree.position = draft;
    const auto drawn = drafts.expect_same_tree(tree.request(), keys);
    if (draft >= (draft % 3 == 2 ? 12 : 6)) {
      EXPECT_THAT(drafts.take_calls(),
                  testing::ElementsAre("embed_rows [1] -> [1, 16]", "concat [1, 16] -> [1, 32]"));
      EXPECT_LE(drafts.copies(), 1);
    }
    const int64_t bytes = kTreeNodeBytes * (draft % 3 == 2 ? 5 + 4 : 9 + 5);
    EXPECT_EQ(drawn->read_backs, (ReadBacks{1, bytes}));
    if (draft % 5 == 4) {  // chains have graphs of their own
      drafts.expect_same(ChainDraws().drawn(4), keys);
    }
  }
  const GraphCounts counts = drafts.counts();
  EXPECT_EQ(counts.warm_ups, 2 * 2 + 1) << "of the same levels, drawn and best, and of chains";
  EXPECT_EQ(counts.captures, 2 * 2 + 1);
  EXPECT_EQ(counts.replays, 2 * 4 + 2 * 1 + 1);
  const Tensor damaged = at::full({1, 16}, std::nan(""));
  const TreeCase last = assistant_tree(0);
  EXPECT_FALSE(drafts.graphed().draw_tree(last.request(), 7, damaged, keys, 0).has_value());
}

/// Single nodes, a chain, more children than there are tokens, more nodes than a graph has.
TEST(CudaAssistantTreeTest, TreesHaveTheBitsOfThoseThatGrow) {
  const auto weights = small_gemma();
  AssistantDrafts drafts(weights, kAssistantKinds[1], 2);
  TransformerModel target(weights, paged_kv(), graph_options());
  target.extend_get_last_logits(std::vector<Token>{5, 6, 3});
  std::vector<int64_t> wide(44, 0);  // 43 children of the root, of 40 tokens; two have children
  wide.front() = -1;
  wide.insert(wide.end(), {1, 1, 42, 43});
  std::vector<int64_t> large(65, 0);
  large.front() = -1;
  large.insert(large.end(), {1, 2, 60});
  const std::vector<TreeCase> shapes = {tree_of_parents({-1, 0}), tree_of_parents({-1, 0, 1, 2, 3}),
                                        ranked_tree(), tree_of_parents(wide),
                                        tree_of_parents(large)};
  const std::vector<SamplingParams> sampling = {
      {.temperature = 0.7, .top_k = 2}, {}, {.temperature = 1.3, .top_p = 0.6}};
  int64_t left_out = 0;
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    SCOPED_TRACE(shape);
    TreeCase tree = shapes[shape];
    tree.sampling = sampling[shape % sampling.size()];
    tree.draws = !tree.sampling.greedy();
    const int64_t graphs = drafts.counts().replays;
    for (int64_t draft = 0; draft < 3; ++draft) {
      tree.position = draft;
      const auto drawn = drafts.expect_same_tree(tree.request(), *target.internals());
      left_out += std::count(drawn->tokens.begin() + 1, drawn->tokens.end(), -1);
    }
    EXPECT_EQ(drafts.counts().replays - graphs, tree.parents.size() > 64 ? 0 : 1);
  }
  EXPECT_GT(left_out, 20);
}

/// All logits of a level would stay in the graph of a large tree.
TEST(CudaAssistantTreeTest, WhatNoGraphHoldsKeepsNoMemory) {
  const auto weights = small_gemma();
  TransformerModel target(weights, paged_kv(), graph_options());
  target.extend_get_last_logits(std::vector<Token>{5, 6, 3});
  std::vector<int64_t> large(65, 0);
  large.front() = -1;
  large.insert(large.end(), {1, 2, 60});
  const auto kept_of = [&](const std::vector<int64_t>& parents, int64_t graphs) {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> results;
    const auto ops = std::make_shared<RecordingOps>(
        cuda_ops(at::kCPU), [&](const std::string& name, const Tensor& out) {
          const bool are_logits = name == "linear" && out.size(1) == 40;
          if (are_logits || name == "concat" || name == "gather_rows") {
            results.push_back(out.storage().getWeakStorageImpl());
          }
        });
    AssistantModel model(assistant_of(*weights, kAssistantKinds[0], 2),
                         {.target = weights, .graphs = graphs}, ops);
    const TreeCase tree = tree_of_parents(parents);
    const Tensor hidden = at::randn({1, 16});
    EXPECT_TRUE(model.draw_tree(tree.request(), 7, hidden, *target.internals(), 0).has_value());
    EXPECT_GE(results.size(), 5U);
    return std::count_if(results.begin(), results.end(),
                         [](const auto& result) { return !result.expired(); });
  };
  EXPECT_EQ(kept_of(large, 8), 0);
  EXPECT_EQ(kept_of(kAssistantTrees[0], 0), 0);
  EXPECT_GT(kept_of(kAssistantTrees[0], 8), 0);
}

TEST(CudaAssistantTreeTest, TreesFollowWhatGrows) {
  const auto weights = small_gemma();
  AssistantDrafts drafts(weights, kAssistantKinds[0], 2);
  GrownCaches caches;
  TransformerModel target(weights, caches.factory(), GrownCaches::options(0));
  for (const auto& [length, count] : GrownCaches::kCases) {
    SCOPED_TRACE(length);
    caches.resize(length);
    for (int draft = 0; draft < 3; ++draft) {
      TreeCase tree = assistant_tree(count == 3 ? 0 : 2);
      tree.sampling = {.temperature = 1.0};
      tree.draws = true;
      drafts.expect_same_tree(tree.request(), *target.internals());
    }
  }
  EXPECT_GE(drafts.counts().captures, 4);
}

INSTANTIATE_TEST_SUITE_P(Heads, CudaAssistantGraphTest, testing::ValuesIn(kAssistantKinds),
                         [](const auto& info) {
                           return std::string("head") + std::to_string(info.index);
                         });

TEST(CudaAssistantReferenceTest, AnOrderedHeadsChainIsTheReferences) {
  const Golden golden("gemma4-assistant-ordered-a");
  const auto weights = load_rows(test_data("gemma4-e-a"), at::kFloat);
  TransformerModel target(weights, paged_kv(), emulated());
  target.prefill_get_last_logits(golden.tokens("tokens"));
  const std::vector<Token> wanted = golden.tokens("draft_tokens");
  AssistantModel model(load_assistant(golden.folder(), *weights).head, {.target = weights},
                       cuda_ops(at::kCPU));
  const ChainDraws draws;
  for (int chain = 0; chain < 3; ++chain) {
    const auto drawn =
        model.draw_chain(draws.best(std::ssize(wanted)), golden.tokens("first_token").front(),
                         golden.tensor("target_hidden").unsqueeze(0), *target.internals(), 0);
    ASSERT_TRUE(drawn.has_value());
    EXPECT_EQ(drawn->tokens, wanted) << chain;
  }
  EXPECT_EQ(model.graph_counts().replays, 1);
}

}  // namespace
}  // namespace specdec
