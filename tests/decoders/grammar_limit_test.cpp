// Where a grammar's limits end the output: after the same tokens however they were drafted.
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/speculative.h"
#include "decoders/speculative_beam.h"
#include "decoders/verifiers/exact_match.h"
#include "grammar/compiled_grammar.h"
#include "tests/support/fake_model.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

const std::vector<std::string_view> kLimitPieces = {"{", "\"", "a",    "b",    ":", "1",
                                                    "}", ",",  "ab\"", "\":1", ""};
constexpr int64_t kLimitVocab = 11;

/// Objects of any names, whose texts need ever more states.
Grammar limited_grammar(uint64_t max_states) {
  return compile_json_schema(
      std::make_shared<GrammarVocabulary>(kLimitPieces, std::vector<Token>{10}),
      R"({"type": "object", "additionalProperties": {"const": 1}})", {},
      {.max_states = max_states});
}

/// Likes letters, and the end least.
LogitTable letters_table(uint64_t seed) {
  return [table = random_table(kLimitVocab, seed, 3)](TokenSpan history) {
    std::vector<double> logits = table(history);
    logits[2] += 1.0;
    logits[3] += 1.0;
    logits[6] -= 2.0;
    return logits;
  };
}

Task limited_task(const Grammar& grammar) {
  Task task{.prompt = {2}, .stop = {.max_new_tokens = 60, .end_ids = {10}}};
  task.constraint.grammar = grammar;
  return task;
}

template <class Decoding>
Generation decode(Decoding&& decoding, const Task& task) {
  CounterRandomness random(1);
  return decoding.generate(task.request(random));
}

SpeculativeDecoding speculative(LanguageModel& target, const LogitTable& table, bool tree) {
  auto drafter =
      std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kLimitVocab, table, 120));
  std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(4);
  if (tree) {
    shape = std::make_unique<DynamicTreeShape>(DynamicTreeOptions{});
  }
  return SpeculativeDecoding(target, std::move(drafter), std::make_unique<ExactMatchVerifier>(),
                             std::move(shape));
}

TEST(GrammarLimitTest, DraftsChangeNothing) {
  int limited = 0;
  int whole = 0;
  for (uint64_t states = 1; states < 500; states += states < 40 ? 3 : 37) {
    for (const uint64_t seed : {1U, 2U, 3U}) {
      const LogitTable table = letters_table(seed);
      FakeModel target(kLimitVocab, table, 120);
      const Generation plain =
          decode(AutoregressiveDecoding(target), limited_task(limited_grammar(states)));
      limited += plain.stop_reason == StopReason::kGrammarLimit ? 1 : 0;
      whole += plain.stop_reason == StopReason::kGrammarLimit ? 0 : 1;
      const Grammar shared = limited_grammar(states);
      for (const bool tree : {false, true, false}) {  // the last with a grammar that is used up
        const LogitTable similar = mixed_table(table, random_table(kLimitVocab, 9), 0.3);
        const Generation drafted = decode(speculative(target, similar, tree), limited_task(shared));
        EXPECT_EQ(drafted.tokens, plain.tokens) << states << " states, seed " << seed;
        EXPECT_EQ(drafted.stop_reason, plain.stop_reason) << states << " states, seed " << seed;
        EXPECT_EQ(drafted.log_allowed, plain.log_allowed) << states << " states, seed " << seed;
      }
    }
  }
  EXPECT_GT(limited, 15);
  EXPECT_GT(whole, 5);
}

TEST(GrammarLimitTest, NothingIsDrawnWithoutAMask) {
  FakeModel target(kLimitVocab, letters_table(4), 120);
  Task task = limited_task(limited_grammar(1));
  for (const double temperature : {0.0, 1.0}) {
    task.sampling.temperature = temperature;
    const Generation generation = decode(AutoregressiveDecoding(target), task);
    EXPECT_EQ(generation.stop_reason, StopReason::kGrammarLimit);
    EXPECT_TRUE(generation.tokens.empty());
    EXPECT_TRUE(generation.log_allowed.empty());
  }
}

TEST(GrammarLimitTest, BeamsEndWhereTheirGrammarDoes) {
  int limited = 0;
  for (uint64_t states = 1; states < 300; states += 13) {
    FakeModel target(kLimitVocab, letters_table(states), 120);
    const BeamOptions options{.num_beams = 3, .num_return_sequences = 3};
    const Generation plain =
        decode(BeamSearchDecoding(target, options), limited_task(limited_grammar(states)));
    limited += plain.stop_reason == StopReason::kGrammarLimit ? 1 : 0;
    auto drafter = std::make_unique<DraftModelDrafter>(
        std::make_unique<FakeModel>(kLimitVocab, letters_table(states), 120));
    const Generation drafted =
        decode(SpeculativeBeamSearch(target, std::move(drafter), {.beams = options}),
               limited_task(limited_grammar(states)));
    EXPECT_EQ(drafted.tokens, plain.tokens) << states;
    EXPECT_EQ(drafted.stop_reason, plain.stop_reason) << states;
    EXPECT_EQ(drafted.hypotheses.size(), plain.hypotheses.size()) << states;
  }
  EXPECT_GT(limited, 3);
}

}  // namespace
}  // namespace specdec
