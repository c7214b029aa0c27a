#include "decoders/beam_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/reference_beam_search.h"

namespace specdec {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Lt;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;

Generation search(LanguageModel& target, const Task& task, const BeamOptions& options) {
  CounterRandomness random(1);
  return BeamSearchDecoding(target, options).generate(task.request(random));
}

void expect_same(const std::vector<Hypothesis>& found, const std::vector<Hypothesis>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << "hypothesis " << i;
    EXPECT_NEAR(found[i].score, expected[i].score, 1e-9) << "hypothesis " << i;
  }
}

class BeamSearchReferenceTest : public testing::TestWithParam<EarlyStopping> {};

TEST_P(BeamSearchReferenceTest, EqualsThePlainlyWrittenSearch) {
  constexpr int64_t kVocab = 11;
  int ended_early = 0;
  for (const int64_t num_beams : {1, 2, 3, 5, 8}) {
    for (const double length_penalty : {-0.5, 0.0, 0.6, 1.0, 2.0}) {
      for (const uint64_t seed : {1U, 2U, 3U}) {
        const std::vector<Tokens> ends = {{}, {4}, {4, 7}};
        Task task{{3, 1, 4}, {}, {.max_new_tokens = 9, .end_ids = ends[seed % 3]}};
        task.sampling.repetition_penalty = seed == 2 ? 1.3 : 1.0;
        task.sampling.logit_bias = seed == 3 ? LogitBias{{2, 1.5}, {5, -2.0}} : LogitBias{};
        const BeamOptions options{num_beams, length_penalty, GetParam(), num_beams};
        const LogitTable table = random_table(kVocab, seed, 2, 1.0);
        FakeModel target(kVocab, table);
        SCOPED_TRACE(testing::Message()
                     << num_beams << " beams, penalty " << length_penalty << ", seed " << seed);
        const Generation generation = search(target, task, options);
        expect_same(generation.hypotheses, reference_beam_search(table, task, options));
        const Tokens& best = generation.hypotheses.front().tokens;
        EXPECT_EQ(generation.tokens, Tokens(best.begin() + 3, best.end()));
        ended_early += generation.steps.size() < 8 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(ended_early, 10) << "the rules for stopping early were not put to the test";
}

std::string name_of(const testing::TestParamInfo<EarlyStopping>& info) {
  return info.param == EarlyStopping::kFalse  ? "kFalse"
         : info.param == EarlyStopping::kTrue ? "kTrue"
                                              : "kNever";
}

INSTANTIATE_TEST_SUITE_P(All, BeamSearchReferenceTest,
                         testing::Values(EarlyStopping::kFalse, EarlyStopping::kTrue,
                                         EarlyStopping::kNever),
                         name_of);

TEST(BeamSearchTest, OneBeamIsGreedyDecoding) {
  constexpr int64_t kVocab = 12;
  const LogitTable table = random_table(kVocab, 5);
  FakeModel target(kVocab, table);
  const Task task{{3, 1}, {}, {.max_new_tokens = 20, .end_ids = {7}}};
  CounterRandomness random(1);
  const Generation greedy = AutoregressiveDecoding(target).generate(task.request(random));
  const Generation beam = search(target, task, {.num_beams = 1, .num_return_sequences = 1});
  EXPECT_EQ(beam.tokens, greedy.tokens);
  EXPECT_EQ(beam.stop_reason, greedy.stop_reason);
  EXPECT_EQ(beam.steps.size(), greedy.steps.size());
}

TEST(BeamSearchTest, AllBeamsShareAForward) {
  FakeModel target(9, random_table(9, 3));
  const Task task{{1, 2, 3}, {}, {.max_new_tokens = 5}};
  const Generation generation = search(target, task, {.num_beams = 4, .num_return_sequences = 2});
  EXPECT_EQ(target.forwards(), (std::vector<int64_t>{3, 4, 4, 4, 4}));
  EXPECT_EQ(generation.hypotheses.size(), 2U);
  EXPECT_GT(generation.hypotheses[0].score, generation.hypotheses[1].score);
  ASSERT_EQ(generation.steps.size(), 4U);
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.committed, 1);
    EXPECT_EQ(step.drafted, 0);
  }
  EXPECT_EQ(generation.stop_reason, StopReason::kMaxNewTokens);
}

/// A table with the same logits after every history.
LogitTable constant_table(std::vector<double> logits) {
  return [logits = std::move(logits)](TokenSpan) { return logits; };
}

TEST(BeamSearchTest, TiesGoToTheEarlierBeamAndTheLowerToken) {
  FakeModel target(4, constant_table({0.0, 0.0, 0.0, 0.0}));
  const Task task{{0}, {}, {.max_new_tokens = 2}};
  const Generation generation = search(target, task, {.num_beams = 3, .num_return_sequences = 3});
  EXPECT_EQ(generation.hypotheses[0].tokens, (Tokens{0, 0, 0}));
  EXPECT_EQ(generation.hypotheses[1].tokens, (Tokens{0, 0, 1}));
  EXPECT_EQ(generation.hypotheses[2].tokens, (Tokens{0, 0, 2}));
}

TEST(BeamSearchTest, FewerContinuationsThanBeams) {
  const double never = -std::numeric_limits<double>::infinity();
  FakeModel target(4, constant_table({0.0, never, never, 1.0}));
  const Task task{{0}, {}, {.max_new_tokens = 3}};
  const Generation generation = search(target, task, {.num_beams = 10, .num_return_sequences = 10});
  EXPECT_EQ(generation.hypotheses.size(), 8U) << "all 2^3 sequences, and none made up";
  EXPECT_EQ(generation.tokens, (Tokens{3, 3, 3}));
}

TEST(BeamSearchTest, TheContextEndsHypotheses) {
  FakeModel target(6, random_table(6, 5), 12);
  const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 40}};
  const Generation generation = search(target, task, {});
  EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(generation.tokens.size(), 8U);  // the newest token needs no place in the cache
}

TEST(BeamSearchTest, StopIdsEndHypothesesToo) {
  FakeModel target(6, constant_table({0.0, 0.0, 0.0, 5.0, 0.0, 0.0}));
  const Task task{{0}, {}, {.max_new_tokens = 8, .stop_ids = {3}}};
  const Generation generation = search(target, task, {});
  EXPECT_EQ(generation.stop_reason, StopReason::kStopId);
  EXPECT_EQ(generation.tokens, (Tokens{3}));
}

/// A task under a grammar over four tokens.
Task letters_task() {
  Task task{{0, 1, 2}, {}, {.max_new_tokens = 9, .end_ids = {3}}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(abab|ba(a|b)?|aab)");
  return task;
}

/// Every cut of every text of the task's grammar, with the model's own log-probability.
void add_texts(const LogitTable& table, const Task& task, const GrammarMatcher& place,
               const Tokens& tokens, double log_prob, std::vector<Hypothesis>& found) {
  if (place.can_only_end()) {
    found.push_back({tokens, log_prob});
    return;
  }
  const std::vector<double> logits = table(tokens);
  std::vector<double> distribution(logits.size());
  target_distribution(std::span<const double>(logits), tokens, {.temperature = 1.0}, distribution);
  for (const Token token : place.mask().tokens()) {
    GrammarMatcher next = place;
    ASSERT_TRUE(next.accept(token));
    Tokens longer = tokens;
    longer.push_back(token);
    add_texts(table, task, next, longer,
              log_prob + std::log(distribution[static_cast<size_t>(token)]), found);
  }
}

TEST(BeamSearchTest, UnderAGrammarItRanksItsTextsByTheModelsProbability) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    const LogitTable table = random_table(4, seed);
    FakeModel target(4, table);
    const Task task = letters_task();
    std::vector<Hypothesis> expected;
    add_texts(table, task, GrammarMatcher(task.constraint.grammar), task.prompt, 0.0, expected);
    std::sort(expected.begin(), expected.end(),
              [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    const auto all = static_cast<int64_t>(expected.size());
    ASSERT_GT(all, 8);
    const Generation generation = search(target, task,
                                         {.num_beams = all,
                                          .length_penalty = 0.0,
                                          .early_stopping = EarlyStopping::kNever,
                                          .num_return_sequences = all});
    expect_same(generation.hypotheses, expected);
    EXPECT_NE(generation.stop_reason, StopReason::kMaxNewTokens);
  }
}

TEST(BeamSearchTest, AGrammarOfALargerVocabularyIsRefused) {
  FakeModel target(3, random_table(3, 5));
  EXPECT_THAT([&] { search(target, letters_task(), {}); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("compiled for a vocabulary of 4 tokens, and the model has 3")));
}

TEST(BeamSearchTest, AGrammarOfASmallerVocabularyForbidsTheRest) {
  FakeModel target(6, constant_table({0.0, 0.0, 0.0, 0.0, 9.0, 9.0}));
  for (const Hypothesis& hypothesis : search(target, letters_task(), {}).hypotheses) {
    EXPECT_THAT(hypothesis.tokens, Each(Lt(4)));
  }
}

TEST(BeamSearchTest, PromptTokensBeyondTheVocabularyAreRefused) {
  FakeModel target(6, random_table(6, 5));
  for (const double penalty : {1.0, 1.5}) {
    EXPECT_THAT(
        [&] {
          search(target, {{0, 6}, {.repetition_penalty = penalty}}, {});
        },
        ThrowsMessage<Error>(HasSubstr("token 6 at position 1 is outside")));
  }
}

TEST(BeamSearchTest, StreamsOnceTheBestIsKnown) {
  FakeModel target(6, random_table(6, 5));
  const Task task{{0}, {}, {.max_new_tokens = 4}};
  CounterRandomness random(1);
  std::vector<Tokens> streamed;
  Request request = task.request(random);
  request.on_tokens = [&](TokenSpan tokens) {
    streamed.emplace_back(tokens.begin(), tokens.end());
  };
  const Generation generation = BeamSearchDecoding(target, {}).generate(request);
  EXPECT_EQ(streamed, (std::vector<Tokens>{{}, {}, {}, generation.tokens}));
}

TEST(BeamSearchTest, RefusesWhatCannotWork) {
  FakeModel target(6, random_table(6, 5));
  const auto refused = [&](const Task& task, const std::string& why) {
    EXPECT_THAT([&] { search(target, task, {}); }, ThrowsMessage<ConfigError>(HasSubstr(why)));
  };
  refused({{0}, {.temperature = 0.5}}, "temperature is 0.5");
  refused({{0}, {}, {.stop_strings = {"x"}}}, "stop_strings");
  refused({{0}, {}, {.max_new_tokens = 0}}, "max_new_tokens is 0");
  const auto bad = [&](const BeamOptions& options, const std::string& why) {
    EXPECT_THAT([&] { BeamSearchDecoding(target, options); },
                ThrowsMessage<ConfigError>(HasSubstr(why)));
  };
  bad({.num_beams = 0}, "num_beams is 0");
  bad({.num_beams = 2, .num_return_sequences = 3}, "from 1 to num_beams (2)");
  bad({.length_penalty = std::nan("")}, "length_penalty");
  FakeModel broken(2, constant_table({0.0, std::nan("")}));
  EXPECT_THAT([&] { search(broken, {{0}}, {}); }, ThrowsMessage<Error>(HasSubstr("NaN")));
  const double infinity = std::numeric_limits<double>::infinity();
  Task task{{0}, {}, {.max_new_tokens = 2}, nullptr, {letter_grammar({"a", ""}, "a")}};
  task.sampling.logit_bias = {{0, -infinity}};
  FakeModel forbidden(2, constant_table({0.0, 1.0}));
  EXPECT_THAT([&] { search(forbidden, task, {}); },
              ThrowsMessage<Error>(HasSubstr("all that the grammar allows")));
  FakeModel infinite(2, constant_table({0.0, infinity}));
  EXPECT_THAT([&] { search(infinite, {{0}}, {}); }, ThrowsMessage<Error>(HasSubstr("+inf")));
}

}  // namespace
}  // namespace specdec
