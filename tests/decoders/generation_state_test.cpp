// Generations that go on from a state: the same tokens as without a pause, and files that were
// changed are refused.
#include "decoders/generation_state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/snapshot_error.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/decoders/promise_rows.h"
#include "tests/support/error_message.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<Token>;
using Weights = std::shared_ptr<const TransformerWeights>;

constexpr int64_t kStateVocab = 4;

GenerationState begin_state(const Tokens& prompt, double temperature, uint64_t seed = 7) {
  GenerationState state;
  state.model = "tiny";
  state.prompt = prompt;
  state.sampling.temperature = temperature;
  state.seed = seed;
  return state;
}

struct Paused {};

/// Runs a state until it has `total` tokens of output. `pause`: throws Paused after the step in
/// which there are as many, as Ctrl-C would.
Generation run(GenerationState& state, DecodingStrategy& strategy, LanguageModel& target,
               int64_t total, const Constraint& constraint = {},
               int64_t pause = std::numeric_limits<int64_t>::max()) {
  PrefixStore store(int64_t{1} << 30U);
  if (state.cached.snapshot != nullptr) {
    check_target(state, target);
    store.insert(std::move(state.cached));
  }
  CounterRandomness random = state.randomness();
  const Tokens resumed = state.output;
  Request request{.prompt = state.prompt,
                  .sampling = state.sampling,
                  .stop = {.max_new_tokens = total},
                  .random = random,
                  .constraint = constraint,
                  .resumed = resumed,
                  .prefixes = &store};
  request.on_tokens = [&](TokenSpan tokens) {
    state.output.insert(state.output.end(), tokens.begin(), tokens.end());
    if (std::ssize(state.output) >= pause) {
      throw Paused();
    }
  };
  Generation generation;
  try {
    generation = strategy.generate(request);
  } catch (const Paused&) {
  }
  keep_cache(state, target);
  return generation;
}

GenerationState through_bytes(const GenerationState& state) {
  const std::string bytes = state_bytes(state);
  return parse_state(std::as_bytes(std::span(bytes)), "state");
}

struct StateCase {
  std::string name;
  std::function<Weights()> weights;
  KvFormat cache = KvFormat::kNative;
  int64_t window_slack = 0;
};

void PrintTo(const StateCase& one, std::ostream* out) { *out << one.name; }

class StateTest : public testing::TestWithParam<StateCase> {
 protected:
  std::unique_ptr<TransformerModel> target() const {
    return std::make_unique<TransformerModel>(
        weights_, paged_kv(4, GetParam().cache, 0, GetParam().window_slack));
  }
  Weights weights_ = GetParam().weights();
};

TEST_P(StateTest, GoesOnWithTheSameTokensAndBits) {
  Constraint grammar;
  grammar.grammar = letter_grammar({"a", "b", "ab", ""}, "(a|b)*abba(a|b)*bbbaaaa(a|b)*");
  for (const double temperature : {0.0, 1.2}) {
    for (const Constraint& constraint : {Constraint(), grammar}) {
      const auto whole_target = target();
      AutoregressiveDecoding whole_decoding(*whole_target);
      GenerationState whole = begin_state({1, 0, 2, 2, 1}, temperature);
      run(whole, whole_decoding, *whole_target, 24, constraint);
      for (const int64_t pause : {1, 2, 7, 23}) {
        GenerationState state = begin_state({1, 0, 2, 2, 1}, temperature);
        const auto first = target();
        AutoregressiveDecoding first_decoding(*first);
        run(state, first_decoding, *first, pause, constraint);
        const int64_t paused = std::ssize(state.output);
        ASSERT_EQ(paused, std::min(pause, std::ssize(whole.output)));  // the grammar may end it
        state = through_bytes(state);
        const auto second = target();  // as in another process
        AutoregressiveDecoding decoding(*second);
        const Generation rest = run(state, decoding, *second, 24, constraint);
        EXPECT_EQ(state.output, whole.output) << pause << " tokens, temperature " << temperature;
        EXPECT_EQ(std::ssize(rest.tokens) + paused, std::ssize(whole.output));
        for (int64_t layer = 0; layer < second->internals()->num_layers(); ++layer) {
          // Numbers that a window has left behind are NaN in both.
          const auto keys = [layer](TransformerModel& model) {
            return model.internals()->key_values(layer, 0).first.nan_to_num(-1e9);
          };
          EXPECT_TRUE(at::equal(keys(*second), keys(*whole_target)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, StateTest,
    testing::Values(
        StateCase{"gemma3", [] { return tiny_gemma(kStateVocab, at::kFloat); }},
        StateCase{"gemma3_bf16_pages", [] { return tiny_gemma(kStateVocab, at::kFloat); },
                  KvFormat::kBFloat16},
        StateCase{"gemma3_float16_pages", [] { return tiny_gemma(kStateVocab, at::kFloat); },
                  KvFormat::kFloat16},
        StateCase{"gemma3_q8_pages", [] { return tiny_gemma(kStateVocab, at::kFloat); },
                  KvFormat::kQ8},
        StateCase{"gemma3_window_slack", [] { return tiny_gemma(kStateVocab, at::kFloat); },
                  KvFormat::kNative, 2},
        StateCase{"gemma3_int8", [] { return tiny_gemma(kStateVocab, at::kChar); }},
        StateCase{"gemma3_float64", [] { return tiny_gemma(kStateVocab); }},
        StateCase{"gemma4_e", [] { return tiny_gemma4("e", kStateVocab, at::kFloat); }}),
    [](const testing::TestParamInfo<StateCase>& info) { return info.param.name; });

std::unique_ptr<DecodingStrategy> speculative(LanguageModel& target,
                                              std::unique_ptr<Drafter> drafter) {
  return std::make_unique<SpeculativeDecoding>(target, std::move(drafter),
                                               std::make_unique<RejectionVerifier>(),
                                               std::make_unique<FixedDraftLength>(3));
}

TEST(GenerationStateTest, SampledSpeculationPausedBetweenStepsGoesOnWithTheSameTokens) {
  const Weights weights = tiny_gemma(kStateVocab, at::kFloat);
  const Weights other = tiny_gemma(kStateVocab, at::kFloat, 2);
  const auto make = [&](LanguageModel& target, bool model) {
    return speculative(target, model ? std::unique_ptr<Drafter>(std::make_unique<DraftModelDrafter>(
                                           std::make_unique<TransformerModel>(other, paged_kv(4))))
                                     : std::make_unique<PromptLookupDrafter>(
                                           PromptLookupOptions{.min_ngram = 1, .max_ngram = 2}));
  };
  for (const bool model : {false, true}) {
    TransformerModel whole_target(weights, paged_kv(4));
    GenerationState whole = begin_state({1, 2, 1, 2}, 1.0);
    run(whole, *make(whole_target, model), whole_target, 40);
    for (const int64_t pause : {1, 5, 20, 33}) {
      GenerationState state = begin_state({1, 2, 1, 2}, 1.0);
      TransformerModel first(weights, paged_kv(4));
      run(state, *make(first, model), first, 40, {}, pause);
      ASSERT_GE(std::ssize(state.output), pause);
      ASSERT_EQ(std::ssize(state.cached.tokens), std::ssize(state.text()) - 1);
      state = through_bytes(state);
      TransformerModel second(weights, paged_kv(4));
      run(state, *make(second, model), second, 40);
      EXPECT_EQ(state.output, whole.output) << pause;
    }
  }
}

class ResumedPromiseTest : public testing::TestWithParam<StrategyRow> {};

TEST_P(ResumedPromiseTest, GreedyGenerationsGoOnWithTheSameTokens) {
  const LogitTable table = random_table(3, 1);
  FakeModel target(3, table);
  const auto strategy = GetParam().make(target, mixed_table(table, random_table(3, 2), 0.5));
  GenerationState whole = begin_state({0, 1, 2}, 0.0);
  run(whole, *strategy, target, 20);
  for (const int64_t pause : {1, 6}) {
    GenerationState state = begin_state({0, 1, 2}, 0.0);
    run(state, *strategy, target, pause);
    state = through_bytes(state);
    run(state, *strategy, target, 20);
    EXPECT_EQ(state.output, whole.output);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ResumedPromiseTest, testing::ValuesIn(promise_rows()),
                         [](const testing::TestParamInfo<StrategyRow>& info) {
                           return info.param.name;
                         });

/// A state with some of everything.
GenerationState full_state(TransformerModel& target) {
  GenerationState state = begin_state({1, 2, 3}, 0.7, std::numeric_limits<uint64_t>::max());
  state.sampling.top_k = 3;
  state.sampling.repetition_penalty = 1.1;
  state.sampling.logit_bias = {{2, 0.25}, {3, -INFINITY}};
  state.prompt_number = 5;
  state.repeat = 6;
  state.grammar = "0123";
  AutoregressiveDecoding decoding(target);
  run(state, decoding, target, 4);
  return state;
}

class StateFileTest : public testing::Test {
 protected:
  Weights weights_ = tiny_gemma(kStateVocab, at::kFloat);
  TransformerModel target_{weights_, paged_kv(4)};
  GenerationState state_ = full_state(target_);
};

TEST_F(StateFileTest, HoldsAllOfAState) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "state";
  write_state(state_, file);
  const GenerationState read = read_state(file);
  EXPECT_EQ(read.model, state_.model);
  EXPECT_EQ(read.prompt, state_.prompt);
  EXPECT_EQ(read.output, state_.output);
  EXPECT_EQ(read.sampling.temperature, 0.7);
  EXPECT_EQ(read.sampling.top_k, 3);
  EXPECT_EQ(read.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(read.sampling.logit_bias, state_.sampling.logit_bias);
  EXPECT_EQ(read.seed, state_.seed);
  EXPECT_EQ(read.prompt_number, 5U);
  EXPECT_EQ(read.repeat, 6U);
  EXPECT_EQ(read.grammar, "0123");
  EXPECT_EQ(read.cached.key, target_.snapshots()->kv_key());
  EXPECT_EQ(read.cached.tokens, (Tokens{1, 2, 3, read.output[0], read.output[1], read.output[2]}));
  const auto layers = read.cached.snapshot->copy();
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_TRUE(at::equal(layers[1].values, target_.internals()->key_values(1, 0).second));
  EXPECT_EQ(state_bytes(read), state_bytes(state_));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST_F(StateFileTest, AnyChangedOrMissingByteIsNoticed) {
  const std::string bytes = state_bytes(state_);
  const auto parse = [](const std::string& text) {
    (void)parse_state(std::as_bytes(std::span(text)), "state");
  };
  parse(bytes);
  for (size_t i = 0; i < bytes.size(); i += i < 600 ? 1 : 37) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    if (i < 12) {
      EXPECT_THROW(parse(changed), SnapshotVersionError) << i;
    } else {
      EXPECT_THROW(parse(changed), SnapshotDamagedError) << i;
    }
    if (i >= 8) {
      EXPECT_THROW(parse(bytes.substr(0, i)), SnapshotDamagedError) << i;
    }
  }
  EXPECT_THROW(parse(bytes + "x"), SnapshotDamagedError);
  EXPECT_THROW(parse(""), SnapshotVersionError);
  EXPECT_THROW(parse("{\"tokens\": []}"), SnapshotVersionError);
  std::string newer = bytes;
  newer[8] = 3;
  EXPECT_THAT(error_message<SnapshotVersionError>([&] { parse(newer); }), HasSubstr("in format 3"));
}

TEST_F(StateFileTest, AnotherModelIsRefused) {
  TransformerModel other(tiny_gemma(kStateVocab, at::kFloat, 2), paged_kv(4));
  EXPECT_THROW(check_target(state_, other), SnapshotModelError);
  TransformerModel half(weights_, paged_kv(4, KvFormat::kBFloat16));
  EXPECT_THAT(error_message<SnapshotModelError>([&] { check_target(state_, half); }),
              HasSubstr("'tiny'"));
  FakeModel fake(kStateVocab, random_table(kStateVocab, 1));
  EXPECT_THROW(check_target(state_, fake), SnapshotModelError);
}

TEST(GenerationStateTest, RequestsThatCannotGoOnAreRefused) {
  FakeModel target(kStateVocab, random_table(kStateVocab, 1));
  BeamSearchDecoding beams(target, {.num_beams = 2, .num_return_sequences = 2});
  GenerationState state = begin_state({1}, 0.0);
  state.output = {2};
  EXPECT_FALSE(beams.can_resume());
  EXPECT_THROW(run(state, beams, target, 8), ConfigError);

  Constraint grammar;
  grammar.grammar = letter_grammar({"a", "b", "ab", ""}, "aab");
  AutoregressiveDecoding decoding(target);
  state.output = {0, 1};
  EXPECT_THAT(error_message<ConfigError>([&] { run(state, decoding, target, 8, grammar); }),
              HasSubstr("forbids token 1 of the output so far, at position 2"));
}

TEST(GenerationStateTest, AFinishedTextGetsNothingMore) {
  FakeModel target(kStateVocab, random_table(kStateVocab, 1));
  AutoregressiveDecoding decoding(target);
  GenerationState state = begin_state({1}, 0.0);
  run(state, decoding, target, 5);
  const Generation rest = run(state, decoding, target, 5);
  EXPECT_TRUE(rest.tokens.empty());
  EXPECT_EQ(rest.stop_reason, StopReason::kMaxNewTokens);
}

}  // namespace
}  // namespace specdec
