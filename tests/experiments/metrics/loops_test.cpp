#include "experiments/metrics/loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "experiments/metrics/copied_share.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

Tokens counting(size_t size, Token first = 1000) {
  Tokens tokens(size);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Tokens repeated(const Tokens& period, size_t times) {
  Tokens tokens;
  for (size_t i = 0; i < times; ++i) {
    tokens = joined(std::move(tokens), period);
  }
  return tokens;
}

TEST(LoopsTest, BeginAtTheFirstTokenOfThreePeriods) {
  const Tokens text = counting(20);
  EXPECT_EQ(loop_start(joined(text, repeated(counting(17, 0), 3))), 20U);
  EXPECT_EQ(loop_start(joined(text, repeated(counting(64, 0), 3))), 20U);
  EXPECT_EQ(loop_start(joined(text, repeated({7}, 32))), 20U);
  EXPECT_EQ(loop_start(repeated({7, 8}, 500)), 0U);
  const Tokens twice = joined(joined(text, repeated(counting(17, 0), 2)), {5000});
  EXPECT_EQ(loop_start(twice), twice.size()) << "two periods";
  const Tokens shorter = joined(text, repeated({7}, 31));
  EXPECT_EQ(loop_start(shorter), shorter.size()) << "a number's zeros";
  const Tokens longer = joined(text, repeated(counting(65, 0), 3));
  EXPECT_EQ(loop_start(longer), longer.size()) << "too long a period";
  EXPECT_EQ(loop_start({}), 0U);
}

/// The definition, tried at every place.
size_t slow_loop_start(TokenSpan tokens) {
  for (size_t begin = 0; begin < tokens.size(); ++begin) {
    for (size_t period = 1; period <= 64; ++period) {
      const size_t size = std::max<size_t>(3 * period, 32);
      bool is_loop = begin + size <= tokens.size();
      for (size_t i = begin + period; is_loop && i < begin + size; ++i) {
        is_loop = tokens[i] == tokens[i - period];
      }
      if (is_loop) {
        return begin;
      }
    }
  }
  return tokens.size();
}

TEST(LoopsTest, AreThoseOfTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Tokens tokens;
    while (tokens.size() < 120) {
      const Tokens piece = counting(1 + random() % 9, static_cast<Token>(random() % 2));
      tokens = joined(std::move(tokens), repeated(piece, 1 + random() % 9));
    }
    EXPECT_EQ(loop_start(tokens), slow_loop_start(tokens)) << round;
  }
}

/// `text` tokens without a loop, then one of 60 tokens; a second a step.
GenerationRecord loop_record(const std::string& strategy, size_t text, int64_t tokens_per_step) {
  GenerationRecord record;
  record.key.strategy = strategy;
  record.key.prompt_id = record.question_id = "q";
  Generation& generation = record.generation;
  generation.tokens = joined(counting(text), repeated({1, 2, 3}, 20));
  generation.gaps.resize(generation.tokens.size(), 1.0);
  generation.prefill_seconds = 5.0;
  const auto steps = static_cast<int64_t>(generation.tokens.size() - 1);
  for (int64_t left = steps; left > 0; left -= tokens_per_step) {
    const int64_t committed = std::min(left, tokens_per_step);
    generation.steps.push_back({.drafted = committed - 1,
                                .accepted = committed - 1,
                                .committed = committed,
                                .depth = committed - 1,
                                .verify_seconds = 1.0});
  }
  generation.decode_seconds = static_cast<double>(generation.steps.size()) * 1.5;
  return record;
}

TEST(LoopsTest, GenerationEndsWithTheLastStepBeforeTheLoop) {
  const Generation whole = loop_record("plain", 12, 4).generation;
  const Generation cut = before_loop(whole);
  EXPECT_EQ(cut.tokens.size(), 9U) << "one of the prefill, two steps; the third is in the loop";
  EXPECT_EQ(cut.steps.size(), 2U);
  EXPECT_EQ(cut.gaps.size(), 9U);
  EXPECT_DOUBLE_EQ(cut.decode_seconds, 3.0) << "the steps' share of the time around them";
  EXPECT_EQ(cut.prefill_seconds, 5.0);
  Counts counts;
  counts.add(cut);
  EXPECT_EQ(counts.committed, 8);
}

TEST(LoopsTest, OthersAreUnchanged) {
  Generation generation = loop_record("plain", 12, 1).generation;
  generation.steps.pop_back();
  EXPECT_EQ(before_loop(generation).tokens.size(), 72U) << "steps that are not the tokens'";
  generation.tokens.resize(20);
  EXPECT_EQ(before_loop(generation).tokens.size(), 20U) << "no loop";
}

TEST(LoopsTest, SummaryHasBothFigures) {
  // Before the loop both need a step a token; in it the second commits three a step.
  auto second = loop_record("second", 31, 1);
  auto& steps = second.generation.steps;
  steps.resize(30);
  for (int i = 0; i < 20; ++i) {
    steps.push_back(
        {.drafted = 2, .accepted = 2, .committed = 3, .depth = 2, .verify_seconds = 1.0});
  }
  second.generation.decode_seconds = 75.0;
  const std::vector<GenerationRecord> records = {loop_record("plain", 31, 1), second};
  const Summary summary = summarize_before_loops(records, {});
  const SummaryRow& row = summary.rows.at(1);
  EXPECT_EQ(row.shortened, 1);
  EXPECT_DOUBLE_EQ(row.speedup->ratio, 1.0);
  EXPECT_DOUBLE_EQ(row.with_loops->ratio, 90.0 / 50.0);
  EXPECT_DOUBLE_EQ(*tokens_per_step(row.counts), 1.0);
  EXPECT_EQ(summary.compared, 1);
  EXPECT_EQ(summarize(records).rows.at(1).shortened, 0);
}

TEST(LoopsTest, TextsThatDifferInTheLoopAreNotEqual) {
  std::vector<GenerationRecord> records = {loop_record("plain", 31, 1),
                                           loop_record("other", 31, 1)};
  records[1].generation.tokens.back() = 9;
  EXPECT_EQ(summarize_before_loops(records, {}).divergences.size(), 1U);
}

TEST(CopiedShareTest, CountsTokensInStretchesOfFour) {
  const Tokens prompt = {1, 2, 3, 4, 5, 6};
  EXPECT_DOUBLE_EQ(copied_share(prompt, {}), 0.0);
  EXPECT_DOUBLE_EQ(copied_share(prompt, Tokens{2, 3, 4, 9}), 0.0) << "three";
  EXPECT_DOUBLE_EQ(copied_share(prompt, Tokens{2, 3, 4, 5, 9, 9, 9, 9}), 0.5);
  EXPECT_DOUBLE_EQ(copied_share(prompt, prompt), 1.0) << "stretches that overlap count once";
  EXPECT_DOUBLE_EQ(copied_share(prompt, Tokens{1, 2, 3, 4, 1, 2, 3, 4, 0, 0}), 0.8);
  EXPECT_DOUBLE_EQ(copied_share({}, prompt), 0.0);
}

}  // namespace
}  // namespace specdec
