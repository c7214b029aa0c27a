// The promise suite finds what it should find: each planted bug moves the distribution of the
// output.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/broken_components.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kPlantedVocab = 3;
constexpr double kBroken = 1e-3;  // a distribution that differs by more is not the target's

using MakeDrafter = std::function<std::unique_ptr<Drafter>(const LogitTable& table)>;
using MakeVerifier = std::function<std::unique_ptr<Verifier>()>;

template <class Made>
MakeDrafter on_table() {
  return [](const LogitTable& table) { return std::make_unique<Made>(table); };
}

std::unique_ptr<Drafter> draft_model_drafter(const LogitTable& table, bool sample) {
  return std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kPlantedVocab, table),
                                             DraftModelOptions{.sample = sample});
}

MakeDrafter drawn_chain() {
  return [](const LogitTable& table) { return draft_model_drafter(table, true); };
}
MakeDrafter chosen_chain() {
  return [](const LogitTable& table) { return draft_model_drafter(table, false); };
}
MakeDrafter prompt_lookup() {
  return [](const LogitTable&) {
    return std::make_unique<PromptLookupDrafter>(
        PromptLookupOptions{.min_ngram = 1, .max_ngram = 3});
  };
}
MakeDrafter chosen_tree() {
  return [](const LogitTable& table) {
    return std::make_unique<TreeDrafter>(table, TreeDrafterOptions{.branches = 2, .sample = false});
  };
}

std::map<std::string, MakeDrafter> honest_drafters() {
  return {{"drawn_chain", drawn_chain()},
          {"chosen_chain", chosen_chain()},
          {"prompt_lookup", prompt_lookup()},
          {"drawn_tree", on_table<TreeDrafter>()},
          {"chosen_tree", chosen_tree()}};
}

MakeVerifier buggy(Bug bug) {
  return [bug] { return std::make_unique<BuggyVerifier>(bug); };
}
MakeVerifier rejection() {
  return [] { return std::make_unique<RejectionVerifier>(); };
}

Task task(int64_t tokens) {
  return {{0, 1, 2, 1, 0, 1}, {.temperature = 1.0}, {.max_new_tokens = tokens}};
}

/// How far the distribution of the output is from the target's, over a few random pairs of models.
double difference_with(const MakeDrafter& drafter, const MakeVerifier& verifier) {
  double largest = 0.0;
  for (const uint64_t seed : {11U, 12U}) {
    const LogitTable target_table = random_table(kPlantedVocab, seed);
    const LogitTable drafter_table =
        mixed_table(target_table, random_table(kPlantedVocab, seed + 100), 0.7);
    FakeModel target(kPlantedVocab, target_table);
    SpeculativeDecoding decoding(target, drafter(drafter_table), verifier(),
                                 std::make_unique<FixedDraftLength>(3));
    const SequenceDistribution expected = reference_distribution(target_table, task(4));
    largest = std::max(largest, max_difference(exact_distribution(decoding, task(4)), expected));
  }
  return largest;
}

TEST(PlantedBugsTest, TheVerifierWithoutABugPasses) {
  for (const auto& [name, drafter] : honest_drafters()) {
    EXPECT_LT(difference_with(drafter, buggy(Bug::kNone)), kSameDistribution) << name;
  }
}

TEST(PlantedBugsTest, WrongDistributionForTokensChosenDeterministicallyIsFound) {
  for (const MakeDrafter& drafter : {chosen_chain(), prompt_lookup(), chosen_tree()}) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kUniformQ)), kBroken);
  }
}

TEST(PlantedBugsTest, ChosenTokensWithTheDistributionOfDrawnOnesAreFound) {
  EXPECT_GT(difference_with(on_table<WrongDistributionDrafter>(), rejection()), kBroken);
}

TEST(PlantedBugsTest, CorrectionDrawnFromTheTargetIsFound) {
  for (const auto& [name, drafter] : honest_drafters()) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kResidualFromTarget)), kBroken) << name;
  }
}

TEST(PlantedBugsTest, ResidualThatDoesNotSumToOneIsFound) {
  for (const MakeDrafter& drafter : {on_table<TreeDrafter>(), chosen_tree()}) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kResidualNotNormalised)), kBroken);
  }
}

TEST(PlantedBugsTest, SiblingsTakenForIndependentAreFound) {
  EXPECT_GT(difference_with(on_table<TreeDrafter>(), buggy(Bug::kSiblingsIndependent)), kBroken);
}

TEST(PlantedBugsTest, TypicalAcceptanceIsFound) {
  for (const auto& [name, drafter] : honest_drafters()) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kTypicalAcceptance)), kBroken) << name;
  }
}

TEST(PlantedBugsTest, TokenDroppedAfterItWasDrawnIsFound) {
  EXPECT_GT(difference_with(on_table<DroppingDrafter>(), rejection()), kBroken);
}

TEST(PlantedBugsTest, RerankedSiblingsAreFound) {
  EXPECT_GT(difference_with(on_table<RerankingDrafter>(), rejection()), kBroken);
}

TEST(PlantedBugsTest, VerifierThatAcceptsEverythingIsFound) {
  for (const auto& [name, drafter] : honest_drafters()) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kAlwaysAccepts)), kBroken) << name;
  }
}

TEST(PlantedBugsTest, FirstDraftedTokenThatIsNotCheckedIsFound) {
  for (const auto& [name, drafter] : honest_drafters()) {
    EXPECT_GT(difference_with(drafter, buggy(Bug::kFirstUnchecked)), kBroken) << name;
  }
}

// Enumeration alone counts the draft and its correction as independent.
TEST(PlantedBugsTest, DraftAndCorrectionWithOneRandomNumberAreFound) {
  for (const MakeDrafter& drafter : {drawn_chain(), on_table<TreeDrafter>()}) {
    EXPECT_THROW(difference_with(drafter, buggy(Bug::kSharedRandomNumber)), InternalError);
  }
}

TEST(PlantedBugsTest, ChiSquareFindsOneToo) {
  const LogitTable target_table = random_table(kPlantedVocab, 21);
  FakeModel target(kPlantedVocab, target_table);
  SpeculativeDecoding decoding(
      target, std::make_unique<TreeDrafter>(random_table(kPlantedVocab, 22)),
      std::make_unique<BuggyVerifier>(Bug::kAlwaysAccepts), std::make_unique<FixedDraftLength>(3));
  const OutputCounts counts = sample_counts(decoding, task(4), 4000, 2024);
  EXPECT_LT(chi_square(counts, reference_distribution(target_table, task(4))).p_value, 1e-6);
}

/// The distribution of the second token, the first that is drafted, when target and drafter always
/// have the distributions p and q.
std::vector<double> second_token(const std::vector<double>& p, const std::vector<double>& q,
                                 const MakeDrafter& drafter) {
  const auto table_of = [](std::vector<double> distribution) -> LogitTable {
    for (double& value : distribution) {
      value = std::log(value);
    }
    return [distribution](TokenSpan) { return distribution; };
  };
  FakeModel target(kPlantedVocab, table_of(p));
  SpeculativeDecoding decoding(target, drafter(table_of(q)), std::make_unique<RejectionVerifier>(),
                               std::make_unique<FixedDraftLength>(1));
  std::vector<double> distribution(kPlantedVocab, 0.0);
  for (const auto& [output, mass] : exact_distribution(decoding, task(3))) {
    distribution[static_cast<size_t>(output[1])] += mass;
  }
  return distribution;
}

void expect_distribution(const std::vector<double>& found, const std::vector<double>& expected,
                         double tolerance) {
  for (size_t token = 0; token < expected.size(); ++token) {
    EXPECT_NEAR(found[token], expected[token], tolerance) << "token " << token;
  }
}

TEST(PlantedBugsTest, WhatDroppingDoesToTheDistribution) {
  // Kept: token 0 alone (0.6). Accepted 0.5, rejected 0.1, then certainly token 1; dropped 0.4.
  const std::vector<double> p = {0.5, 0.3, 0.2};
  const std::vector<double> q = {0.6, 0.2, 0.2};
  expect_distribution(second_token(p, q, on_table<DroppingDrafter>()), {0.7, 0.22, 0.08},
                      kSameDistribution);
  expect_distribution(second_token(p, q, on_table<TreeDrafter>()), p, kSameDistribution);
}

TEST(PlantedBugsTest, WhatStrippingForbiddenTokensDoesToTheDistribution) {
  // Token 2 is forbidden. Stripped with 0.4, then drawn from p; rejected, token 0 is certain.
  const std::vector<double> p = {0.7, 0.3, 0.0};
  const std::vector<double> q = {0.3, 0.3, 0.4};
  expect_distribution(second_token(p, q, on_table<StrippingDrafter>()), {0.58, 0.42, 0.0},
                      kSameDistribution);
  expect_distribution(second_token(p, q, on_table<TreeDrafter>()), p, kSameDistribution);
}

TEST(PlantedBugsTest, WhatRerankingDoesToTheDistribution) {
  // Token 0 is kept unless 1 and 2 are drawn: 0.3 * 0.2 / 0.7 + 0.2 * 0.3 / 0.8 = 0.16.
  const std::vector<double> p = {0.2, 0.3, 0.5};
  const std::vector<double> q = {0.5, 0.3, 0.2};
  expect_distribution(second_token(p, q, on_table<RerankingDrafter>()), {0.34, 0.16, 0.50}, 0.005);
  expect_distribution(second_token(p, q, on_table<TreeDrafter>()), p, kSameDistribution);
}

TEST(LikelyPrefixesTest, CoverTheWholeDistribution) {
  const LogitTable table = random_table(kPlantedVocab, 3);
  const SequenceDistribution all = reference_distribution(table, task(3));
  const SequenceDistribution prefixes = likely_prefixes(table, task(3), 0.1);
  EXPECT_LT(prefixes.size(), all.size());
  // Every output's mass goes to its longest prefix.
  SequenceDistribution expected;
  double listed = 0.0;
  for (const auto& [output, mass] : all) {
    const OutputCounts one = count_by_prefix({{output, 1}}, prefixes);
    expected[one.begin()->first] += mass;
    listed += one.begin()->first == output ? mass : 0.0;
  }
  EXPECT_LT(max_difference(prefixes, expected), kSameDistribution);
  EXPECT_GT(listed, 0.2);
  EXPECT_LT(listed, 0.99);
}

TEST(LikelyPrefixesTest, WithoutAThresholdTheDistributionItself) {
  const LogitTable table = random_table(kPlantedVocab, 3);
  EXPECT_EQ(likely_prefixes(table, task(3), 0.0), reference_distribution(table, task(3)));
}

TEST(ChiSquareTest, IsPearsons) {
  // Expected 50, 30 and 20: (5^2 / 50 + 5^2 / 30 + 0) of 2 degrees.
  const SequenceDistribution distribution = {{{0}, 0.5}, {{1}, 0.3}, {{2}, 0.2}};
  const ChiSquare test = chi_square({{{0}, 55}, {{1}, 25}, {{2}, 20}}, distribution);
  EXPECT_NEAR(test.statistic, 0.5 + 25.0 / 30.0, 1e-12);
  EXPECT_EQ(test.degrees, 2);
  EXPECT_NEAR(test.p_value, std::exp(-test.statistic / 2.0), 1e-12);
}

TEST(ChiSquareTest, TheTailOfFourDegreesIsExact) {
  // P(X > x) = exp(-x/2) (1 + x/2); a small and a large x, which are computed in different ways.
  const SequenceDistribution distribution = {
      {{0}, 0.2}, {{1}, 0.2}, {{2}, 0.2}, {{3}, 0.2}, {{4}, 0.2}};
  const ChiSquare small =
      chi_square({{{0}, 22}, {{1}, 18}, {{2}, 20}, {{3}, 20}, {{4}, 20}}, distribution);
  EXPECT_NEAR(small.statistic, 0.4, 1e-12);
  EXPECT_EQ(small.degrees, 4);
  EXPECT_NEAR(small.p_value, std::exp(-0.2) * 1.2, 1e-12);
  const ChiSquare large =
      chi_square({{{0}, 30}, {{1}, 10}, {{2}, 20}, {{3}, 20}, {{4}, 20}}, distribution);
  EXPECT_NEAR(large.statistic, 10.0, 1e-12);
  EXPECT_NEAR(large.p_value, std::exp(-5.0) * 6.0, 1e-12);
}

TEST(ChiSquareTest, RareOutputsJoinTheRarestCell) {
  const SequenceDistribution distribution = {{{0}, 0.6}, {{1}, 0.38}, {{2}, 0.01}, {{3}, 0.01}};
  const ChiSquare test = chi_square({{{0}, 60}, {{1}, 38}, {{2}, 2}}, distribution);
  EXPECT_EQ(test.degrees, 1);
  EXPECT_NEAR(test.statistic, 0.0, 1e-12);
}

TEST(ChiSquareTest, AnImpossibleOutputHasNoProbability) {
  EXPECT_EQ(chi_square({{{0}, 60}, {{2}, 1}}, {{{0}, 0.6}, {{1}, 0.4}}).p_value, 0.0);
}

TEST(ChiSquareTest, OneCellTestsNothing) {
  const ChiSquare test = chi_square({{{0}, 60}}, {{{0}, 1.0}});
  EXPECT_EQ(test.degrees, 0);
  EXPECT_EQ(test.p_value, 1.0);
}

}  // namespace
}  // namespace specdec
