#include <gtest/gtest.h>

#include <functional>

#include "decoders/analysis/sequence_distribution.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "tests/support/fake_model.h"
#include "tests/support/letter_grammar.h"

namespace specdec {
namespace {

Generation generate_under(const std::function<Generation(const Request&)>& generate, bool grammar) {
  Task task{.prompt = {1, 2, 1}, .stop = {.max_new_tokens = 8, .end_ids = {3}}};
  if (grammar) {
    task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(a|b)aaa(a|b)bb(a|b)*");
  }
  CounterRandomness random(1);
  return generate(task.request(random));
}

void expect_mask_times(const std::function<Generation(const Request&)>& generate) {
  for (const StepStatistics& step : generate_under(generate, true).steps) {
    EXPECT_GT(step.mask_seconds, 0.0);
    EXPECT_LE(step.mask_seconds, step.draft_seconds + step.other_seconds + step.verify_seconds);
  }
  for (const StepStatistics& step : generate_under(generate, false).steps) {
    EXPECT_EQ(step.mask_seconds, 0.0);
  }
}

TEST(MaskSecondsTest, StepsOfPlainDecodingAndBeamSearchHaveTheirMasksTime) {
  FakeModel model(4, random_table(4, 1));
  expect_mask_times(
      [&](const Request& request) { return AutoregressiveDecoding(model).generate(request); });
  expect_mask_times([&](const Request& request) {
    return BeamSearchDecoding(model, {.num_beams = 2, .num_return_sequences = 1}).generate(request);
  });
}

}  // namespace
}  // namespace specdec
