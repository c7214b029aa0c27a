#include "decoders/analysis/draft_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "tests/support/broken_components.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kBiasVocab = 5;

// ---- The arithmetic ----

DraftTrace trace_of(const std::vector<TraceDepth>& depths) {
  DraftTrace trace{.depth = 1};
  for (const auto& depth : depths) {
    trace.positions.push_back({.drafted = 1, .depths = {depth}});
  }
  return trace;
}

TEST(DraftBiasTest, IsTheSumOverPlaces) {
  DraftBias bias;
  auto trace = trace_of({{.p = 0.2, .overlap = 0.7, .favoured = 0.5, .is_favoured = true},
                         {.p = 0.1, .overlap = 0.9, .favoured = 0.2, .is_favoured = false},
                         {.p = 0.3, .overlap = 0.6, .favoured = 0.0, .is_favoured = false}});
  trace.positions.emplace_back();  // nothing was drafted
  bias.add(trace);
  EXPECT_EQ(bias.tokens(), 4);
  EXPECT_EQ(bias.taken(), 1);
  ASSERT_EQ(bias.places().size(), 2U);
  EXPECT_DOUBLE_EQ(bias.places()[0].excess, 1.0 - 0.7);
  EXPECT_DOUBLE_EQ(bias.expected(), 0.7);
  EXPECT_DOUBLE_EQ(bias.variance(), 0.25 + 0.16);
  EXPECT_DOUBLE_EQ(bias.statistic(), 0.3 * 0.3 / 0.41);
  EXPECT_GT(bias.p_value(), 0.5);
  EXPECT_EQ(bias.total_variation_bound(0.99), 0.0);
  EXPECT_EQ(bias.sums().tokens, 4);
  EXPECT_EQ(bias.sums().taken, 1);
  EXPECT_DOUBLE_EQ(bias.sums().expected, 0.7);
  EXPECT_DOUBLE_EQ(bias.sums().variance, 0.25 + 0.16);
  EXPECT_DOUBLE_EQ(bias.sums().squares, 0.25 + 0.04);
}

TEST(BiasSumsTest, BoundTheTotalVariationFromBelow) {
  // 900 of 1,000 tokens in B instead of 700: a shift of 0.2, of which 3.841^0.5 standard
  // deviations of at most sqrt(squares) are taken off.
  BiasSums sums{.tokens = 1000, .taken = 900, .expected = 700.0, .variance = 210.0};
  sums.squares = 900 * 0.09 + 100 * 0.49;
  EXPECT_NEAR(sums.total_variation_bound(0.95), 0.2 - 1.95996 * std::sqrt(210.0) / 1000, 1e-6);
  BiasSums twice = sums;
  twice.add(sums);
  EXPECT_EQ(twice.tokens, 2000);
  EXPECT_GT(twice.total_variation_bound(0.95), sums.total_variation_bound(0.95));
  EXPECT_LT(twice.total_variation_bound(0.95), 0.2);
}

TEST(BiasSumsTest, TokensWithoutMassCountWhereTheDraftHasNoneEither) {
  DraftBias bias;
  std::vector<TraceDepth> depths(50, {.p = 0.0, .overlap = 0.0, .is_favoured = true});
  depths.resize(100, {.p = 0.4, .overlap = 0.0});
  bias.add(trace_of(depths));
  EXPECT_TRUE(bias.places().empty());
  EXPECT_EQ(bias.sums().taken, 50);
  EXPECT_NEAR(bias.total_variation_bound(0.95), 0.5 - 1.95996 * std::sqrt(50.0) / 100, 1e-6);
}

TEST(DraftBiasTest, ATokenWithoutMassIsImpossible) {
  DraftBias bias;
  bias.add(trace_of({{.p = 0.0, .overlap = 0.7, .favoured = 0.5, .is_favoured = false}}));
  EXPECT_EQ(bias.impossible(), 1);
  EXPECT_EQ(bias.p_value(), 0.0);
}

TEST(DraftBiasTest, WithoutPlacesItSaysNothing) {
  const DraftBias bias;
  EXPECT_EQ(bias.p_value(), 1.0);
  EXPECT_EQ(bias.total_variation_bound(0.99), 0.0);
  EXPECT_EQ(bias.visible_total_variation(0.001, 0.9), 1.0);
}

TEST(DraftBiasTest, RefusesDeeperTraces) {
  DraftBias bias;
  EXPECT_THROW(bias.add({.depth = 2}), InternalError);
}

// ---- False positives ----

/// A small, fast generator of its own (splitmix64).
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  double uniform() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

/// A text whose sets A depend on what came before: after a token in A another mass is likely.
DraftBias simulated(SplitMix& random, int64_t tokens, double most_mass, double shift = 0.0) {
  DraftTrace trace{.depth = 1};
  bool before = false;
  for (int64_t i = 0; i < tokens; ++i) {
    const double mass = most_mass * (before ? random.uniform() : 0.2 + 0.6 * random.uniform());
    before = random.uniform() < mass + shift;
    trace.positions.push_back({.drafted = 1,
                               .depths = {{.p = 0.1,
                                           .overlap = 1.0 - 0.5 * (1.0 - mass),
                                           .favoured = mass,
                                           .is_favoured = before}}});
  }
  DraftBias bias;
  bias.add(trace);
  return bias;
}

/// Families of ten tests in which one or more are blamed at 0.01 over all (Holm's first step).
int64_t families_blamed(int64_t families, int64_t tokens, double most_mass) {
  SplitMix random(2026);
  int64_t blamed = 0;
  for (int64_t family = 0; family < families; ++family) {
    double smallest = 1.0;
    for (int test = 0; test < 10; ++test) {
      smallest = std::min(smallest, simulated(random, tokens, most_mass).p_value());
    }
    blamed += 10.0 * smallest < 0.01 ? 1 : 0;
  }
  return blamed;
}

// 0.01 of 2000 are 20, with a standard deviation of 4.4.
TEST(DraftBiasTest, TheFalsePositiveRateHoldsOverAFamily) {
  const auto blamed = static_cast<double>(families_blamed(2000, 500, 1.0));
  EXPECT_LE(blamed, 20 + 3 * 4.4);
  EXPECT_GE(blamed, 20 - 3 * 4.4) << "so careful that it sees little";
  EXPECT_LE(families_blamed(1000, 1000, 0.1), 2 * 10) << "rare tokens: the sum is skewed";
}

TEST(DraftBiasTest, FindsWhatItSaysThatItSees) {
  SplitMix random(7);
  int found = 0;
  constexpr int kTexts = 300;
  for (int i = 0; i < kTexts; ++i) {
    // 2100 tokens; what they see depends on their variance.
    const double visible = simulated(random, 2100, 1.0).visible_total_variation(0.001, 0.9);
    EXPECT_LT(visible, 0.05);
    const DraftBias shifted = simulated(random, 2100, 1.0, visible);
    found += shifted.p_value() < 0.001 ? 1 : 0;
    EXPECT_LE(shifted.total_variation_bound(0.999), visible * 1.05);
  }
  EXPECT_NEAR(found, 0.9 * kTexts, 3 * std::sqrt(0.09 * kTexts) + 10);
}

// ---- On strategies ----

using MakeVerifier = std::function<std::unique_ptr<Verifier>()>;

struct BiasBench {
  enum class Kind { kDrawn, kBest, kLookup, kOwnDraws };

  explicit BiasBench(const MakeVerifier& verifier, Kind kind)
      : target(kBiasVocab, random_table(kBiasVocab, 1), kLength) {
    const auto table = mixed_table(random_table(kBiasVocab, 1), random_table(kBiasVocab, 2), 0.5);
    const auto drafter = [&]() -> std::unique_ptr<Drafter> {
      switch (kind) {
        case Kind::kLookup:
          return std::make_unique<PromptLookupDrafter>(
              PromptLookupOptions{.min_ngram = 1, .max_ngram = 2});
        case Kind::kOwnDraws:
          return std::make_unique<TreeDrafter>(table, TreeDrafterOptions{.branches = 1});
        default:
          return std::make_unique<DraftModelDrafter>(
              std::make_unique<FakeModel>(kBiasVocab, table, kLength),
              DraftModelOptions{.sample = kind == Kind::kDrawn});
      }
    };
    for (auto* strategy : {&drawing, &tracing}) {
      *strategy = std::make_unique<SpeculativeDecoding>(target, drafter(), verifier(),
                                                        std::make_unique<FixedDraftLength>(3));
    }
  }

  DraftBias bias(int64_t texts) {
    const Task task{
        .prompt = {0, 3, 0, 3}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 61}};
    DraftBias found;
    for (int64_t i = 0; i < texts; ++i) {
      CounterRandomness random(5, 0, static_cast<uint32_t>(i));
      const auto output = drawing->generate(task.request(random)).tokens;
      CounterRandomness other(6, 0, static_cast<uint32_t>(i));
      found.add(tracing->trace(task.request(other), output, {.depth = 1}).value());
    }
    return found;
  }

  static constexpr int64_t kLength = 4096;
  FakeModel target;
  std::unique_ptr<SpeculativeDecoding> drawing, tracing;
};

constexpr std::array kKinds = {BiasBench::Kind::kDrawn, BiasBench::Kind::kBest,
                               BiasBench::Kind::kLookup, BiasBench::Kind::kOwnDraws};

template <class Made>
MakeVerifier make() {
  return [] { return std::make_unique<Made>(); };
}

TEST(DraftBiasTest, LosslessStrategiesPass) {
  for (const auto& verifier :
       {make<RejectionVerifier>(), make<BlockVerifier>(), make<SampleMatchVerifier>()}) {
    for (const auto kind : kKinds) {
      const auto bias = BiasBench(verifier, kind).bias(40);
      EXPECT_EQ(bias.tokens(), 40 * 60);
      EXPECT_GT(bias.variance(), 100.0) << static_cast<int>(kind);
      EXPECT_GT(bias.p_value(), 0.001) << static_cast<int>(kind);
    }
  }
}

TEST(DraftBiasTest, WrongVerifiersAreFound) {
  for (const Bug bug : {Bug::kAlwaysAccepts, Bug::kResidualFromTarget, Bug::kFirstUnchecked}) {
    for (const auto kind : kKinds) {
      const auto bias =
          BiasBench([bug] { return std::make_unique<BuggyVerifier>(bug); }, kind).bias(40);
      EXPECT_LT(bias.p_value(), 1e-4) << static_cast<int>(bug) << " " << static_cast<int>(kind);
      EXPECT_GT(bias.total_variation_bound(0.99), 0.005);
    }
  }
}

// Not only where A depends on the text alone: the trace draws nothing that the text was drawn with.
TEST(DraftBiasTest, PlainTextsPassWithAnyDrafter) {
  BiasBench bench(make<RejectionVerifier>(), BiasBench::Kind::kDrawn);
  const Task task{
      .prompt = {0, 3}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 2001}};
  CounterRandomness random(9);
  const auto output = AutoregressiveDecoding(bench.target).generate(task.request(random)).tokens;
  DraftBias bias;
  bias.add(bench.tracing->trace(task.request(random), output, {.depth = 1}).value());
  EXPECT_EQ(bias.tokens(), 2000);
  EXPECT_GT(bias.p_value(), 0.01);
}

}  // namespace
}  // namespace specdec
