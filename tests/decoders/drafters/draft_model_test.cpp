#include "decoders/drafters/draft_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/draft_bench.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;

constexpr int64_t kDraftVocab = 5;

LogitTable model_table() { return random_table(kDraftVocab, 2, 3); }

/// A drafter with a view of its model.
struct DraftModelBench : DraftBench {
  explicit DraftModelBench(const DraftModelOptions& options = {}, int64_t max_length = 64) {
    auto owned = std::make_unique<FakeModel>(kDraftVocab, model_table(), max_length);
    model = owned.get();
    drafter = std::make_unique<DraftModelDrafter>(std::move(owned), options);
  }

  Draft propose(const Tokens& committed, int64_t max_tokens) {
    FixedDraftLength shape(std::max<int64_t>(1, max_tokens));
    DraftContext asked = context(committed, shape, {max_tokens, max_tokens, 1});
    asked.prompt_seconds = &prompt_seconds;
    return drafter->propose(asked);
  }

  double prompt_seconds = 0.0;
  FakeModel* model;
  std::unique_ptr<DraftModelDrafter> drafter;
};

/// The greedy continuation by the table.
Tokens best_tokens(Tokens history, size_t count) {
  const size_t before = history.size();
  while (history.size() < before + count) {
    history.push_back(static_cast<Token>(argmax(model_table()(history))));
  }
  return {history.begin() + static_cast<int64_t>(before), history.end()};
}

Tokens proposed(const Draft& draft) { return {draft.tokens.begin() + 1, draft.tokens.end()}; }

TEST(DraftModelTest, GreedyDraftIsTheModelsOwnText) {
  DraftModelBench bench;
  const Draft draft = bench.propose({1, 2, 3}, 4);
  EXPECT_EQ(draft.tokens.front(), 3);
  EXPECT_EQ(proposed(draft), best_tokens({1, 2, 3}, 4));
  EXPECT_EQ(draft.parents, (std::vector<int64_t>{-1, 0, 1, 2, 3}));
  EXPECT_EQ(draft.child_probs, std::vector<int64_t>(5, -1));
  EXPECT_TRUE(draft.probs.empty());
}

TEST(DraftModelTest, FeedsOnlyWhatIsMissing) {
  DraftModelBench bench;
  const Tokens start = {1, 2, 3};
  const Tokens drafted = proposed(bench.propose(start, 3));
  EXPECT_EQ(bench.model->forwards(), (std::vector<int64_t>{3, 1, 1}));

  // All accepted: the last drafted token is not in its cache yet, nor is the bonus token.
  Tokens all = start;
  all.insert(all.end(), drafted.begin(), drafted.end());
  all.push_back(4);
  EXPECT_EQ(proposed(bench.propose(all, 2)), best_tokens(all, 2));
  EXPECT_EQ(bench.model->forwards(), (std::vector<int64_t>{3, 1, 1, 2, 1}));

  // Rejected at once: only the correction token is new.
  Tokens corrected = all;
  corrected.push_back((best_tokens(all, 1).front() + 1) % kDraftVocab);
  EXPECT_EQ(proposed(bench.propose(corrected, 1)), best_tokens(corrected, 1));
  EXPECT_EQ(bench.model->forwards(), (std::vector<int64_t>{3, 1, 1, 2, 1, 1}));

  // After plain steps it catches up in one forward.
  Tokens later = corrected;
  later.insert(later.end(), {0, 1, 2, 3});
  EXPECT_EQ(proposed(bench.propose(later, 1)), best_tokens(later, 1));
  EXPECT_EQ(bench.model->forwards().back(), 4);
}

TEST(DraftModelTest, TheSameSequenceAgainFeedsTheNewestToken) {
  DraftModelBench bench;
  const Tokens committed = {1, 2, 3};
  const Tokens first = proposed(bench.propose(committed, 2));
  EXPECT_EQ(proposed(bench.propose(committed, 2)), first);
  EXPECT_EQ(bench.model->forwards(), (std::vector<int64_t>{3, 1, 1, 1}));
}

TEST(DraftModelTest, ResetBeginsANewSequence) {
  DraftModelBench bench;
  bench.propose({1, 2, 3}, 2);
  bench.drafter->reset();
  EXPECT_EQ(proposed(bench.propose({1, 2, 4}, 2)), best_tokens({1, 2, 4}, 2));
  EXPECT_EQ(bench.model->forwards(), (std::vector<int64_t>{3, 1, 3, 1}));
}

TEST(DraftModelTest, TimesThePromptOnceARequest) {
  DraftModelBench bench;
  bench.propose({1, 2, 3}, 2);
  const double once = bench.prompt_seconds;
  EXPECT_GT(once, 0.0);
  bench.propose({1, 2, 3, 4}, 2);
  EXPECT_EQ(bench.prompt_seconds, once);
  bench.drafter->reset();
  bench.propose({1, 2, 3}, 2);
  EXPECT_GT(bench.prompt_seconds, once);
}

TEST(DraftModelTest, RecordsTheDistributionsItDrewFrom) {
  DraftModelBench bench;
  bench.sampling = {.temperature = 0.9, .top_k = 4, .repetition_penalty = 1.5};
  Tokens history = {1, 2, 3};
  const Draft draft = bench.propose(history, 3);
  ASSERT_EQ(draft.proposed(), 3);
  EXPECT_EQ(draft.child_probs, (std::vector<int64_t>{0, 1, 2, -1}));
  ASSERT_EQ(draft.probs.size(), 3U);
  for (int64_t node = 0; node < 3; ++node) {
    const std::vector<double> logits = model_table()(history);
    std::vector<double> distribution(kDraftVocab);
    target_distribution(std::span<const double>(logits), history, bench.sampling, distribution);
    EXPECT_EQ(draft.drawn_from(node)->row(), distribution) << "node " << node;
    history.push_back(draft.tokens[static_cast<size_t>(node) + 1]);
  }
}

TEST(DraftModelTest, MayChooseDeterministicallyWhenSampling) {
  DraftModelBench bench({.sample = false});
  bench.sampling.temperature = 1.0;
  const Draft draft = bench.propose({1, 2, 3}, 3);
  EXPECT_EQ(proposed(draft), best_tokens({1, 2, 3}, 3));
  EXPECT_EQ(draft.child_probs, std::vector<int64_t>(4, -1));
}

TEST(DraftModelTest, DraftsNoMoreThanItsOwnModelHolds) {
  DraftModelBench bench({}, 5);
  EXPECT_EQ(bench.propose({1, 2, 3}, 9).proposed(), 3);
  EXPECT_EQ(bench.propose({1, 2, 3, 4, 0}, 9).proposed(), 1);
  EXPECT_EQ(bench.propose({1, 2, 3, 4, 0, 1}, 9).proposed(), 0);
  EXPECT_EQ(bench.propose({1, 2, 3, 4, 0, 1, 2}, 9).tokens, Tokens{2});
}

TEST(DraftModelTest, RefusesAnotherVocabulary) {
  const DraftModelBench bench;
  FakeModel same(kDraftVocab, model_table());
  EXPECT_NO_THROW(bench.drafter->check(same));
  FakeModel other(kDraftVocab + 1, random_table(kDraftVocab + 1, 1));
  EXPECT_THAT([&] { bench.drafter->check(other); },
              ThrowsMessage<ConfigError>(HasSubstr("5 tokens and the target one of 6")));
}

/// model_table with -inf for `padding` more rows, which no token has.
LogitTable padded_table(int64_t padding) {
  return [padding](std::span<const Token> history) {
    std::vector<double> logits = model_table()(history);
    logits.insert(logits.end(), static_cast<size_t>(padding),
                  -std::numeric_limits<double>::infinity());
    return logits;
  };
}

TEST(DraftModelTest, FitsLogitsToATargetThatIsPaddedOtherwise) {
  for (const int64_t padding : {2, 0}) {
    const int64_t target_padding = 2 - padding;
    DraftModelDrafter drafter(
        std::make_unique<FakeModel>(kDraftVocab + padding, padded_table(padding)),
        {.vocab_size = kDraftVocab + target_padding});
    FakeModel target(kDraftVocab + target_padding, padded_table(target_padding));
    EXPECT_NO_THROW(drafter.check(target));
    DraftBench bench;
    bench.sampling.temperature = 0.9;
    FixedDraftLength shape(3);
    Tokens history = {1, 2, 3};
    const Draft draft = drafter.propose(bench.context(history, shape, {3, 3, 1}));
    ASSERT_EQ(draft.proposed(), 3);
    for (int64_t node = 0; node < 3; ++node) {
      const std::vector<double> logits = padded_table(target_padding)(history);
      std::vector<double> distribution(logits.size());
      target_distribution(std::span<const double>(logits), history, bench.sampling, distribution);
      EXPECT_EQ(draft.drawn_from(node)->row(), distribution) << padding << ", node " << node;
      history.push_back(draft.tokens[static_cast<size_t>(node) + 1]);
    }
  }
}

TEST(DraftModelTest, AModelThatIsItsOwnTargetIsAcceptedWhole) {
  FakeModel target(kDraftVocab, model_table());
  SpeculativeDecoding decoding(
      target,
      std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kDraftVocab, model_table())),
      std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(4));
  const Task task{.prompt = {1}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 21}};
  CounterRandomness random(3);
  const Generation generation = decoding.generate(task.request(random));
  EXPECT_EQ(generation.steps.size(), 4U);
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.accepted, 4);
    EXPECT_EQ(step.committed, 5);
  }
}

}  // namespace
}  // namespace specdec
