#include "decoders/speculative.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "decoders/drafters/recycling.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;
using Shown = ScriptedDrafter::Shown;

constexpr int64_t kCountingVocab = 6;

/// Counts up from the newest token: 1 2 3 ... after which comes 0 again.
LogitTable counting_table() {
  return [](TokenSpan history) {
    std::vector<double> logits(kCountingVocab, 0.0);
    logits[static_cast<size_t>((history.back() + 1) % kCountingVocab)] = 4.0;
    return logits;
  };
}

std::unique_ptr<SpeculativeDecoding> decoding(LanguageModel& target,
                                              std::unique_ptr<Drafter> drafter,
                                              std::unique_ptr<DraftShape> shape = nullptr) {
  if (shape == nullptr) {
    shape = std::make_unique<FixedDraftLength>(3);
  }
  return std::make_unique<SpeculativeDecoding>(
      target, std::move(drafter), std::make_unique<ExactMatchVerifier>(), std::move(shape));
}

TEST(SpeculativeTest, CountsWhatWasDraftedAndAccepted) {
  FakeModel target(kCountingVocab, counting_table());
  // Right about two tokens, wrong about the third.
  const auto script = [](TokenSpan committed) {
    const Token newest = committed.back();
    return Tokens{(newest + 1) % 6, (newest + 2) % 6, (newest + 2) % 6};
  };
  const Task task{.prompt = {0}, .stop = {.max_new_tokens = 9}};
  CounterRandomness random(1);
  const Generation generation =
      decoding(target, std::make_unique<ScriptedDrafter>(script))->generate(task.request(random));
  EXPECT_EQ(generation.tokens, (Tokens{1, 2, 3, 4, 5, 0, 1, 2, 3}));
  ASSERT_EQ(generation.steps.size(), 3U);
  const std::vector<std::vector<int64_t>> expected = {{3, 2, 3}, {3, 2, 3}, {1, 1, 2}};
  for (size_t i = 0; i < 3; ++i) {
    const StepStatistics& step = generation.steps[i];
    EXPECT_EQ((std::vector<int64_t>{step.drafted, step.accepted, step.committed}), expected[i]);
    EXPECT_EQ(step.depth, step.drafted);
  }
  EXPECT_EQ(target.forwards(), (std::vector<int64_t>{1, 4, 4, 2}));
}

TEST(SpeculativeTest, DraftsAreCutBeforeTheyAreDrawn) {
  FakeModel target(kCountingVocab, counting_table(), 8);
  std::vector<Shown> shown;
  const auto script = [](TokenSpan committed) {
    return Tokens{(committed.back() + 1) % 6, (committed.back() + 2) % 6,
                  (committed.back() + 3) % 6};
  };
  const Task task{.prompt = {0, 1}, .stop = {.max_new_tokens = 100}};
  CounterRandomness random(1);
  const Generation generation = decoding(target, std::make_unique<ScriptedDrafter>(script, &shown))
                                    ->generate(task.request(random));
  EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(generation.tokens.size(), 7U);
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[0].max_tokens, 3);
  EXPECT_EQ(shown[1].max_tokens, 1);
}

TEST(SpeculativeTest, ShowsTheDrafterTheLastStepAndThePrompt) {
  FakeModel target(kCountingVocab, counting_table());
  std::vector<Shown> shown;
  const auto script = [](TokenSpan committed) { return Tokens{(committed.back() + 1) % 6, 0}; };
  const Task task{.prompt = {3, 1}, .stop = {.max_new_tokens = 7}};
  CounterRandomness random(1);
  decoding(target,
           std::make_unique<ScriptedDrafter>(script, &shown, Needs{.capture_layers = {4, 1}}))
      ->generate(task.request(random));
  ASSERT_GE(shown.size(), 2U);
  EXPECT_FALSE(shown[0].had_last_step);
  ASSERT_TRUE(shown[0].had_prompt_result);
  EXPECT_EQ(shown[0].committed, (Tokens{3, 1, 2}));
  const auto state = [](const Tokens& history, int64_t layer) {
    return at::tensor(FakeModel::hidden_state(history, layer));
  };
  ASSERT_EQ(shown[0].prompt_result.captured.size(), 2U);
  EXPECT_TRUE(at::equal(shown[0].prompt_result.captured[0][0], state({3}, 4)));
  EXPECT_TRUE(at::equal(shown[0].prompt_result.captured[1][1], state({3, 1}, 1)));
  const StepResult& step = shown[1].last_step;
  ASSERT_TRUE(shown[1].had_last_step);
  EXPECT_EQ(step.draft.tokens, (Tokens{2, 3, 0}));
  EXPECT_EQ(step.verified.path, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(step.verified.next, 4);
  ASSERT_EQ(step.result.captured.size(), 2U);
  EXPECT_TRUE(at::equal(step.result.captured[1][2], state({3, 1, 2, 3, 0}, 1)))
      << "rejected nodes are there too";
  EXPECT_FALSE(step.result.final_hidden.defined()) << "it did not ask for internals";
}

/// A greedy generation of a target that gives logits, or the best tokens alone.
Generation greedy_generation(bool best_alone, std::unique_ptr<Drafter> drafter,
                             SamplingParams sampling = {}) {
  FakeModel target(kCountingVocab, random_table(kCountingVocab, 5));
  if (best_alone) {
    target.give_best_tokens();
  }
  const Task task{.prompt = {3, 1}, .sampling = sampling, .stop = {.max_new_tokens = 30}};
  CounterRandomness random(1);
  const Generation result = decoding(target, std::move(drafter))->generate(task.request(random));
  EXPECT_EQ(target.gave_best_tokens(),
            best_alone && sampling.greedy() && !sampling.changes_logits());
  return result;
}

TEST(SpeculativeTest, BestTokensAloneDecodeAsLogitsDo) {
  const auto script = [](TokenSpan committed) { return Tokens{(committed.back() + 1) % 6, 0}; };
  for (const SamplingParams& sampling :
       {SamplingParams{}, SamplingParams{.repetition_penalty = 1.5},
        SamplingParams{.logit_bias = {{2, 1.0}}}}) {
    const Generation logits =
        greedy_generation(false, std::make_unique<ScriptedDrafter>(script), sampling);
    const Generation best =
        greedy_generation(true, std::make_unique<ScriptedDrafter>(script), sampling);
    EXPECT_EQ(best.tokens, logits.tokens);
    EXPECT_EQ(best.gaps, logits.gaps);
    EXPECT_EQ(best.steps.size(), logits.steps.size());
  }
}

TEST(SpeculativeTest, DraftersThatReadLogitsGetThem) {
  const auto recycling = [] { return std::make_unique<RecyclingDrafter>(); };
  const Generation logits = greedy_generation(false, recycling());
  const Generation best = greedy_generation(true, recycling());  // of the prompt, that is
  EXPECT_EQ(best.tokens, logits.tokens);
  EXPECT_EQ(best.steps.size(), logits.steps.size());
}

TEST(SpeculativeTest, ARowWithoutABestTokenIsDamaged) {
  const auto damaged = [](TokenSpan history) {
    return std::vector<double>(kCountingVocab, history.size() < 4 ? 1.0 : std::nan(""));
  };
  for (const bool best_alone : {false, true}) {
    FakeModel target(kCountingVocab, damaged);
    if (best_alone) {
      target.give_best_tokens();
    }
    const Task task{.prompt = {3, 1}, .stop = {.max_new_tokens = 9}};
    CounterRandomness random(1);
    const auto strategy =
        decoding(target, std::make_unique<ScriptedDrafter>([](TokenSpan) { return Tokens{}; }));
    EXPECT_THAT([&] { strategy->generate(task.request(random)); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("the target after 4 tokens"), HasSubstr(damaged_logits()))));
  }
}

TEST(SpeculativeTest, PromptResultIsForThoseWhoNeedIt) {
  FakeModel target(kCountingVocab, counting_table());
  std::vector<Shown> shown;
  const auto script = [](TokenSpan) { return Tokens{0}; };
  const Task task{.prompt = {3}, .stop = {.max_new_tokens = 3}};
  CounterRandomness random(1);
  decoding(target, std::make_unique<ScriptedDrafter>(script, &shown))
      ->generate(task.request(random));
  ASSERT_FALSE(shown.empty());
  EXPECT_FALSE(shown[0].had_prompt_result);
}

/// Notes whether the prompt's features are gone when they are not shown any more.
class WatchesPrompt final : public Drafter {
 public:
  explicit WatchesPrompt(std::vector<bool>* freed) : freed_(freed) {}
  Needs needs() const override { return {.capture_layers = {1}}; }
  Draft propose(const DraftContext& context) override {
    if (context.prompt_result != nullptr) {
      captured_ = WeakTensor(context.prompt_result->captured.front().getIntrusivePtr());
    } else {
      freed_->push_back(captured_.expired());
    }
    return Draft::root(context.committed.back());
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<bool>* freed_;
  WeakTensor captured_{Tensor().getIntrusivePtr()};
};

TEST(SpeculativeTest, ThePromptsFeaturesAreFreedAfterTheFirstProposal) {
  FakeModel target(kCountingVocab, counting_table());
  std::vector<bool> freed;
  const Task task{.prompt = {3, 1}, .stop = {.max_new_tokens = 5}};
  CounterRandomness random(1);
  decoding(target, std::make_unique<WatchesPrompt>(&freed))->generate(task.request(random));
  EXPECT_EQ(freed, std::vector<bool>(2, true));
}

TEST(SpeculativeTest, EachRequestBeginsAnew) {
  FakeModel target(kCountingVocab, counting_table());
  std::vector<Shown> shown;
  const auto script = [](TokenSpan committed) { return Tokens(10, (committed.back() + 1) % 6); };
  const auto strategy = decoding(
      target, std::make_unique<ScriptedDrafter>(script, &shown),
      std::make_unique<HeuristicDraftLength>(HeuristicOptions{.initial = 5, .min = 1, .max = 9}));
  const Task task{.prompt = {3}, .stop = {.max_new_tokens = 20}};
  CounterRandomness random(1);
  const Generation first = strategy->generate(task.request(random));
  const size_t steps = shown.size();
  const Generation second = strategy->generate(task.request(random));
  EXPECT_EQ(first.tokens, second.tokens);
  ASSERT_EQ(first.steps.size(), second.steps.size());
  EXPECT_EQ(first.steps[0].drafted, 5);
  EXPECT_EQ(second.steps[0].drafted, 5);
  EXPECT_FALSE(shown.at(steps).had_last_step);
}

class NeedsInternals final : public Drafter {
 public:
  Needs needs() const override { return {.capture_layers = {}, .internals = true}; }
  Draft propose(const DraftContext& context) override {
    return Draft::root(context.committed.back());
  }
};

TEST(SpeculativeTest, RefusesATargetWithoutInternals) {
  FakeModel target(kCountingVocab, counting_table());
  EXPECT_THAT([&] { decoding(target, std::make_unique<NeedsInternals>()); },
              ThrowsMessage<ConfigError>(HasSubstr("embeddings, head and cache")));
}

TEST(SpeculativeTest, ExactMatchIsRefusedWhenSampling) {
  FakeModel target(kCountingVocab, counting_table());
  const auto strategy =
      decoding(target, std::make_unique<ScriptedDrafter>([](TokenSpan) { return Tokens{}; }));
  const Task task{.prompt = {3}, .sampling = {.temperature = 0.5}};
  CounterRandomness random(1);
  EXPECT_THAT([&] { strategy->generate(task.request(random)); },
              ThrowsMessage<ConfigError>(HasSubstr("rejection")));
}

/// Proposes more than it may.
class Eager final : public Drafter {
 public:
  Draft propose(const DraftContext& context) override {
    Draft draft = Draft::root(context.committed.back());
    for (int64_t i = 0; i <= context.max_tokens; ++i) {
      draft.add(0, i);
    }
    return draft;
  }
};

TEST(SpeculativeTest, ADraftThatDoesNotFitIsABug) {
  FakeModel target(kCountingVocab, counting_table());
  const Task task{.prompt = {3}};
  CounterRandomness random(1);
  EXPECT_THROW(decoding(target, std::make_unique<Eager>())->generate(task.request(random)),
               InternalError);
}

}  // namespace
}  // namespace specdec
