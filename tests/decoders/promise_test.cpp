// Every strategy keeps what it promises. Lossless means: greedy decoding yields the target's greedy
// tokens; sampling yields the target's distribution over whole outputs, exactly, with every random
// choice enumerated. A new drafter, verifier, draft length or strategy is one more row in the
// tables below.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/cascade.h"
#include "decoders/drafters/corpus_bigram.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/lookahead.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/drafters/recycling.h"
#include "decoders/drafters/suffix.h"
#include "decoders/drafters/synthetic.h"
#include "decoders/shapes/chain.h"
#include "decoders/shapes/cost_aware.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "decoders/verifiers/threshold.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/retrieval.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

// ---- The tables -------------------------------------------------------------------------------

struct DrafterRow {
  std::string name;
  std::function<std::unique_ptr<Drafter>(const LogitTable& table, const LanguageModel& target)>
      make;
  bool trees = false;  // branches even when a chain is asked for
};

struct VerifierRow {
  std::string name;
  std::function<std::unique_ptr<Verifier>()> make;
  bool samples;  // promises the distribution at temperatures above 0
  bool trees;
};

struct ShapeRow {
  std::string name;
  std::function<std::unique_ptr<DraftShape>()> make;
};

/// As large a vocabulary, and as little room, as the target has.
std::unique_ptr<LanguageModel> draft_model(const LogitTable& table, const LanguageModel& target) {
  return std::make_unique<FakeModel>(target.vocab_size(), table, target.max_length());
}

/// Drafters that look things up: they fill whatever room they are given.
std::vector<DrafterRow> lookups() {
  static const std::vector<std::vector<Token>> kCorpus = {{0, 1, 2, 1, 1, 0}, {2, 0, 1, 2, 2}};
  const auto suffix = [] {
    auto corpus = std::make_shared<SuffixAutomaton>();
    for (const Token token : kCorpus[0]) {
      corpus->append(token);
    }
    return std::make_unique<SuffixDrafter>(SuffixOptions{.offset = 2.0}, corpus);
  };
  return {
      {"suffix", [=](const LogitTable&, const LanguageModel&) { return suffix(); }},
      {"corpus_bigram",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<CorpusBigramDrafter>(std::make_shared<BigramTable>(kCorpus));
       }},
      {"recycling",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<RecyclingDrafter>(RecyclingOptions{.candidates = 3});
       }},
      {"cascade",
       [=](const LogitTable& table, const LanguageModel& target) {
         std::vector<CascadeMember> members;
         members.push_back({suffix(), 2});
         members.push_back({std::make_unique<DraftModelDrafter>(draft_model(table, target))});
         members.push_back({std::make_unique<RecyclingDrafter>()});
         return std::make_unique<CascadeDrafter>(std::move(members));
       }},
      {"synthetic", [](const LogitTable&,
                       const LanguageModel&) { return std::make_unique<SyntheticDrafter>(); }},
  };
}

std::vector<DrafterRow> drafters() {
  std::vector<DrafterRow> rows = lookups();
  const std::vector<DrafterRow> others = {
      {"draft_model",
       [](const LogitTable& table, const LanguageModel& target) {
         return std::make_unique<DraftModelDrafter>(draft_model(table, target));
       }},
      {"draft_model_greedy",
       [](const LogitTable& table, const LanguageModel& target) {
         return std::make_unique<DraftModelDrafter>(draft_model(table, target),
                                                    DraftModelOptions{.sample = false});
       }},
      {"prompt_lookup",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<PromptLookupDrafter>(
             PromptLookupOptions{.min_ngram = 1, .max_ngram = 3});
       }},
      {"sampled_tree",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<TreeDrafter>(table);
       },
       true},
      {"chosen_tree",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<TreeDrafter>(table,
                                              TreeDrafterOptions{.branches = 2, .sample = false});
       },
       true},
      {"mixed_chain",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<MixedChainDrafter>(table);
       }},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

/// Rows for trees alone: what looks things up, and lookahead, whose window needs one.
std::vector<DrafterRow> tree_lookups() {
  std::vector<DrafterRow> rows = lookups();
  std::erase_if(rows, [](const DrafterRow& row) { return row.name == "cascade"; });
  rows.push_back({"lookahead", [](const LogitTable&, const LanguageModel&) {
                    return std::make_unique<LookaheadDrafter>(LookaheadOptions{
                        .window = 2, .ngram = 3, .guesses = 2, .pool_from_prompt = true});
                  }});
  return rows;
}

std::vector<VerifierRow> verifiers() {
  return {
      {"exact_match", [] { return std::make_unique<ExactMatchVerifier>(); }, false, true},
      {"block", [] { return std::make_unique<BlockVerifier>(); }, true, false},
      {"sample_match", [] { return std::make_unique<SampleMatchVerifier>(); }, true, true},
      {"threshold_of_one", [] { return std::make_unique<ThresholdVerifier>(); }, true, true},
      {"rejection", [] { return std::make_unique<RejectionVerifier>(); }, true, true},
  };
}

ShapeRow chain_row(const std::string& name, std::function<std::unique_ptr<DraftLength>()> length) {
  return {name, [length] { return std::make_unique<ChainShape>(length()); }};
}

/// Counts more than it costs, so that drafts of every size come up.
CostAwareOptions cheap_drafts() {
  CostAwareOptions options{.max_nodes = 4, .max_depth = 3, .branches = 2, .acceptance = {0.7, 0.2}};
  options.explore = 1.0;
  options.persist = false;
  options.target_cost.points = {{.new_tokens = 1, .context = 1, .seconds = 1.0},
                                {.new_tokens = 5, .context = 1, .seconds = 1.3}};
  return options;
}

std::vector<ShapeRow> shapes() {
  return {
      chain_row("fixed", [] { return std::make_unique<FixedDraftLength>(3); }),
      chain_row("heuristic",
                [] {
                  return std::make_unique<HeuristicDraftLength>(
                      HeuristicOptions{.initial = 1, .min = 1, .max = 3});
                }),
      // Quick to pause, so that short outputs hold drafted and plain steps.
      chain_row("adaptive",
                [] {
                  return std::make_unique<AdaptiveDraftLength>(AdaptiveOptions{
                      .initial = 1, .max = 3, .memory = 0.5, .pause = 1, .probe = 1});
                }),
      {"static_tree",
       [] {
         return std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}}));
       }},
      {"dynamic_tree",
       [] {
         return std::make_unique<DynamicTreeShape>(
             DynamicTreeOptions{.nodes = 3, .depth = 2, .top_k = 2});
       }},
      {"cost_aware_tree", [] { return std::make_unique<CostAwareShape>(cheap_drafts()); }},
  };
}

struct StrategyRow {
  std::string name;
  bool samples;
  /// A strategy for a target, with a table for what drafts.
  std::function<std::unique_ptr<DecodingStrategy>(LanguageModel& target, const LogitTable& table)>
      make;
};

void PrintTo(const StrategyRow& one, std::ostream* out) { *out << one.name; }

StrategyRow speculative_row(const DrafterRow& drafter, const VerifierRow& verifier,
                            const ShapeRow& shape) {
  return {drafter.name + "_" + verifier.name + "_" + shape.name, verifier.samples,
          [=](LanguageModel& target, const LogitTable& table) {
            return std::make_unique<SpeculativeDecoding>(target, drafter.make(table, target),
                                                         verifier.make(), shape.make());
          }};
}

/// The same, with room for a tree.
StrategyRow speculative_tree_row(const DrafterRow& drafter, const VerifierRow& verifier) {
  return {drafter.name + "_" + verifier.name + "_tree", verifier.samples,
          [=](LanguageModel& target, const LogitTable& table) {
            return std::make_unique<SpeculativeDecoding>(
                target, drafter.make(table, target), verifier.make(),
                std::make_unique<Room>(DraftLimits{.tokens = 6, .depth = 3, .branches = 4}));
          }};
}

std::vector<StrategyRow> strategies() {
  std::vector<StrategyRow> rows = {
      {"autoregressive", true, [](LanguageModel& target, const LogitTable&) {
         return std::make_unique<AutoregressiveDecoding>(target);
       }}};
  for (const DrafterRow& drafter : drafters()) {
    for (const VerifierRow& verifier : verifiers()) {
      for (const ShapeRow& shape : shapes()) {
        if (verifier.trees || !(drafter.trees || shape.make()->branches())) {
          rows.push_back(speculative_row(drafter, verifier, shape));
        }
      }
    }
  }
  for (const DrafterRow& drafter : tree_lookups()) {
    for (const VerifierRow& verifier : verifiers()) {
      if (verifier.trees) {
        rows.push_back(speculative_tree_row(drafter, verifier));
      }
    }
  }
  return rows;
}

// ---- What is asked of them --------------------------------------------------------------------

struct SampledCase {
  std::string name;
  int64_t vocab = 3;
  Task task;
};

const std::vector<std::string> kPieces = {"a", "b", "ab", "ba"};
const std::vector<std::string> kPiecesAndEnd = {"a", "b", "ab", ""};

const LetterTokenizer& letters() {
  static const LetterTokenizer tokenizer(kPieces);
  return tokenizer;
}

/// Free, forced and forbidden places, a text that is cut in several ways, and ends.
const std::shared_ptr<const CompiledGrammar>& letter_pairs() {
  static const auto grammar = letter_grammar(kPiecesAndEnd, "a(b(a|b)|aab)(ab|b){0,40}");
  return grammar;
}

/// The same texts, where "ab" is never cut.
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
    // Of four tokens there are many outcomes to enumerate.
    const int64_t tokens = constraint.forced ? 4 : 3;
    cases.push_back(
        {name, 4, task({.temperature = 1.0}, {.max_new_tokens = tokens, .end_ids = {3}})});
    cases.back().task.tokenizer = &with_end;
    cases.back().task.constraint = constraint;
  }
  return cases;
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
    const SequenceDistribution expected = reference_distribution(target_table, asked.task);
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
                    {.temperature = 0.0, .repetition_penalty = seed == 3 ? 1.1 : 1.0},
                    {.max_new_tokens = 40, .end_ids = {static_cast<Token>(seed)}}};
    CounterRandomness random(seed);
    const Generation generation =
        GetParam().make(target, drafter_table)->generate(task.request(random));
    EXPECT_EQ(generation.tokens, greedy_tokens(target_table, task)) << "seed " << seed;
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

INSTANTIATE_TEST_SUITE_P(All, PromiseTest, testing::ValuesIn(strategies()),
                         [](const auto& info) { return info.param.name; });

TEST(PromiseTest, SampledCountsFitTheDistribution) {
  constexpr int64_t kVocab = 3;
  const SampledCase asked = sampled_cases().front();
  const LogitTable target_table = random_table(kVocab, 21);
  FakeModel target(kVocab, target_table);
  SpeculativeDecoding decoding(
      target,
      std::make_unique<DraftModelDrafter>(
          draft_model(mixed_table(target_table, random_table(kVocab, 22), 0.7), target)),
      std::make_unique<RejectionVerifier>(), std::make_unique<ChainShape>(3));
  const SequenceDistribution distribution = reference_distribution(target_table, asked.task);
  const ChiSquare test = chi_square(sample_counts(decoding, asked.task, 4000, 2024), distribution);
  EXPECT_GT(test.p_value, 0.001) << "chi-square " << test.statistic << " of " << test.degrees;
}

}  // namespace
}  // namespace specdec
