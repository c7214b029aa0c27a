// Memory of trees that are drawn where their logits lie: graphs find it at fixed addresses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "core/sampling.h"
#include "core/token_probs.h"
#include "tests/core/kernels/cuda/drawn_siblings.h"

namespace specdec {
namespace {

/// A graph may hold what a tree's launches read and write: they lie where those of another tree did
/// whose levels have as many nodes.
TEST(CudaTreeMemoryTest, TreesOfTheSameLevelsShareMemory) {
  TreeMemory memory(kTreeVocab, at::kCPU);
  const SamplingParams sampling{.temperature = 0.9, .top_k = 40};
  const std::vector<int64_t> ranks(kTreeParents.size());
  const auto key_of = [&](const std::vector<int64_t>& parents, bool draws,
                          const SamplingParams& params) {
    TreeRequest request{
        .parents = parents, .ranks = std::span(ranks).first(parents.size()), .sampling = params};
    if (draws) {
      request.random = DeviceRandomness{.key = {1, 2}, .position = 3};
    }
    return begin_tree(request, kTreeVocab, memory)->key();
  };
  const std::vector<int64_t> key = key_of(kTreeParents, true, sampling);
  // Three of a level's children lie elsewhere.
  const std::vector<int64_t> others = {-1, 0, 0, 0, 1, 2, 2, 2, 3, 3, 5, 8, 8};
  EXPECT_EQ(key_of(others, true, sampling), key);
  EXPECT_NE(key_of(kTreeParents, false, sampling), key);
  EXPECT_NE(key_of(kTreeParents, false, {}), key_of(kTreeParents, false, {.temperature = 0.5}));
  for (const SamplingParams& other :
       std::vector<SamplingParams>{{.temperature = 0.8, .top_k = 40},
                                   {.temperature = 0.9, .top_k = 41},
                                   {.temperature = 0.9, .top_k = 40, .top_p = 0.9},
                                   {.temperature = 0.9, .top_k = 40, .min_p = 0.1}}) {
    EXPECT_NE(key_of(kTreeParents, true, other), key);
  }
  EXPECT_NE(key_of({-1, 0, 0, 0, 1, 1, 1, 1, 1, 3, 4, 9, 9}, true, sampling), key);
  EXPECT_NE(key_of({-1, 0, 0, 0, 1, 1, 1, 1, 2, 3, 6, 7, 7}, true, sampling), key);
  EXPECT_NE(key_of({-1, 0, 0, 0, 1, 1, 1, 2, 3, 3, 6, 6, 6}, true, sampling), key);
  TreeMemory other(kTreeVocab, at::kCPU);
  const TreeRequest tree{.parents = kTreeParents, .ranks = ranks, .sampling = sampling};
  const auto held = begin_tree(tree, kTreeVocab, other);
  EXPECT_NE(begin_tree(tree, kTreeVocab, other)->key(), held->key()) << "one is in progress";
}

/// More nodes than memory is kept for: no graph can hold them.
TEST(CudaTreeMemoryTest, LargeTreesHaveNoKey) {
  TreeMemory memory(kTreeVocab, at::kCPU);
  const SamplingParams greedy;
  for (const size_t nodes : {64U, 65U}) {
    std::vector<int64_t> parents(nodes);  // children of the root
    parents.front() = -1;
    std::vector<int64_t> ranks(nodes);
    std::iota(ranks.begin() + 1, ranks.end(), 0);
    const TreeRequest request{.parents = parents, .ranks = ranks, .sampling = greedy};
    const auto tree = begin_tree(request, kTreeVocab, memory);
    EXPECT_EQ(tree->key().empty(), nodes > 64);
    const at::Tensor logits = tree_logits(9).narrow(0, 0, 1);
    EXPECT_FALSE(tree->draw(0, logits, {}).defined());
    const auto best =
        token_probs(LogitRow::of(logits, 0), {}, {.temperature = 1.0}).top(kTreeVocab);
    const auto drawn = tree->read(1);
    ASSERT_TRUE(drawn.has_value());
    for (size_t node = 1; node < nodes; ++node) {
      EXPECT_EQ(drawn->tokens[node], best[node - 1].token);
    }
  }
}

/// The distributions that best tokens are found by are those of one level at a time.
TEST(CudaTreeMemoryTest, BestTokensTakeTheDistributionsOfALevel) {
  for (const bool draws : {false, true}) {
    TreeMemory memory(kTreeVocab, at::kCPU);
    const SamplingParams sampling{.temperature = 0.9, .top_k = 40};
    TreeRequest request{.parents = kTreeParents, .ranks = kTreeRanks, .sampling = sampling};
    if (draws) {
      request.random = DeviceRandomness{.key = {1, 2}, .position = 3};
    }
    begin_tree(request, kTreeVocab, memory).reset();
    const int64_t rows = draws ? 6 : 3;  // with children, and of a level
    EXPECT_EQ(memory.probs.rows(1).storage().nbytes(), rows * kTreeVocab * sizeof(double));
  }
}

}  // namespace
}  // namespace specdec
