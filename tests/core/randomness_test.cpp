#include "core/randomness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

using Block = std::array<uint32_t, 4>;

std::vector<int64_t> some_draws(Randomness& random, size_t count = 8) {
  const std::vector<double> weights(1000, 1.0);
  std::vector<int64_t> draws(count);
  for (int64_t& draw : draws) {
    draw = random.draw(weights);
  }
  return draws;
}

// The known answers of the Random123 distribution, kat_vectors.
TEST(RandomnessTest, PhiloxGivesThePublishedBlocks) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandomnessTest, RepeatsFromItsKey) {
  CounterRandomness a(7, 3, 1);
  CounterRandomness b(7, 3, 1);
  a.seek(10, Purpose::kSample);
  b.seek(4, Purpose::kDraft);
  some_draws(b);
  b.seek(10, Purpose::kSample);
  EXPECT_EQ(some_draws(a), some_draws(b));
}

TEST(CounterRandomnessTest, EveryPartOfTheKeyMatters) {
  const auto draws = [](uint64_t seed, uint32_t prompt, uint32_t repeat, int64_t position,
                        Purpose purpose) {
    CounterRandomness random(seed, prompt, repeat);
    random.seek(position, purpose);
    return some_draws(random);
  };
  const auto base = draws(1, 2, 3, 4, Purpose::kSample);
  EXPECT_NE(base, draws(2, 2, 3, 4, Purpose::kSample));
  EXPECT_NE(base, draws(1ULL + (1ULL << 40U), 2, 3, 4, Purpose::kSample));
  EXPECT_NE(base, draws(1, 3, 3, 4, Purpose::kSample));
  EXPECT_NE(base, draws(1, 2, 4, 4, Purpose::kSample));
  EXPECT_NE(base, draws(1, 2, 3, 5, Purpose::kSample));
  EXPECT_NE(base, draws(1, 2, 3, 4, Purpose::kDraft));
}

TEST(CounterRandomnessTest, ChoicesAfterOneAnotherDiffer) {
  CounterRandomness random(1);
  const auto draws = some_draws(random, 20);
  EXPECT_GT(std::set<int64_t>(draws.begin(), draws.end()).size(), 15U);
}

// Nearly all weights are zero, and whole stretches of them.
TEST(CounterRandomnessTest, DrawsFromManyWeightsAreThoseFromTheFewThatCount) {
  const std::vector<size_t> places = {3, 255, 256, 900, 2047};
  std::vector<double> few;
  std::vector<double> many(3000, 0.0);
  for (const size_t place : places) {
    many[place] = static_cast<double>(place % 7 + 1);
    few.push_back(many[place]);
  }
  CounterRandomness of_many(3);
  CounterRandomness of_few(3);
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) {
    const int64_t drawn = of_many.draw(many);
    seen.insert(drawn);
    EXPECT_EQ(drawn, static_cast<int64_t>(places[static_cast<size_t>(of_few.draw(few))]));
  }
  EXPECT_EQ(seen.size(), places.size());
}

TEST(CounterRandomnessTest, DrawsFollowTheWeights) {
  CounterRandomness random(5);
  const std::vector<double> weights = {0.0, 2.0, 0.0, 6.0, 0.0};
  std::map<int64_t, int> counts;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[random.draw(weights)];
  }
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[1], kDraws / 4, 4 * std::sqrt(kDraws * 0.25 * 0.75));
}

TEST(CounterRandomnessTest, BernoulliFollowsTheProbability) {
  CounterRandomness random(6);
  constexpr int kDraws = 4000;
  int count = 0;
  for (int i = 0; i < kDraws; ++i) {
    count += random.bernoulli(0.3) ? 1 : 0;
    EXPECT_FALSE(random.bernoulli(0.0));
    EXPECT_FALSE(random.bernoulli(-1.0));
    EXPECT_TRUE(random.bernoulli(1.0));
    EXPECT_TRUE(random.bernoulli(1.5));
  }
  EXPECT_NEAR(count, 0.3 * kDraws, 4 * std::sqrt(kDraws * 0.3 * 0.7));
}

TEST(RandomnessTest, RefusesWeightsThatAreNoDistribution) {
  CounterRandomness counter(1);
  EnumeratingRandomness enumerating;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (Randomness* random :
       {static_cast<Randomness*>(&counter), static_cast<Randomness*>(&enumerating)}) {
    for (const std::vector<double>& weights : std::vector<std::vector<double>>{
             {}, {0.0, 0.0}, {1.0, -0.5}, {1.0, kNan}, {1.0, kInfinity}}) {
      EXPECT_THROW(random->draw(weights), InternalError);
    }
    EXPECT_THROW(random->bernoulli(kNan), InternalError);
  }
}

// ---- A key drawn twice ----

/// Two choices at one place, whose random number is the same.
void draw_twice(Randomness& random) {
  const std::vector<double> weights = {1.0, 1.0};
  random.seek(4, Purpose::kDraft);
  random.draw(weights);
  random.seek(4, Purpose::kVerify);
  random.draw(weights);
  random.seek(4, Purpose::kDraft);
  random.draw(weights);
}

TEST(CheckedRandomnessTest, AKeyDrawnTwiceIsAnError) {
  CounterRandomness source(1);
  CheckedRandomness random(source);
  EXPECT_THAT([&] { draw_twice(random); },
              testing::ThrowsMessage<InternalError>(
                  testing::HasSubstr("random number 0 of position 4 (draft) is drawn twice")));
}

TEST(CheckedRandomnessTest, GivesWhatItsSourceGives) {
  CounterRandomness source(1);
  CheckedRandomness random(source);
  CounterRandomness same(1);
  for (const auto purpose : {Purpose::kSample, Purpose::kDraft, Purpose::kVerify}) {
    random.seek(3, purpose);
    same.seek(3, purpose);
    random.seek(3, purpose);  // nothing was drawn there
    EXPECT_EQ(some_draws(random), some_draws(same));
    EXPECT_EQ(random.bernoulli(0.5), same.bernoulli(0.5));
  }
}

TEST(EnumeratingRandomnessTest, AKeyDrawnTwiceIsAnError) {
  EnumeratingRandomness random;
  EXPECT_THROW(draw_twice(random), InternalError);
}

TEST(EnumeratingRandomnessTest, EveryPassMayDrawAllKeysAgain) {
  EnumeratingRandomness random;
  int64_t passes = 0;
  do {
    random.seek(4, Purpose::kDraft);
    random.bernoulli(0.5);
    ++passes;
  } while (random.next_outcome());
  EXPECT_EQ(passes, 2);
}

TEST(EnumeratingRandomnessTest, WalksEveryOutcomeOnce) {
  EnumeratingRandomness random;
  std::map<std::string, double> distribution;
  int64_t passes = 0;
  do {
    std::string outcome;
    const std::vector<double> weights = {1.0, 0.0, 3.0};
    outcome += std::to_string(random.draw(weights));
    if (outcome == "2" && random.bernoulli(0.25)) {
      outcome += "!";
    }
    distribution[outcome] += random.probability();
    ++passes;
  } while (random.next_outcome());
  EXPECT_EQ(passes, 3);
  EXPECT_EQ(distribution,
            (std::map<std::string, double>{{"0", 0.25}, {"2", 0.5625}, {"2!", 0.1875}}));
}

TEST(EnumeratingRandomnessTest, CertainChoicesAddNoOutcome) {
  EnumeratingRandomness random;
  EXPECT_TRUE(random.bernoulli(1.0));
  EXPECT_FALSE(random.bernoulli(0.0));
  EXPECT_EQ(random.probability(), 1.0);
  EXPECT_FALSE(random.next_outcome());
}

TEST(EnumeratingRandomnessTest, RefusesAProcedureThatDoesNotRepeat) {
  EnumeratingRandomness changed;
  changed.bernoulli(0.5);
  ASSERT_TRUE(changed.next_outcome());
  EXPECT_THROW(changed.bernoulli(0.4), InternalError);

  EnumeratingRandomness shorter;
  shorter.bernoulli(0.5);
  ASSERT_TRUE(shorter.next_outcome());
  EXPECT_THROW(shorter.next_outcome(), InternalError);
}

}  // namespace
}  // namespace specdec
