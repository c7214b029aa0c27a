#include "decoders/shapes/dynamic_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/draft_bench.h"
#include "tests/support/retrieval.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/table_distribution.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kDynamicVocab = 8;
const std::vector<Token> kDynamicCommitted = {2, 5};

Draft grow_dynamic(const DynamicTreeOptions& options, TableDistribution& distribution,
                   int64_t max_tokens, int64_t max_depth) {
  DynamicTreeShape shape(options);
  DraftBench bench(3, {.temperature = 1.0});
  return shape.grow(bench.context(kDynamicCommitted, shape, {max_tokens, max_depth, options.top_k}),
                    distribution, Siblings::kBest);
}

/// EAGLE-2's procedure written down without short cuts: paths of the most likely nodes.
std::vector<std::vector<Token>> by_definition(const LogitTable& table,
                                              const DynamicTreeOptions& options) {
  struct Node {
    std::vector<Token> path;
    double probability;
  };
  const auto more_likely = [](const Node& a, const Node& b) {
    return a.probability > b.probability;
  };
  std::vector<Node> all;
  std::vector<Node> frontier = {{{}, 1.0}};
  for (int64_t depth = 0; depth < options.depth; ++depth) {
    std::vector<Node> level;
    for (const Node& node : frontier) {
      std::vector<Token> history = kDynamicCommitted;
      history.insert(history.end(), node.path.begin(), node.path.end());
      const std::vector<double> distribution =
          distribution_of(table, history, {.temperature = 1.0});
      std::vector<Node> children;
      for (Token token = 0; token < kDynamicVocab; ++token) {
        Node child = node;
        child.path.push_back(token);
        child.probability *= distribution[static_cast<size_t>(token)];
        children.push_back(child);
      }
      std::stable_sort(children.begin(), children.end(), more_likely);
      children.resize(static_cast<size_t>(options.top_k));
      level.insert(level.end(), children.begin(), children.end());
    }
    all.insert(all.end(), level.begin(), level.end());
    std::stable_sort(level.begin(), level.end(), more_likely);
    level.resize(std::min(level.size(), static_cast<size_t>(options.top_k)));
    frontier = level;
  }
  std::stable_sort(all.begin(), all.end(), more_likely);
  all.resize(std::min(all.size(), static_cast<size_t>(options.nodes)));
  std::vector<std::vector<Token>> paths;
  for (const Node& node : all) {
    paths.push_back(node.path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::vector<Token>> sorted_paths(const Draft& draft) {
  std::vector<std::vector<Token>> paths = paths_of(draft);
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(DynamicTreeTest, VerifiesTheMostLikelyNodes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const LogitTable table = random_table(kDynamicVocab, seed, 3, 2.0);
    const DynamicTreeOptions options{
        .nodes = 4 + static_cast<int64_t>(seed), .depth = 4, .top_k = 3};
    TableDistribution distribution(table, kDynamicCommitted);
    const Draft draft = grow_dynamic(options, distribution, options.nodes, options.depth);
    EXPECT_EQ(sorted_paths(draft), by_definition(table, options)) << "seed " << seed;
    EXPECT_EQ(draft.child_probs, std::vector<int64_t>(draft.tokens.size(), -1));
  }
}

TEST(DynamicTreeTest, DoesNotExpandWhatCannotBeVerified) {
  // Nearly even: depth does not pay.
  const LogitTable table = random_table(kDynamicVocab, 1, 3, 0.1);
  TableDistribution distribution(table, kDynamicCommitted);
  const Draft draft = grow_dynamic({.nodes = 3, .depth = 6, .top_k = 3}, distribution, 3, 6);
  EXPECT_EQ(draft.parents, (std::vector<int64_t>{-1, 0, 0, 0}));
  EXPECT_LE(distribution.frontiers().size(), 2U);
}

TEST(DynamicTreeTest, StaysWithinItsLimits) {
  const LogitTable table = random_table(kDynamicVocab, 2, 3, 3.0);
  TableDistribution distribution(table, kDynamicCommitted);
  const Draft draft = grow_dynamic({.nodes = 20, .depth = 6, .top_k = 3}, distribution, 5, 2);
  EXPECT_EQ(draft.proposed(), 5);
  const std::vector<int64_t> depths = draft.depths();
  EXPECT_LE(*std::max_element(depths.begin(), depths.end()), 2);
}

TEST(DynamicTreeTest, EvaluatesTheMostLikelyNodesWhenNotAllCanBe) {
  const LogitTable table = random_table(kDynamicVocab, 2, 3, 1.0);
  for (int64_t evaluated = 0; evaluated < 8; ++evaluated) {
    DynamicTreeShape shape({.nodes = 20, .depth = 6, .top_k = 3});
    DraftBench bench(3, {.temperature = 1.0});
    TableDistribution distribution(table, kDynamicCommitted);
    const Draft draft = shape.grow(bench.context(kDynamicCommitted, shape, {20, 6, 3}, evaluated),
                                   distribution, Siblings::kBest);
    int64_t asked = -1;  // the root is not counted
    for (const std::vector<int64_t>& frontier : distribution.frontiers()) {
      asked += std::ssize(frontier);
    }
    EXPECT_EQ(asked, evaluated);
    EXPECT_EQ(draft.proposed(), std::min<int64_t>(20, 3 * (evaluated + 1)));
  }
}

TEST(DynamicTreeTest, NearTheContextsEndTheDraftModelIsAskedForNoMoreThanItHolds) {
  for (int64_t max_length = 6; max_length < 20; ++max_length) {
    FakeModel target(kDynamicVocab, random_table(kDynamicVocab, 1), max_length);
    SpeculativeDecoding decoding(target,
                                 std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(
                                     kDynamicVocab, random_table(kDynamicVocab, 2), max_length)),
                                 std::make_unique<RejectionVerifier>(),
                                 std::make_unique<DynamicTreeShape>());
    const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 40}};
    CounterRandomness random(5);
    const Generation generation = decoding.generate(task.request(random));
    EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
    EXPECT_EQ(std::ssize(generation.tokens), max_length - 4);
  }
}

TEST(DynamicTreeTest, DrawnSiblingsAreRefused) {
  FakeModel target(kDynamicVocab, random_table(kDynamicVocab, 1));
  const auto build = [&](std::optional<bool> sample) {
    SpeculativeDecoding(
        target,
        std::make_unique<DraftModelDrafter>(
            std::make_unique<FakeModel>(kDynamicVocab, random_table(kDynamicVocab, 2)),
            DraftModelOptions{.sample = sample}),
        std::make_unique<RejectionVerifier>(), std::make_unique<DynamicTreeShape>());
  };
  EXPECT_THAT([&] { build(true); }, ThrowsMessage<ConfigError>(HasSubstr("sample: false")));
  EXPECT_NO_THROW(build(false));
  EXPECT_NO_THROW(build({}));
}

TEST(DynamicTreeTest, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(DynamicTreeShape({.nodes = 0}), ConfigError);
  EXPECT_THROW(DynamicTreeShape({.nodes = 4, .depth = 0}), ConfigError);
  EXPECT_THROW(DynamicTreeShape({.nodes = 4, .depth = 2, .top_k = 0}), ConfigError);
}

}  // namespace
}  // namespace specdec
