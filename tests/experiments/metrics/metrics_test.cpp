#include "experiments/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Optional;
using testing::SizeIs;

StepStatistics chain_step(int64_t drafted, int64_t accepted) {
  return {.drafted = drafted,
          .accepted = accepted,
          .committed = accepted + 1,
          .depth = drafted,
          .draft_seconds = 0.1,
          .verify_seconds = 0.3,
          .other_seconds = 0.1};
}

/// A generation whose step times add up to its decode time.
Generation chains(const std::vector<std::pair<int64_t, int64_t>>& steps) {
  Generation generation;
  generation.tokens.push_back(0);
  generation.prefill_seconds = 0.5;
  for (const auto& [drafted, accepted] : steps) {
    generation.steps.push_back(chain_step(drafted, accepted));
    generation.tokens.resize(generation.tokens.size() + static_cast<size_t>(accepted) + 1);
    generation.decode_seconds += 0.5;
  }
  return generation;
}

Counts counts_of(const Generation& generation) {
  Counts counts;
  counts.add(generation);
  return counts;
}

GenerationRecord timed_record(const std::string& strategy, const std::string& prompt,
                              double seconds, int64_t tokens) {
  GenerationRecord record;
  record.key.strategy = strategy;
  record.key.prompt_id = prompt;
  record.generation.decode_seconds = seconds;
  for (int64_t i = 0; i < tokens; ++i) {
    record.generation.steps.push_back({.committed = 1});
    record.generation.tokens.push_back(static_cast<Token>(i));
  }
  return record;
}

TEST(MetricsTest, MetricsOfAChainByHand) {
  // Drafts of 3, 3, 2 and none; accepted 3, 1, 0 and none.
  const Counts counts = counts_of(chains({{3, 3}, {3, 1}, {2, 0}, {0, 0}}));
  EXPECT_EQ(counts.steps, 4);
  EXPECT_EQ(counts.drafting_steps, 3);
  EXPECT_THAT(acceptance_rate(counts), Optional(4.0 / 8.0));
  EXPECT_THAT(conditional_acceptance(counts),
              ElementsAre(Optional(2.0 / 3.0), Optional(1.0 / 2.0), Optional(1.0)));
  EXPECT_THAT(unconditional_acceptance(counts), ElementsAre(2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0));
  EXPECT_THAT(tokens_per_step(counts), Optional(2.0));
  EXPECT_THAT(accepted_per_step(counts), Optional(1.0));
  EXPECT_THAT(acceptance_length(counts), Optional(7.0 / 3.0));
  EXPECT_THAT(drafted_per_step(counts), Optional(2.0));
  EXPECT_THAT(counts.steps_committing, ElementsAre(0, 2, 1, 0, 1));
}

TEST(MetricsTest, PositionOfAShorterDraftIsNotReached) {
  // The second draft ends after one accepted token: it says nothing of position 2.
  const Counts counts = counts_of(chains({{2, 1}, {1, 1}}));
  EXPECT_THAT(counts.drafted_at, ElementsAre(2, 1));
  EXPECT_THAT(conditional_acceptance(counts), ElementsAre(Optional(1.0), Optional(0.0)));
}

TEST(MetricsTest, PositionThatNoStepReachedHasNoConditionalRate) {
  const Counts counts = counts_of(chains({{2, 0}}));
  EXPECT_THAT(conditional_acceptance(counts), ElementsAre(Optional(0.0), std::nullopt));
  EXPECT_THAT(unconditional_acceptance(counts), ElementsAre(0.0, 0.0));
}

TEST(MetricsTest, AcceptanceLengthIsOnePlusSumOfUnconditionalRates) {
  CounterRandomness random(7);
  const std::vector<double> lengths(9, 1.0);
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int i = 0; i < 500; ++i) {
    const int64_t drafted = random.draw(lengths);
    int64_t accepted = 0;
    while (accepted < drafted && random.bernoulli(0.7)) {
      ++accepted;
    }
    steps.emplace_back(drafted, accepted);
  }
  const Counts counts = counts_of(chains(steps));
  const auto rates = unconditional_acceptance(counts);
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  EXPECT_THAT(acceptance_length(counts), Optional(DoubleNear(1.0 + sum, 1e-12)));
  // With drafts of one length in every step, unconditional rates are products of conditional ones.
  const Counts fixed = counts_of(chains({{4, 4}, {4, 2}, {4, 0}, {4, 3}}));
  double product = 1.0;
  for (size_t i = 0; i < 4; ++i) {
    product *= conditional_acceptance(fixed)[i].value();
    EXPECT_DOUBLE_EQ(unconditional_acceptance(fixed)[i], product);
  }
}

TEST(MetricsTest, TokensPerStepCountsWhatAStopCut) {
  Generation generation = chains({{4, 4}});
  generation.steps[0].committed = 2;  // an end-of-sequence token was the second
  const Counts counts = counts_of(generation);
  EXPECT_THAT(tokens_per_step(counts), Optional(2.0));
  EXPECT_THAT(acceptance_length(counts), Optional(5.0));
}

TEST(MetricsTest, WithoutDraftsThereIsNoAcceptance) {
  const Counts counts = counts_of(chains({{0, 0}, {0, 0}}));
  EXPECT_EQ(acceptance_rate(counts), std::nullopt);
  EXPECT_EQ(acceptance_length(counts), std::nullopt);
  EXPECT_THAT(conditional_acceptance(counts), SizeIs(0));
  EXPECT_THAT(tokens_per_step(counts), Optional(1.0));
  EXPECT_THAT(accepted_per_step(counts), Optional(0.0));
}

TEST(MetricsTest, NoStepsAndNoTimeGiveNone) {
  const Counts counts = counts_of(Generation());
  EXPECT_EQ(tokens_per_step(counts), std::nullopt);
  EXPECT_EQ(time_split(counts), std::nullopt);
  EXPECT_EQ(decode_tokens_per_second(counts), std::nullopt);
  EXPECT_EQ(total_tokens_per_second(counts), std::nullopt);
  EXPECT_EQ(drafted_per_step(counts), std::nullopt);
}

TEST(MetricsTest, TokensPerSecondIsTotalTokensOverTotalTime) {
  Counts counts = counts_of(chains({{3, 3}}));   // 4 tokens in 0.5 s
  counts.add(chains({{3, 0}, {3, 0}, {3, 0}}));  // 3 tokens in 1.5 s
  EXPECT_THAT(decode_tokens_per_second(counts), Optional(7.0 / 2.0));
  // With the token that each prefill yields, and its time.
  EXPECT_THAT(total_tokens_per_second(counts), Optional(9.0 / 3.0));
}

TEST(MetricsTest, TimeSplitGivesTheRestToOther) {
  Generation generation = chains({{3, 3}});
  generation.decode_seconds = 1.0;  // 0.1 draft, 0.3 verify, 0.1 other; 0.5 that no part states
  const auto split = time_split(counts_of(generation));
  ASSERT_TRUE(split.has_value());
  EXPECT_DOUBLE_EQ(split->draft, 0.1);
  EXPECT_DOUBLE_EQ(split->verify, 0.3);
  EXPECT_DOUBLE_EQ(split->other, 0.6);
  EXPECT_EQ(split->discarded, 0.0);
}

TEST(MetricsTest, DiscardedSamplesHaveAShareOfTheirOwn) {
  Generation generation = chains({{3, 3}});
  generation.decode_seconds = 2.0;  // 0.1 draft, 0.3 verify, 0.1 other; 1.5 of three other samples
  generation.samples = 4;
  const auto split = time_split(counts_of(generation));
  ASSERT_TRUE(split.has_value());
  EXPECT_NEAR(split->draft, 0.05, 1e-12);
  EXPECT_NEAR(split->verify, 0.15, 1e-12);
  EXPECT_NEAR(split->other, 0.05, 1e-12);
  EXPECT_NEAR(split->discarded, 0.75, 1e-12);
  Generation none;
  none.stop_reason = StopReason::kNoneAccepted;
  none.decode_seconds = 2.0;
  EXPECT_DOUBLE_EQ(time_split(counts_of(none))->discarded, 1.0);
}

TEST(MetricsTest, ReadingPromptsIsNoPartOfTheSplitButOfTheSpeed) {
  Generation generation = chains({{3, 3}});
  generation.steps[0].draft_seconds += 1.0;
  generation.steps[0].prompt_draft_seconds = 1.0;
  generation.decode_seconds = 2.0;
  const Counts counts = counts_of(generation);
  EXPECT_DOUBLE_EQ(counts.prompt_draft_seconds, 1.0);
  const auto split = time_split(counts);
  ASSERT_TRUE(split.has_value());
  EXPECT_NEAR(split->draft, 0.1, 1e-12);
  EXPECT_NEAR(split->verify, 0.3, 1e-12);
  EXPECT_NEAR(split->other, 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(decode_tokens_per_second(counts).value(), 4.0 / 2.0);
}

TEST(MetricsTest, TreeCountsLevels) {
  Generation generation;
  generation.steps.push_back({.drafted = 7, .accepted = 1, .committed = 2, .depth = 3});
  const Counts counts = counts_of(generation);
  EXPECT_TRUE(has_trees(counts));
  EXPECT_FALSE(has_trees(counts_of(chains({{3, 1}, {2, 2}}))));
  Counts imported;
  imported.drafted = 5;
  EXPECT_FALSE(has_trees(imported)) << "imported counts may not tell";
  EXPECT_THAT(counts.drafted_at, ElementsAre(1, 1, 1));
  EXPECT_THAT(conditional_acceptance(counts),
              ElementsAre(Optional(1.0), Optional(0.0), std::nullopt));
}

TEST(MetricsTest, ContradictingCountsAreABug) {
  Generation generation;
  generation.steps.push_back({.drafted = 2, .accepted = 3, .committed = 4, .depth = 2});
  Counts counts;
  EXPECT_THROW(counts.add(generation), InternalError);
}

TEST(MetricsTest, SummaryComparesSharedPromptsWithTheFirstStrategy) {
  std::vector<GenerationRecord> records = {
      timed_record("plain", "a", 1.0, 10), timed_record("plain", "b", 3.0, 10),
      timed_record("fast", "a", 0.5, 10),
      timed_record("fast", "c", 9.0, 10),  // not run by the first strategy
  };
  const Summary summary = summarize(records);
  ASSERT_THAT(summary.rows, SizeIs(2));
  EXPECT_TRUE(summary.rows[0].is_first);
  EXPECT_EQ(summary.rows[0].speedup, std::nullopt);
  EXPECT_EQ(summary.rows[1].strategy, "fast");
  ASSERT_TRUE(summary.rows[1].speedup.has_value());
  EXPECT_DOUBLE_EQ(summary.rows[1].speedup->ratio, 2.0);
  EXPECT_EQ(summary.rows[1].speedup->questions, 1);
  EXPECT_EQ(summary.rows[1].questions, 2);
}

TEST(MetricsTest, SummaryAddsUpTurnsAndRepeatsOfAQuestion) {
  std::vector<GenerationRecord> records = {
      timed_record("plain", "a/1", 1.0, 10), timed_record("fast", "a/1", 0.3, 10),
      timed_record("plain", "a/2", 1.0, 10), timed_record("fast", "a/2", 0.7, 10),
      timed_record("plain", "a/1", 4.0, 10), timed_record("fast", "a/1", 0.5, 10),
      timed_record("fast", "a/2", 99.0, 10)};  // the first strategy's turn 2 is not there yet
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].question_id = "a";
    records[i].key.repeat = i < 4 ? 0 : 1;
  }
  const Summary summary = summarize(records);
  EXPECT_DOUBLE_EQ(summary.rows[1].speedup.value().ratio, 4.0);
  EXPECT_EQ(summary.rows[1].speedup->questions, 1);
  EXPECT_EQ(summary.rows[1].questions, 1);
}

TEST(MetricsTest, SummaryHasTheLoadOfWhatRecordedIt) {
  std::vector<GenerationRecord> records = {timed_record("plain", "a", 1.0, 3),
                                           timed_record("fast", "a", 1.0, 3)};
  EXPECT_EQ(summarize(records).load.generations(), 0);
  records[1].load = {.seconds = 2.0, .average = 1.5, .stolen_seconds = 0.5};
  const Summary summary = summarize(records);
  EXPECT_EQ(summary.load.generations(), 1);
  EXPECT_THAT(summary.load.stolen(), Optional(0.25));
}

TEST(MetricsTest, AcceptanceByPositionHasIntervalsOverQuestions) {
  std::vector<GenerationRecord> records;
  for (int i = 0; i < 9; ++i) {
    auto record = timed_record("fast", std::to_string(i), 1.0, 1);
    // Position 2 is reached on 4 questions only.
    record.generation = chains({{2, i < 4 ? 1 : 0}, {2, 0}});
    records.push_back(record);
  }
  const SummaryRow row = summarize(records).rows.at(0);
  ASSERT_THAT(row.position_intervals, SizeIs(2));
  EXPECT_EQ(row.position_intervals[0].questions, 9);
  ASSERT_TRUE(row.position_intervals[0].interval.has_value());
  EXPECT_LT(row.position_intervals[0].interval->low, 4.0 / 18.0);
  EXPECT_GT(row.position_intervals[0].interval->high, 4.0 / 18.0);
  EXPECT_EQ(row.position_intervals[1].questions, 4);
  EXPECT_EQ(row.position_intervals[1].interval, std::nullopt);
  ASSERT_TRUE(row.tokens_per_step_interval.has_value());
  EXPECT_LT(row.tokens_per_step_interval->low, 22.0 / 18.0);
  EXPECT_GT(row.tokens_per_step_interval->high, 22.0 / 18.0);
}

TEST(MetricsTest, SummaryHasCategoriesWhenThereAreSeveral) {
  std::vector<GenerationRecord> records = {
      timed_record("plain", "a", 1.0, 10), timed_record("plain", "b", 1.0, 10),
      timed_record("fast", "a", 0.5, 10), timed_record("fast", "b", 0.25, 10)};
  EXPECT_THAT(summarize(records).rows, SizeIs(2));
  records[0].category = records[2].category = "prose";
  const Summary summary = summarize(records);
  ASSERT_THAT(summary.rows, SizeIs(6));
  EXPECT_EQ(summary.rows[2].category, "prose");
  EXPECT_DOUBLE_EQ(summary.rows[3].speedup.value().ratio, 2.0);
  EXPECT_EQ(summary.rows[4].category, "(no category)");
  EXPECT_DOUBLE_EQ(summary.rows[5].speedup.value().ratio, 4.0);
}

TEST(MetricsTest, SweepComparesWithinAPointElseWithinItsCondition) {
  std::vector<GenerationRecord> records = {
      timed_record("plain", "a", 1.0, 10), timed_record("fast", "a", 0.5, 10),
      timed_record("plain", "a", 4.0, 10), timed_record("fast", "a", 0.5, 10),
      timed_record("fast", "a", 0.25, 10), timed_record("fast", "a", 0.25, 10)};
  records[0].key.sweep_point = records[1].key.sweep_point = "t=0, k=1";
  records[2].key.sweep_point = records[3].key.sweep_point = "t=1, k=1";
  records[4].key.sweep_point = "t=1, k=2";
  records[5].key.sweep_point = "t=2, k=1";  // without the first strategy
  for (GenerationRecord& each : records) {
    each.generation.gaps.assign(each.generation.tokens.size(), 0.5);
    each.text_tokens = std::ssize(each.generation.tokens);
  }
  const Summary summary = summarize(
      records, {.condition_of = [](const std::string& point) { return point.substr(0, 3); }});
  ASSERT_THAT(summary.rows, SizeIs(6));
  EXPECT_DOUBLE_EQ(summary.rows[1].speedup.value().ratio, 2.0);
  EXPECT_DOUBLE_EQ(summary.rows[3].speedup.value().ratio, 8.0);
  EXPECT_DOUBLE_EQ(summary.rows[4].speedup.value().ratio, 16.0) << "of its condition";
  EXPECT_TRUE(summary.rows[4].spec_bench->speedup.has_value());
  EXPECT_EQ(summary.compared, 3) << "texts of another condition are not compared";

  const SummaryRow& alone = summary.rows[5];
  EXPECT_FALSE(alone.speedup.has_value()) << "of another condition";
  EXPECT_FALSE(alone.end_to_end.has_value());
  EXPECT_FALSE(alone.spec_bench->speedup.has_value());
  EXPECT_EQ(alone.missing.not_by_first, 1);
  EXPECT_FALSE(summarize(records).rows[4].speedup.has_value()) << "conditions are not known";
}

TEST(MetricsTest, DivergencesHavePositionAndGaps) {
  std::vector<GenerationRecord> records = {
      timed_record("plain", "a", 1.0, 3), timed_record("same", "a", 1.0, 3),
      timed_record("other", "a", 1.0, 3), timed_record("longer", "a", 1.0, 4)};
  for (GenerationRecord& each : records) {
    each.generation.gaps.assign(each.generation.tokens.size(), 0.5);
  }
  records[0].generation.gaps[1] = 1e-7;
  records[2].generation.tokens[1] = 9;
  records[2].generation.gaps[1] = 2e-7;
  const Summary summary = summarize(records);
  EXPECT_EQ(summary.compared, 3);
  ASSERT_THAT(summary.divergences, SizeIs(2));
  const Divergence& near_tie = summary.divergences[0];
  EXPECT_EQ(near_tie.key.strategy, "other");
  EXPECT_EQ(near_tie.position, 1);
  EXPECT_EQ(near_tie.token_first, 1);
  EXPECT_EQ(near_tie.token_other, 9);
  EXPECT_EQ(near_tie.gap_first, 1e-7);
  EXPECT_EQ(near_tie.gap_other, 2e-7);
  const Divergence& ended = summary.divergences[1];
  EXPECT_EQ(ended.position, 3);
  EXPECT_EQ(ended.token_first, -1);
  EXPECT_TRUE(std::isnan(ended.gap_first));
  EXPECT_EQ(ended.token_other, 3);
}

TEST(MetricsTest, SampledGenerationsAreNotComparedTokenByToken) {
  std::vector<GenerationRecord> records = {timed_record("plain", "a", 1.0, 3),
                                           timed_record("other", "a", 1.0, 3)};
  records[1].generation.tokens[0] = 5;
  const Summary summary = summarize(records);
  EXPECT_EQ(summary.compared, 0);
  EXPECT_THAT(summary.divergences, SizeIs(0));
}

TEST(MetricsTest, NothingToSummarize) { EXPECT_THAT(summarize({}).rows, SizeIs(0)); }

TEST(MetricsTest, ExactAcceptanceIsTheMeanOverlapOfTheStepsThatReachAPosition) {
  Generation generation;
  generation.steps = {
      {.drafted = 2, .accepted = 0, .committed = 1, .depth = 2, .overlaps = {0.5, 0.9}},
      {.drafted = 2, .accepted = 2, .committed = 3, .depth = 2, .overlaps = {0.7, 0.3}},
      {.drafted = 3, .accepted = 1, .committed = 2, .depth = 2, .overlaps = {0.1, 0.1}},  // a tree
      {.drafted = 1, .accepted = 0, .committed = 1, .depth = 1},  // not logged
  };
  const auto exact = exact_acceptance(counts_of(generation));
  ASSERT_EQ(exact.size(), 2U);
  EXPECT_NEAR(exact[0].value(), 0.6, 1e-12);
  EXPECT_NEAR(exact[1].value(), 0.3, 1e-12);
}

TEST(MetricsTest, GrammarsHaveMetricsOfTheirOwn) {
  Generation whole;
  whole.tokens = {1, 2, 3};
  whole.log_allowed = {-1.0, -0.5, 0.0};
  whole.stop_reason = StopReason::kGrammarEnd;
  whole.samples = 4;
  whole.mask_fallbacks = 1;
  whole.steps = {{.drafted = 3,
                  .accepted = 1,
                  .committed = 2,
                  .depth = 3,
                  .by_freedom = {DraftCounts{0, 0}, DraftCounts{2, 0}, DraftCounts{1, 1}},
                  .mask_seconds = 0.5}};
  Generation cut = whole;
  cut.stop_reason = StopReason::kMaxNewTokens;
  Counts counts = counts_of(whole);
  counts.add(cut);
  EXPECT_EQ(acceptance_rate(counts, Freedom::kFree), std::nullopt);
  EXPECT_THAT(acceptance_rate(counts, Freedom::kConstrained), Optional(0.0));
  EXPECT_THAT(acceptance_rate(counts, Freedom::kForced), Optional(1.0));
  EXPECT_THAT(mask_seconds_per_token(counts), Optional(0.25));
  EXPECT_THAT(log_allowed_per_token(counts), Optional(-0.5));
  EXPECT_THAT(complete_share(counts), Optional(0.5));
  EXPECT_EQ(counts.samples, 8);
  EXPECT_EQ(counts.mask_fallbacks, 2);

  const Counts without = counts_of(chains({{3, 1}}));
  EXPECT_EQ(mask_seconds_per_token(without), std::nullopt);
  EXPECT_EQ(log_allowed_per_token(without), std::nullopt);
  EXPECT_EQ(complete_share(without), std::nullopt);
}

TEST(MetricsTest, ReadBacksAreCountedPerStep) {
  Generation generation;
  generation.steps = {{.drafted = 3,
                       .accepted = 1,
                       .committed = 2,
                       .depth = 3,
                       .read_backs = {1, 40},
                       .draft_read_backs = {3, 600}},
                      {.committed = 1, .read_backs = {1, 16}}};
  const auto rates = read_backs_per_step(counts_of(generation));
  ASSERT_TRUE(rates.has_value());
  EXPECT_EQ(rates->drafting, 1.5);
  EXPECT_EQ(rates->verifying, 1.0);
  EXPECT_EQ(rates->bytes, 328.0);
  EXPECT_FALSE(read_backs_per_step(counts_of(chains({{3, 1}}))).has_value()) << "on a CPU";
}

TEST(MetricsTest, EmptyOutputsOfAGrammarAreIncompleteOnes) {
  Generation none;
  none.stop_reason = StopReason::kNoneAccepted;
  none.samples = 16;
  Counts counts = counts_of(none);
  EXPECT_EQ(counts.grammar_outputs, 1);
  EXPECT_EQ(counts.samples, 16);
  EXPECT_THAT(complete_share(counts), Optional(0.0));
  Generation limited;
  limited.stop_reason = StopReason::kGrammarLimit;  // at its first token
  counts.add(limited);
  Generation whole;
  whole.tokens = {1};
  whole.log_allowed = {-1.0};
  whole.stop_reason = StopReason::kGrammarEnd;
  whole.samples = 3;
  counts.add(whole);
  EXPECT_EQ(counts.samples, 20);
  EXPECT_THAT(complete_share(counts), Optional(1.0 / 3.0));
  EXPECT_THAT(log_allowed_per_token(counts), Optional(-1.0));
}

/// Identities between the definitions, over random chains and trees.
TEST(MetricsTest, DefinitionsAgreeWithEachOther) {
  CounterRandomness random(11);
  const std::vector<double> weights(6, 1.0);
  for (int trial = 0; trial < 50; ++trial) {
    Generation generation;
    generation.tokens.resize(1);
    for (int step = 0; step < 30; ++step) {
      const int64_t depth = random.draw(weights);
      const int64_t drafted = depth == 0 ? 0 : depth + random.draw(weights);
      const int64_t accepted = std::min(depth, random.draw(weights));
      generation.steps.push_back(
          {.drafted = drafted, .accepted = accepted, .committed = accepted + 1, .depth = depth});
      generation.tokens.resize(generation.tokens.size() + static_cast<size_t>(accepted) + 1);
    }
    const Counts counts = counts_of(generation);
    EXPECT_EQ(counts.committed, counts.accepted + counts.steps);
    EXPECT_EQ(counts.tokens, counts.committed + counts.generations);
    const auto rates = unconditional_acceptance(counts);
    const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
    EXPECT_NEAR(acceptance_length(counts).value(), 1.0 + sum, 1e-12);
    // The product of conditional rates is the unconditional one where every draft was deep enough.
    EXPECT_NEAR(conditional_acceptance(counts)[0].value(), rates[0], 1e-12);
    EXPECT_NEAR(tokens_per_step(counts).value(), 1.0 + accepted_per_step(counts).value(), 1e-12);
    EXPECT_EQ(std::accumulate(counts.accepted_at.begin(), counts.accepted_at.end(), int64_t{0}),
              counts.accepted);
    EXPECT_EQ(
        std::accumulate(counts.steps_committing.begin(), counts.steps_committing.end(), int64_t{0}),
        counts.steps);
  }
}

}  // namespace
}  // namespace specdec
