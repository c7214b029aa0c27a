// Rules of a request's own on the target's distributions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "decoders/verifiers/synthetic.h"
#include "docs/examples/no_repeat_ngram.h"
#include "tests/support/error_message.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

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

/// Logits near enough to be told apart by their weights, below one that a bias makes so large that
/// no other has a probability.
TEST(DistributionWeightsTest, GreedyTokensAreRankedByLogitsAndLogWeights) {
  /// Forbids token 1, halves token 3.
  class Rule final : public DistributionWeights {
    void weigh(TokenSpan /*output*/, std::span<double> distribution) const override {
      distribution[1] = 0.0;
      distribution[3] *= 0.5;
    }
  };
  const Rule rule;
  FakeModel target(kRuleVocab, [](TokenSpan) {
    return std::vector<double>{0.0, 0.0, -3.0, -2.0 + 0.5, -2.0, -4.0};
  });
  CounterRandomness random(1);
  const Request request{.prompt = kRulePrompt,
                        .sampling = {.logit_bias = {{1, 1000.0}, {0, -1000.0}}},
                        .stop = {.max_new_tokens = 1},
                        .random = random,
                        .weights = &rule};
  const Generation found = AutoregressiveDecoding(target).generate(request);
  EXPECT_EQ(found.tokens, std::vector<Token>{4});
  ASSERT_EQ(found.gaps.size(), 1U);
  EXPECT_DOUBLE_EQ(found.gaps[0], std::log(2.0) - 0.5);
}

/// A rule that cannot answer after an output that it forbids: no token twice, of few tokens.
class StrictNoRepeat final : public DistributionWeights {
 public:
  void weigh(TokenSpan output, std::span<double> distribution) const override {
    std::vector<bool> seen(distribution.size(), false);
    for (const Token token : output) {
      if (seen[static_cast<size_t>(token)]) {
        throw std::logic_error("asked after a forbidden output");
      }
      seen[static_cast<size_t>(token)] = true;
      distribution[static_cast<size_t>(token)] = 0.0;
    }
  }
};

/// The same as logits.
LogitTable no_repeat(const LogitTable& table) {
  return [table](TokenSpan history) {
    std::vector<double> logits = table(history);
    for (const Token token : history.subspan(kRulePrompt.size())) {
      logits[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
    }
    return logits;
  };
}

/// Another strategy under a rule.
class RuledDecoding final : public DecodingStrategy {
 public:
  RuledDecoding(DecodingStrategy& inner, const DistributionWeights& rule)
      : inner_(inner), rule_(rule) {}
  Generation generate(const Request& request) override {
    Request own = request;
    own.weights = &rule_;
    return inner_.generate(own);
  }

 private:
  DecodingStrategy& inner_;
  const DistributionWeights& rule_;
};

std::unique_ptr<Verifier> verifier_called(const std::string& name) {
  if (name == "block") {
    return std::make_unique<BlockVerifier>();
  }
  if (name == "sample_match") {
    return std::make_unique<SampleMatchVerifier>();
  }
  return std::make_unique<RejectionVerifier>();
}

TEST(DistributionWeightsTest, NoVerifierAsksARuleAfterWhatItForbids) {
  constexpr int64_t kFew = 5;
  const StrictNoRepeat rule;
  for (const char* name : {"block", "rejection", "sample_match"}) {
    for (const bool drawn : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << drawn);
      const LogitTable table = random_table(kFew, 5);
      FakeModel target(kFew, table);
      std::unique_ptr<Drafter> drafter =
          std::make_unique<PromptLookupDrafter>(PromptLookupOptions{1, 3});
      if (drawn) {
        drafter = std::make_unique<MixedChainDrafter>(random_table(kFew, 8));
      }
      SpeculativeDecoding decoding(target, std::move(drafter), verifier_called(name),
                                   std::make_unique<FixedDraftLength>(2));
      RuledDecoding ruled(decoding, rule);
      const Task task{
          .prompt = kRulePrompt, .sampling = {.temperature = 0.9}, .stop = {.max_new_tokens = 4}};
      const Enumeration found = enumerate_outputs(ruled, task);
      EXPECT_LE(max_difference(found.distribution, reference_distribution(no_repeat(table), task)),
                kSameDistribution);
      EXPECT_GT(found.accepted, 0);
      EXPECT_LT(found.accepted, found.drafted);
    }
  }
}

TEST(DistributionWeightsTest, StatisticsAndGreedyDraftsAskForNothingForbidden) {
  const StrictNoRepeat rule;
  for (const double temperature : {0.0, 1.0}) {
    FakeModel target(kRuleVocab, random_table(kRuleVocab, 2));
    CounterRandomness random(3);
    std::unique_ptr<Verifier> verifier = std::make_unique<ExactMatchVerifier>();
    if (temperature > 0.0) {
      verifier = std::make_unique<BlockVerifier>();
    }
    SpeculativeDecoding decoding(target,
                                 std::make_unique<PromptLookupDrafter>(PromptLookupOptions{1, 4}),
                                 std::move(verifier), std::make_unique<FixedDraftLength>(3));
    const Generation generation = decoding.generate({.prompt = kRulePrompt,
                                                     .sampling = {.temperature = temperature},
                                                     .stop = {.max_new_tokens = 5},
                                                     .random = random,
                                                     .log_overlaps = true,
                                                     .weights = &rule});
    EXPECT_EQ(generation.tokens.size(), 5U);
  }
}

TEST(DistributionWeightsTest, AVerifierThatAcceptsAnythingIsRefused) {
  FakeModel target(kRuleVocab, random_table(kRuleVocab, 1));
  const NoneTwiceRule rule;
  CounterRandomness random(1);
  SpeculativeDecoding decoding(target,
                               std::make_unique<PromptLookupDrafter>(PromptLookupOptions{1, 4}),
                               std::make_unique<SyntheticVerifier>(std::vector<double>{1.0}),
                               std::make_unique<FixedDraftLength>(3));
  EXPECT_THAT(error_message<ConfigError>([&] {
                decoding.generate({.prompt = kRulePrompt,
                                   .sampling = {},
                                   .stop = {.max_new_tokens = 4},
                                   .random = random,
                                   .weights = &rule});
              }),
              HasSubstr("break the rule of the request's weights"));
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
