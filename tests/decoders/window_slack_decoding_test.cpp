// Speculation over caches that give back what windows have left behind: the tokens and acceptance
// of caches that keep all, for targets whose layers are in two groups of pages. (Users of Gemma 4
// have reported acceptance that falls to 0 with one block table for two groups of layers.)
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/target_table.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using SlackWeights = std::shared_ptr<const TransformerWeights>;

constexpr int64_t kSlackDecodingVocab = 31;
constexpr int64_t kDraftDepth = 3;
constexpr int64_t kSlackTokens = 50;  // several times the window of 6

SlackWeights slack_target(const std::string& kind) {
  return kind == "gemma3" ? tiny_gemma(kSlackDecodingVocab, at::kFloat)
                          : tiny_gemma4(kind, kSlackDecodingVocab, at::kFloat);
}

std::unique_ptr<DraftShape> slack_shape(bool tree) {
  if (tree) {
    return std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}}));
  }
  return std::make_unique<FixedDraftLength>(kDraftDepth);
}

struct SlackRun {
  Generation generation;
  int64_t sliding_pages;  ///< of a layer of the target, at the end
};

/// Speculation with a draft model of other weights, or of the same, over caches of this slack.
SlackRun run_with_slack(const SlackWeights& weights, const SlackWeights& draft, bool tree,
                        bool greedy, int64_t slack) {
  const KvStoreFactory cache = paged_kv(2, KvFormat::kNative, 0, slack);
  TransformerModel target(weights, cache);
  std::unique_ptr<Verifier> verifier = std::make_unique<RejectionVerifier>();
  if (greedy) {
    verifier = std::make_unique<ExactMatchVerifier>();
  }
  SpeculativeDecoding decoding(
      target, std::make_unique<DraftModelDrafter>(std::make_unique<TransformerModel>(draft, cache)),
      std::move(verifier), slack_shape(tree));
  CounterRandomness random(7);
  const Task task{.prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5},
                  .sampling = {.temperature = greedy ? 0.0 : 1.0},
                  .stop = {.max_new_tokens = kSlackTokens}};
  Generation generation = decoding.generate(task.request(random));
  return {std::move(generation), target.cache().statistics().layers[0].used_pages};
}

class WindowSlackDecodingTest : public testing::TestWithParam<std::string> {
 protected:
  WindowSlackDecodingTest() { at::set_num_threads(1); }
  ~WindowSlackDecodingTest() override { at::set_num_threads(threads_); }

  SlackWeights weights_ = slack_target(GetParam());

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(WindowSlackDecodingTest, TokensAndAcceptanceAreThoseOfACacheThatKeepsAll) {
  const SlackWeights other = tiny_gemma(kSlackDecodingVocab, at::kFloat, 2);
  for (const SlackWeights& draft : {weights_, other}) {
    for (const bool tree : {false, true}) {
      for (const bool greedy : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << (draft == weights_ ? "same " : "other ") << (tree ? "tree" : "chain")
                     << (greedy ? " greedy" : " sampled"));
        const SlackRun kept = run_with_slack(weights_, draft, tree, greedy, 0);
        const SlackRun given = run_with_slack(weights_, draft, tree, greedy, kDraftDepth + 1);
        EXPECT_EQ(given.generation.tokens, kept.generation.tokens);
        ASSERT_EQ(given.generation.steps.size(), kept.generation.steps.size());
        for (size_t i = 0; i < kept.generation.steps.size(); ++i) {
          EXPECT_EQ(given.generation.steps[i].accepted, kept.generation.steps[i].accepted) << i;
        }
        EXPECT_LT(2 * given.sliding_pages, kept.sliding_pages);
      }
    }
  }
}

TEST_P(WindowSlackDecodingTest, TheTargetsOwnDraftsAreAllAccepted) {
  TransformerModel plain_model(weights_, paged_kv());
  CounterRandomness random(1);
  const SlackRun run = run_with_slack(weights_, weights_, false, true, kDraftDepth + 1);
  const Task task{.prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5},
                  .stop = {.max_new_tokens = kSlackTokens}};
  EXPECT_EQ(run.generation.tokens,
            AutoregressiveDecoding(plain_model).generate(task.request(random)).tokens);
  int64_t drafted = 0;
  for (const StepStatistics& step : run.generation.steps) {
    EXPECT_EQ(step.accepted, step.drafted);
    drafted += step.drafted;
  }
  EXPECT_GT(drafted, kSlackTokens / 2);
}

TEST(WindowSlackDistributionTest, TheOutputsDistributionIsTheTargets) {
  const SlackWeights weights = tiny_gemma(3, at::kDouble);
  const SlackWeights other = tiny_gemma(3, at::kDouble, 2);
  const KvStoreFactory cache = paged_kv(1, KvFormat::kNative, 0, kDraftDepth + 1);
  const Task task{.prompt = {0, 1, 2, 2, 1, 0, 0, 2, 1, 1, 0, 2},
                  .sampling = {.temperature = 0.9},
                  .stop = {.max_new_tokens = 4}};
  const SequenceDistribution wanted = reference_distribution(target_table(weights), task);
  for (const bool tree : {false, true}) {
    TransformerModel target(weights, cache);
    SpeculativeDecoding decoding(
        target,
        std::make_unique<DraftModelDrafter>(std::make_unique<TransformerModel>(other, cache)),
        std::make_unique<RejectionVerifier>(), slack_shape(tree));
    EXPECT_LT(max_difference(exact_distribution(decoding, task), wanted), 1e-12);
    EXPECT_LT(target.cache().statistics().layers[0].used_pages, 13) << "pages were given back";
  }
}

INSTANTIATE_TEST_SUITE_P(All, WindowSlackDecodingTest,
                         testing::Values("gemma3", "dense", "e", "moe", "3n"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace specdec
