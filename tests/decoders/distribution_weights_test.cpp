// Rules of a request's own on the target's distributions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "docs/examples/no_repeat_ngram.h"
#include "tests/support/error_message.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kRuleVocab = 6;
const std::vector<Token> kRulePrompt = {1, 2, 3, 1, 2};

/// Forbids the newest token of the output, and doubles the weight of token 4.
class NoneTwiceRule final : public DistributionWeights {
 public:
  void weigh(TokenSpan output, std::span<double> distribution) const override {
    distribution[4] *= 2.0;
    if (!output.empty()) {
      distribution[static_cast<size_t>(output.back())] = 0.0;
    }
  }
};

/// The rule as logits.
LogitTable none_twice(const LogitTable& table) {
  return [table](TokenSpan history) {
    std::vector<double> logits = table(history);
    logits[4] += std::log(2.0);
    if (history.size() > kRulePrompt.size()) {
      logits[static_cast<size_t>(history.back())] = -std::numeric_limits<double>::infinity();
    }
    return logits;
  };
}

class ForbidAll final : public DistributionWeights {
 public:
  void weigh(TokenSpan output, std::span<double> distribution) const override {
    if (output.size() == 2) {
      std::fill(distribution.begin(), distribution.end(), 0.0);
    }
  }
};

struct RuleRun {
  double temperature = 0.0;
  bool speculative = false;
};

Generation run_rule(const LogitTable& table, const DistributionWeights* weights,
                    const RuleRun& options) {
  FakeModel target(kRuleVocab, table);
  CounterRandomness random(1);
  const Request request{.prompt = kRulePrompt,
                        .sampling = {.temperature = options.temperature},
                        .stop = {.max_new_tokens = 24},
                        .random = random,
                        .weights = weights};
  if (!options.speculative) {
    return AutoregressiveDecoding(target).generate(request);
  }
  std::unique_ptr<Verifier> verifier = std::make_unique<ExactMatchVerifier>();
  if (options.temperature > 0.0) {
    verifier = std::make_unique<RejectionVerifier>();
  }
  return SpeculativeDecoding(target,
                             std::make_unique<PromptLookupDrafter>(PromptLookupOptions{1, 4}),
                             std::move(verifier), std::make_unique<FixedDraftLength>(3))
      .generate(request);
}

TEST(DistributionWeightsTest, ARuleIsTheSameAsLogitsThatFollowIt) {
  const LogitTable table = random_table(kRuleVocab, 3);
  const NoneTwiceRule rule;
  for (const bool speculative : {false, true}) {
    for (const double temperature : {0.0, 1.0}) {
      const RuleRun options{.temperature = temperature, .speculative = speculative};
      const Generation found = run_rule(table, &rule, options);
      const Generation wanted = run_rule(none_twice(table), nullptr, options);
      EXPECT_EQ(found.tokens, wanted.tokens) << temperature << speculative;
      EXPECT_NE(found.tokens, run_rule(table, nullptr, options).tokens);
      ASSERT_EQ(found.gaps.size(), wanted.gaps.size());
      for (size_t i = 0; i < found.gaps.size(); ++i) {
        EXPECT_NEAR(found.gaps[i], wanted.gaps[i], 1e-9);
      }
    }
  }
}

TEST(DistributionWeightsTest, GreedySpeculationKeepsTheTokensOfPlainDecoding) {
  const NoneTwiceRule rule;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const LogitTable table = random_table(kRuleVocab, seed);
    const Generation drafted = run_rule(table, &rule, {.speculative = true});
    EXPECT_EQ(drafted.tokens, run_rule(table, &rule, {}).tokens) << seed;
  }
}

TEST(DistributionWeightsTest, ForbiddingEveryTokenIsAnError) {
  const ForbidAll rule;
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_THAT(error_message<Error>([&] {
                  run_rule(random_table(kRuleVocab, 1), &rule, {.temperature = temperature});
                }),
                testing::AllOf(HasSubstr("the target after 7 tokens"),
                               HasSubstr("leave no token any mass")));
  }
}

/// Gives token 2 this weight.
class OneWeight final : public DistributionWeights {
 public:
  explicit OneWeight(double weight) : weight_(weight) {}
  void weigh(TokenSpan /*output*/, std::span<double> distribution) const override {
    distribution[2] *= weight_;
  }

 private:
  double weight_;
};

TEST(DistributionWeightsTest, WeightsThatAreNoneAreNamed) {
  for (const double weight :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const OneWeight rule(weight);
    for (const double temperature : {0.0, 1.0}) {
      EXPECT_THAT(error_message<Error>([&] {
                    run_rule(random_table(kRuleVocab, 1), &rule, {.temperature = temperature});
                  }),
                  HasSubstr("made the probability of token 2 "))
          << weight;
    }
  }
}

TEST(DistributionWeightsTest, BeamSearchTakesNone) {
  FakeModel target(kRuleVocab, random_table(kRuleVocab, 1));
  const NoneTwiceRule rule;
  CounterRandomness random(1);
  const Request request{.prompt = kRulePrompt,
                        .sampling = {},
                        .stop = {.max_new_tokens = 4},
                        .random = random,
                        .weights = &rule};
  BeamSearchDecoding beams(target, {.num_beams = 2, .num_return_sequences = 2});
  EXPECT_THAT(error_message<ConfigError>([&] { beams.generate(request); }),
              HasSubstr("leave weights out"));
}

TEST(NoRepeatRuleTest, ForbidsWhatWouldCompleteAnNgramTwice) {
  const auto weighed = [](size_t n, const std::vector<Token>& output) {
    std::vector<double> row(4, 0.25);
    NoRepeatRule(n, nullptr).weigh(output, row);
    return row;
  };
  const std::vector<double> all(4, 0.25);
  EXPECT_EQ(weighed(2, {}), all);
  EXPECT_EQ(weighed(2, {1}), all);
  EXPECT_EQ(weighed(2, {1, 2, 1}), (std::vector<double>{0.25, 0.25, 0.0, 0.25}));
  EXPECT_EQ(weighed(3, {0, 1, 2, 0, 1}), (std::vector<double>{0.25, 0.25, 0.0, 0.25}));
  EXPECT_EQ(weighed(3, {0, 1, 2, 3, 1}), all);
  EXPECT_EQ(weighed(1, {0, 2}), (std::vector<double>{0.0, 0.25, 0.0, 0.25}));
  EXPECT_EQ(weighed(1, {0, 1, 2, 3}), all) << "none is left, so none is forbidden";
}

TEST(NoRepeatRuleTest, KeepsTheWeightsThatTheRequestHas) {
  const NoneTwiceRule other;
  std::vector<double> row(5, 0.2);
  NoRepeatRule(2, &other).weigh(std::vector<Token>{1, 2, 1}, row);
  EXPECT_EQ(row, (std::vector<double>{0.2, 0.0, 0.0, 0.2, 0.4}));
}

}  // namespace
}  // namespace specdec
