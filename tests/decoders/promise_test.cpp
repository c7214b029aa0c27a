// Every strategy keeps what it promises. Lossless means: greedy decoding yields the target's greedy
// tokens; sampling yields the target's distribution over whole outputs, exactly, with every random
// choice enumerated. Components as YAML names them are proved by certify's examples, in every
// combination (tests/experiments/certify/).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/error.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "tests/decoders/promise_rows.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

struct SampledCase {
  std::string name;
  int64_t vocab = 3;
  Task task;
};

const std::vector<std::string> kPromisePieces = {"a", "b", "ab", "ba"};
const std::vector<std::string> kPiecesAndEnd = {"a", "b", "ab", ""};

const LetterTokenizer& letters() {
  static const LetterTokenizer tokenizer(kPromisePieces);
  return tokenizer;
}

/// Free, forced and forbidden places, a text that is cut in several ways, and ends.
const std::shared_ptr<const CompiledGrammar>& letter_pairs() {
  static const auto grammar = letter_grammar(kPiecesAndEnd, "a(b(a|b)|aab)(ab|b){0,40}");
  return grammar;
}

/// The texts of letter_pairs, where "ab" is never cut.
const std::shared_ptr<const CompiledGrammar>& whole_letter_pairs() {
  static const LetterTokenizer merging(
      kPiecesAndEnd, MergeRules{{{.left = 0, .right = 1, .result = 2, .rank = 0}}, {}});
  static const auto grammar = letter_grammar(kPiecesAndEnd, "a(b(a|b)|aab)(ab|b){0,40}", &merging);
  return grammar;
}

/// How a grammar may be used; the output's distribution is the same, but for the canonical one's.
std::vector<std::pair<std::string, Constraint>> constraints() {
  return {{"grammar", {letter_pairs(), true, false}},
          {"grammar_unmasked", {letter_pairs(), false, false}},
          {"grammar_forced", {letter_pairs(), true, true}},
          {"grammar_canonical", {whole_letter_pairs(), true, true}}};
}

std::vector<SampledCase> sampled_cases() {
  const std::vector<Token> prompt = {0, 1, 2, 1, 0, 1};
  const auto task = [&](SamplingParams sampling, StopRule stop = {.max_new_tokens = 4}) {
    return Task{prompt, sampling, std::move(stop), &letters()};
  };
  std::vector<SampledCase> cases = {
      {"plain", 3, task({.temperature = 1.0})},
      {"four_tokens", 4, task({.temperature = 0.8}, {.max_new_tokens = 3})},
      {"top_k", 3, task({.temperature = 0.7, .top_k = 2})},
      {"top_p", 3, task({.temperature = 1.3, .top_p = 0.8})},
      {"min_p", 3, task({.temperature = 1.0, .min_p = 0.3})},
      {"penalty", 3, task({.temperature = 1.0, .repetition_penalty = 1.7})},
      {"bias", 3, task({.temperature = 1.0, .logit_bias = {{0, -1.5}, {2, 0.75}}})},
      {"forbidden", 4,
       task({.temperature = 1.0,
             .repetition_penalty = 1.7,
             .logit_bias = {{0, 0.5}, {1, -INFINITY}}},
            {.max_new_tokens = 3})},
      {"all_transforms", 4,
       task(
           {.temperature = 1.5, .top_k = 3, .top_p = 0.95, .min_p = 0.1, .repetition_penalty = 1.2},
           {.max_new_tokens = 3})},
      {"stop_ids", 3,
       task({.temperature = 1.0}, {.max_new_tokens = 4, .end_ids = {2}, .stop_ids = {0}})},
      {"stop_strings", 3,
       task({.temperature = 1.0}, {.max_new_tokens = 4, .stop_strings = {"bab", "aa"}})},
  };
  static const LetterTokenizer with_end(kPiecesAndEnd);
  for (const auto& [name, constraint] : constraints()) {
    if (constraint.mask_drafts && !constraint.forced) {
      continue;  // covered by the forced one
    }
    // Four tokens have many outcomes to enumerate.
    const int64_t tokens = constraint.forced ? 4 : 3;
    cases.push_back(
        {name, 4, task({.temperature = 1.0}, {.max_new_tokens = tokens, .end_ids = {3}})});
    cases.back().task.tokenizer = &with_end;
    cases.back().task.constraint = constraint;
  }
  return cases;
}

/// Logits to which the task's bias is added, in the model instead of the sampling.
LogitTable biased(const LogitTable& table, const Task& task) {
  return [table, bias = task.sampling.logit_bias](TokenSpan history) {
    std::vector<double> logits = table(history);
    for (const auto& [token, summand] : bias) {
      logits[static_cast<size_t>(token)] += summand;
    }
    return logits;
  };
}

Task without_bias(Task task) {
  task.sampling.logit_bias.clear();
  return task;
}

/// How far the distribution of a strategy is from its target's, over a few random pairs of models.
double distribution_difference(const StrategyRow& strategy, const SampledCase& asked) {
  double largest = 0.0;
  const bool constrained = asked.task.constraint.grammar != nullptr;
  for (const uint64_t seed :
       constrained ? std::vector<uint64_t>{11} : std::vector<uint64_t>{11, 12}) {
    const LogitTable target_table = random_table(asked.vocab, seed);
    const LogitTable drafter_table =
        mixed_table(target_table, random_table(asked.vocab, seed + 100), 0.7);
    FakeModel target(asked.vocab, target_table);
    const auto decoding = strategy.make(target, drafter_table);
    const SequenceDistribution expected =
        reference_distribution(biased(target_table, asked.task), without_bias(asked.task));
    largest =
        std::max(largest, max_difference(exact_distribution(*decoding, asked.task), expected));
  }
  return largest;
}

class PromiseTest : public testing::TestWithParam<StrategyRow> {};

TEST_P(PromiseTest, SamplesTheDistributionOfTheTarget) {
  for (const SampledCase& asked : sampled_cases()) {
    if (GetParam().samples) {
      EXPECT_LT(distribution_difference(GetParam(), asked), kSameDistribution) << asked.name;
    } else {
      EXPECT_THROW(distribution_difference(GetParam(), asked), ConfigError) << asked.name;
    }
  }
}

/// Greedy decoding written down: the best token of the table, until a stop.
std::vector<Token> greedy_tokens(const LogitTable& table, const Task& task) {
  std::vector<Token> history = task.prompt;
  std::vector<Token> output;
  while (static_cast<int64_t>(output.size()) < task.stop.max_new_tokens) {
    const std::vector<double> logits = table(history);
    std::vector<double> distribution(logits.size());
    target_distribution(std::span<const double>(logits), history, task.sampling, distribution);
    output.push_back(static_cast<Token>(argmax(distribution)));
    history.push_back(output.back());
    if (output.back() == task.stop.end_ids.front()) {
      break;
    }
  }
  return output;
}

TEST_P(PromiseTest, GreedyTokensAreTheTargets) {
  constexpr int64_t kVocab = 12;
  for (const uint64_t seed : {1U, 2U, 3U, 4U}) {
    // Few tokens decide what comes next, so the text soon repeats itself: prompt lookup has work.
    const LogitTable target_table = random_table(kVocab, seed, 1 + seed % 2);
    const LogitTable drafter_table =
        mixed_table(target_table, random_table(kVocab, seed + 100), 0.3);
    FakeModel target(kVocab, target_table, 128);
    const Task task{{3, 1, 4, 1, 5},
                    {.temperature = 0.0,
                     .repetition_penalty = seed == 3 ? 1.1 : 1.0,
                     .logit_bias = seed == 4 ? LogitBias{{1, 1.5}, {5, -INFINITY}} : LogitBias{}},
                    {.max_new_tokens = 40, .end_ids = {static_cast<Token>(seed)}}};
    CounterRandomness random(seed);
    const Generation generation =
        GetParam().make(target, drafter_table)->generate(task.request(random));
    EXPECT_EQ(generation.tokens, greedy_tokens(biased(target_table, task), without_bias(task)))
        << "seed " << seed;
    EXPECT_EQ(generation.gaps.size(), generation.tokens.size());
  }
}

TEST_P(PromiseTest, GreedyTokensUnderAGrammarAreThoseOfMaskedGreedyDecoding) {
  constexpr int64_t kVocab = 4;
  static const LetterTokenizer with_end(kPiecesAndEnd);
  for (const uint64_t seed : {1U, 2U, 3U, 4U}) {
    const LogitTable target_table = random_table(kVocab, seed, 1 + seed % 2);
    const LogitTable drafter_table =
        mixed_table(target_table, random_table(kVocab, seed + 100), 0.3);
    FakeModel target(kVocab, target_table, 128);
    for (const auto& [name, constraint] : constraints()) {
      const Task task{
          {3, 1, 1, 0}, {}, {.max_new_tokens = 40, .end_ids = {3}}, &with_end, constraint};
      CounterRandomness random(seed);
      const Generation generation =
          GetParam().make(target, drafter_table)->generate(task.request(random));
      EXPECT_EQ(generation.tokens, reference_distribution(target_table, task).begin()->first)
          << name << ", seed " << seed;
      EXPECT_EQ(generation.log_allowed.size(), generation.tokens.size());
    }
  }
}

TEST_P(PromiseTest, TheContextMayEndTheOutput) {
  constexpr int64_t kVocab = 6;
  const LogitTable table = random_table(kVocab, 5);
  FakeModel target(kVocab, table, 12);
  const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 40}};
  CounterRandomness random(5);
  const Generation generation = GetParam().make(target, table)->generate(task.request(random));
  EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(generation.tokens.size(), 8U);  // the newest token needs no place in the cache
}

INSTANTIATE_TEST_SUITE_P(All, PromiseTest, testing::ValuesIn(promise_rows()),
                         [](const auto& info) { return info.param.name; });

TEST(PromiseTest, SampledCountsFitTheDistribution) {
  constexpr int64_t kVocab = 3;
  const SampledCase asked = sampled_cases().front();
  const LogitTable target_table = random_table(kVocab, 21);
  FakeModel target(kVocab, target_table);
  SpeculativeDecoding decoding(
      target,
      std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(
          kVocab, mixed_table(target_table, random_table(kVocab, 22), 0.7))),
      std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(3));
  const SequenceDistribution distribution = reference_distribution(target_table, asked.task);
  const ChiSquare test = chi_square(sample_counts(decoding, asked.task, 4000, 2024), distribution);
  EXPECT_GT(test.p_value, 0.001) << "chi-square " << test.statistic << " of " << test.degrees;
}

}  // namespace
}  // namespace specdec
