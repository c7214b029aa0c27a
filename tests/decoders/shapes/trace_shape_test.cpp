#include "decoders/shapes/trace_shape.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kTraceVocab = 5;

LogitTable target_table() { return random_table(kTraceVocab, 1); }
LogitTable draft_table() { return mixed_table(target_table(), random_table(kTraceVocab, 2), 0.5); }

struct TraceBench {
  explicit TraceBench(const DraftModelOptions& options = {})
      : target(kTraceVocab, target_table()),
        strategy(target,
                 std::make_unique<DraftModelDrafter>(
                     std::make_unique<FakeModel>(kTraceVocab, draft_table()), options),
                 std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(3)) {}

  /// A text that the target has drawn.
  std::vector<Token> text(const Task& task) {
    CounterRandomness random(7);
    return AutoregressiveDecoding(target).generate(task.request(random)).tokens;
  }
  DraftTrace trace(const Task& task, TokenSpan output, const TraceOptions& options) {
    CounterRandomness random(1);
    return strategy.trace(task.request(random), output, options).value();
  }

  FakeModel target;
  SpeculativeDecoding strategy;
};

TEST(DraftTraceTest, RecordsTheDistributionsAtTheTextsTokens) {
  TraceBench bench;
  const Task task{
      .prompt = {0, 3}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 12}};
  const auto text = bench.text(task);
  const auto trace = bench.trace(task, text, {.depth = 4, .width = 3});
  EXPECT_TRUE(trace.drawn);
  ASSERT_EQ(trace.positions.size(), 11U);
  std::vector<Token> history = task.prompt;
  for (size_t root = 0; root < trace.positions.size(); ++root) {
    history.push_back(text[root]);
    const TracePosition& position = trace.positions[root];
    EXPECT_EQ(position.drafted, std::min<int64_t>(4, 10 - static_cast<int64_t>(root)));
    ASSERT_EQ(position.depths.size(), static_cast<size_t>(position.drafted));
    auto seen = history;
    for (size_t i = 0; i < position.depths.size(); ++i) {
      const auto p = distribution_of(target_table(), seen, task.sampling);
      const auto q = distribution_of(draft_table(), seen, task.sampling);
      const auto wanted = static_cast<size_t>(text[root + 1 + i]);
      EXPECT_NEAR(position.depths[i].p, p[wanted], 1e-12);
      EXPECT_NEAR(position.depths[i].q, q[wanted], 1e-12);
      double common = 0.0;
      int64_t rank = 0;
      for (size_t x = 0; x < p.size(); ++x) {
        common += std::min(p[x], q[x]);
        rank += q[x] > q[wanted] ? 1 : 0;
      }
      EXPECT_NEAR(position.depths[i].overlap, common, 1e-12);
      double favoured = 0.0;
      for (size_t x = 0; x < p.size(); ++x) {
        favoured += q[x] > p[x] ? p[x] : 0.0;
      }
      EXPECT_NEAR(position.depths[i].favoured, favoured, 1e-12);
      EXPECT_EQ(position.depths[i].is_favoured, q[wanted] > p[wanted]);
      EXPECT_EQ(position.depths[i].rank, rank);
      seen.push_back(text[root + 1 + i]);
    }
  }
}

TEST(DraftTraceTest, EndsWhereADraftDeterministicallyLeavesTheText) {
  TraceBench bench;
  const Task task{.prompt = {0, 3}, .stop = {.max_new_tokens = 20}};
  const auto text = bench.text(task);
  for (const int64_t width : {1, 2, 5}) {
    const auto trace = bench.trace(task, text, {.depth = 4, .width = width});
    EXPECT_FALSE(trace.drawn);
    for (const TracePosition& position : trace.positions) {
      for (size_t i = 0; i < position.depths.size(); ++i) {
        EXPECT_LT(position.depths[i].rank, width);
        EXPECT_EQ(position.depths[i].rank < 0,
                  width < 5 && i + 1 == position.depths.size() && position.depths[i].rank < 0);
        EXPECT_EQ(position.depths[i].overlap, position.depths[i].rank == 0 ? 1.0 : 0.0);
      }
      if (static_cast<int64_t>(position.depths.size()) < position.drafted) {
        EXPECT_EQ(position.depths.back().rank, -1);
      }
    }
  }
}

TEST(DraftTraceTest, DraftersWithoutADistributionAreComparedWithTheText) {
  FakeModel target(kTraceVocab, target_table());
  // Proposes two right tokens and a wrong one, so far as the text goes.
  const Task task{.prompt = {0, 3}, .stop = {.max_new_tokens = 10}};
  CounterRandomness random(1);
  const auto text = AutoregressiveDecoding(target).generate(task.request(random)).tokens;
  const auto script = [&](TokenSpan committed) {
    const size_t next = committed.size() - task.prompt.size();
    std::vector<Token> tokens;
    for (size_t i = next; i < std::min(next + 2, text.size()); ++i) {
      tokens.push_back(text[i]);
    }
    tokens.push_back(next + 2 < text.size() ? (text[next + 2] + 1) % static_cast<Token>(kTraceVocab)
                                            : 0);
    return tokens;
  };
  SpeculativeDecoding strategy(target, std::make_unique<ScriptedDrafter>(script),
                               std::make_unique<RejectionVerifier>(),
                               std::make_unique<FixedDraftLength>(3));
  const auto trace = strategy.trace(task.request(random), text, {.depth = 8, .width = 4}).value();
  EXPECT_EQ(trace.width, 1) << "ranks of such a drafter are not known";
  ASSERT_EQ(trace.positions.size(), 9U);
  for (size_t root = 0; root + 4 < text.size(); ++root) {
    const auto& depths = trace.positions[root].depths;
    ASSERT_EQ(depths.size(), 3U);
    EXPECT_EQ(trace.positions[root].drafted, 3);
    EXPECT_EQ(depths[0].rank, 0);
    EXPECT_EQ(depths[1].rank, 0);
    EXPECT_EQ(depths[2].rank, -1);
  }
}

TEST(DraftTraceTest, RefusesWhatCannotBeTraced) {
  EXPECT_THAT([] { TraceShape({.depth = 0}); },
              ThrowsMessage<ConfigError>(HasSubstr("must be at least 1")));
  FakeModel target(kTraceVocab, target_table());
  SpeculativeDecoding strategy(
      target, std::make_unique<TreeDrafter>(draft_table(), TreeDrafterOptions{.branches = 1}),
      std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(3));
  const Task task{.prompt = {0}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 6}};
  CounterRandomness random(1);
  const std::vector<Token> text = {1, 2, 3, 4};
  EXPECT_THAT([&] { (void)strategy.trace(task.request(random), text, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("draws its tokens by itself")));
}

}  // namespace
}  // namespace specdec
