#include "decoders/autoregressive.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/fake_model.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

TEST(AutoregressiveTest, RunsOneForwardAToken) {
  FakeModel model(5, random_table(5, 1));
  AutoregressiveDecoding decoding(model);
  const Task task{.prompt = {1, 2, 3}, .stop = {.max_new_tokens = 6}};
  CounterRandomness random(1);
  const Generation generation = decoding.generate(task.request(random));
  EXPECT_EQ(generation.tokens.size(), 6U);
  EXPECT_EQ(model.forwards(), (std::vector<int64_t>{3, 1, 1, 1, 1, 1}));
  ASSERT_EQ(generation.steps.size(), 5U);
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.drafted, 0);
    EXPECT_EQ(step.accepted, 0);
    EXPECT_EQ(step.committed, 1);
  }
  EXPECT_EQ(model.length(), 3 + 6 - 1) << "the newest token is not cached";
}

TEST(AutoregressiveTest, HasNoDrafterToTrace) {
  FakeModel model(4, random_table(4, 1));
  AutoregressiveDecoding decoding(model);
  const Task task{.prompt = {1, 2, 1}, .stop = {.max_new_tokens = 8}};
  CounterRandomness random(1);
  const std::vector<Token> output = {1, 2, 3};
  EXPECT_FALSE(decoding.trace(task.request(random), output, {}).has_value());
  EXPECT_TRUE(model.forwards().empty()) << "no work for nothing";
}

TEST(AutoregressiveTest, ForcedTokensShareAForward) {
  const auto generate = [](bool forced, std::vector<int64_t>& forwards) {
    FakeModel model(4, random_table(4, 1));
    AutoregressiveDecoding decoding(model);
    Task task{.prompt = {1, 2, 1}, .stop = {.max_new_tokens = 8, .end_ids = {3}}};
    task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(a|b)aaa(a|b)bb");
    task.constraint.forced = forced;
    CounterRandomness random(1);
    Generation generation = decoding.generate(task.request(random));
    forwards = model.forwards();
    EXPECT_EQ(generation.stop_reason, StopReason::kGrammarEnd);
    return generation;
  };
  std::vector<int64_t> alone;
  std::vector<int64_t> together;
  const Generation plain = generate(false, alone);
  const Generation forced = generate(true, together);
  EXPECT_EQ(plain.tokens, forced.tokens);
  EXPECT_EQ(alone.size(), plain.tokens.size()) << "one forward a token";
  EXPECT_LT(together.size(), alone.size());
  EXPECT_EQ(together.at(1), 3) << "the first token, and two of \"aaa\", which only \"a\" begins";
  EXPECT_EQ(forced.steps.front().by_freedom[static_cast<size_t>(Freedom::kForced)],
            (DraftCounts{2, 2}));
  EXPECT_EQ(plain.log_allowed, forced.log_allowed);
}

/// A name that grows needs ever more states of the grammar.
TEST(AutoregressiveTest, GrammarLimitsEndTheOutput) {
  const std::vector<std::string_view> pieces = {"{", "\"", "a", ""};
  FakeModel model(
      4,
      [](TokenSpan) {
        return std::vector<double>{0.0, 1.0, 2.0, -1.0};
      },
      400);
  AutoregressiveDecoding decoding(model);
  Task task{.prompt = {2}, .stop = {.max_new_tokens = 300, .end_ids = {3}}};
  task.constraint.grammar =
      compile_json_schema(std::make_shared<GrammarVocabulary>(pieces, std::vector<Token>{3}),
                          R"({"type": "object"})", {}, {.max_states = 100});
  CounterRandomness random(1);
  const Generation generation = decoding.generate(task.request(random));
  EXPECT_EQ(generation.stop_reason, StopReason::kGrammarLimit);
  EXPECT_GT(generation.tokens.size(), 10U);
  EXPECT_LT(generation.tokens.size(), 150U);
}

TEST(AutoregressiveTest, SameSeedSameTokens) {
  FakeModel model(50, random_table(50, 1));
  AutoregressiveDecoding decoding(model);
  const Task task{.prompt = {1}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 20}};
  const auto tokens = [&](uint64_t seed) {
    CounterRandomness random(seed);
    return decoding.generate(task.request(random)).tokens;
  };
  EXPECT_EQ(tokens(1), tokens(1));
  EXPECT_NE(tokens(1), tokens(2));
}

TEST(AutoregressiveTest, RefusesPromptsThatDoNotFit) {
  FakeModel model(5, random_table(5, 1), 4);
  AutoregressiveDecoding decoding(model);
  CounterRandomness random(1);
  const Task empty{};
  EXPECT_THROW(decoding.generate(empty.request(random)), Error);
  const Task full{.prompt = {1, 1, 1, 1}};
  EXPECT_EQ(decoding.generate(full.request(random)).tokens.size(), 1U);
  const Task longer{.prompt = {1, 1, 1, 1, 1}};
  EXPECT_THROW(decoding.generate(longer.request(random)), Error);
}

}  // namespace
}  // namespace specdec
