#include "experiments/metrics/step_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/metrics/thinking.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::Optional;
using testing::Pair;

using Tokens = std::vector<Token>;

constexpr ThinkingTokens kMarks{.begin = 8, .end = 9};

/// Steps that draft four tokens each and accept so many.
GenerationRecord grouped_record(const std::string& question, int64_t prompt_tokens,
                                const std::vector<int64_t>& accepted) {
  GenerationRecord record;
  record.key = {"", "eagle", question, 0};
  record.prompt_tokens = prompt_tokens;
  record.generation.tokens = {0};
  for (const int64_t count : accepted) {
    record.generation.steps.push_back(
        {.drafted = 4, .accepted = count, .committed = count + 1, .depth = 4});
    record.generation.tokens.resize(record.generation.tokens.size() + static_cast<size_t>(count) +
                                    1);
  }
  return record;
}

StepGroups groups_of(const std::vector<GenerationRecord>& records) {
  std::vector<const GenerationRecord*> pointers;
  for (const GenerationRecord& record : records) {
    pointers.push_back(&record);
  }
  return group_steps(pointers);
}

TEST(ThinkingSpanTest, LastsFromTheOpeningTokenToTheEndingOne) {
  EXPECT_EQ(thinking_span(Tokens{1, 2}, Tokens{8, 3, 3, 9, 4, 5}, kMarks), (ThinkingSpan{0, 4}));
  EXPECT_EQ(thinking_span(Tokens{1, 2}, Tokens{3, 8, 3, 9, 8, 9}, kMarks), (ThinkingSpan{1, 4}));
  EXPECT_EQ(thinking_span(Tokens{1, 2}, Tokens{8, 3, 3}, kMarks), (ThinkingSpan{0, 3}))
      << "cut off before it ended";
}

TEST(ThinkingSpanTest, MayBeOpenedByThePrompt) {
  EXPECT_EQ(thinking_span(Tokens{1, 8, 2}, Tokens{3, 9, 4}, kMarks), (ThinkingSpan{0, 2}));
  EXPECT_EQ(thinking_span(Tokens{8, 9, 1, 8}, Tokens{9, 4}, kMarks), (ThinkingSpan{0, 1}));
  EXPECT_EQ(thinking_span(Tokens{8, 9}, Tokens{3, 4}, kMarks), std::nullopt)
      << "the template ends it at once";
  EXPECT_EQ(thinking_span(Tokens{1}, Tokens{3, 9, 4}, kMarks), std::nullopt) << "an end of nothing";
  EXPECT_EQ(thinking_span(Tokens{}, Tokens{}, kMarks), std::nullopt);
}

TEST(StepGroupsTest, PhasesAreToldApartByAStepsFirstToken) {
  // First tokens of the steps: 1, 4, 6 and 7.
  GenerationRecord record = grouped_record("a", 10, {2, 1, 0, 3});
  record.thinking = ThinkingSpan{0, 6};
  const StepGroups groups = groups_of({record});
  const StepGroup& thinking = groups.of(Phase::kThinking);
  EXPECT_EQ(thinking.steps, 2);
  EXPECT_EQ(thinking.drafted, 8);
  EXPECT_EQ(thinking.accepted, 3);
  EXPECT_THAT(acceptance_rate(thinking), Optional(3.0 / 8.0));
  EXPECT_THAT(tokens_per_step(thinking), Optional(2.5));
  EXPECT_THAT(acceptance_rate(groups.of(Phase::kAnswer)), Optional(3.0 / 8.0));
  EXPECT_EQ(groups.of(Phase::kAnswer).committed, 5);
}

TEST(StepGroupsTest, WithoutThinkingAllIsAnswer) {
  const StepGroups groups = groups_of({grouped_record("a", 10, {2, 1})});
  EXPECT_EQ(groups.of(Phase::kThinking).steps, 0);
  EXPECT_EQ(acceptance_rate(groups.of(Phase::kThinking)), std::nullopt);
  EXPECT_EQ(tokens_per_step(groups.of(Phase::kThinking)), std::nullopt);
  EXPECT_EQ(groups.of(Phase::kAnswer).steps, 2);
}

TEST(StepGroupsTest, BucketsDouble) {
  EXPECT_EQ(context_bucket(0), 0);
  EXPECT_EQ(context_bucket(255), 0);
  EXPECT_EQ(context_bucket(256), 256);
  EXPECT_EQ(context_bucket(511), 256);
  EXPECT_EQ(context_bucket(512), 512);
  EXPECT_EQ(context_bucket(100000), 65536);
}

TEST(StepGroupsTest, StepsBelongToTheContextThatTheyContinue) {
  // The steps continue 254, 257 and 259 tokens.
  const StepGroups groups = groups_of({grouped_record("a", 253, {2, 1, 4})});
  EXPECT_THAT(groups.by_context, ElementsAre(Pair(0, testing::Field(&StepGroup::accepted, 2)),
                                             Pair(256, testing::Field(&StepGroup::accepted, 5))));
}

TEST(StepGroupsTest, IntervalsAreOverQuestions) {
  std::vector<GenerationRecord> records;
  for (int64_t i = 0; i < 12; ++i) {
    records.push_back(grouped_record(std::to_string(i), 10, {i % 3, 1}));
  }
  const StepGroup answer = groups_of(records).of(Phase::kAnswer);
  EXPECT_EQ(answer.questions, 12);
  EXPECT_LT(answer.acceptance_interval.value().low, 0.25);
  EXPECT_GT(answer.acceptance_interval.value().high, 0.25);
  records.resize(4);
  EXPECT_EQ(groups_of(records).of(Phase::kAnswer).acceptance_interval, std::nullopt);
}

/// Beam searches.
TEST(StepGroupsTest, StepsThatDoNotAddUpToTheTokensAreLeftOut) {
  GenerationRecord record = grouped_record("a", 10, {2, 1});
  record.generation.tokens.pop_back();
  const StepGroups groups = groups_of({record});
  EXPECT_EQ(groups.of(Phase::kAnswer).steps, 0);
  EXPECT_TRUE(groups.by_context.empty());
}

}  // namespace
}  // namespace specdec
