#include "grammar/numbers/number_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/random_number_plan.h"

namespace specdec {
namespace {

TEST(NumberPlanTest, CountsEnumerate) {
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    NumberPlan plan = random_number_plan(random);
    plan.multiples.push_back(parse_decimal("0.25"));
    if (!plan.lower || !plan.upper || compare(*plan.upper, parse_decimal("200")) > 0) {
      continue;
    }
    uint64_t members = 0;
    for (int quarters = -600; quarters <= 800; ++quarters) {
      members += plan.contains(parse_decimal(std::to_string(25 * quarters) + "e-2")) ? 1 : 0;
    }
    EXPECT_EQ(plan.count(100'000), members) << describe(plan);
    EXPECT_EQ(plan.count(3), std::min<uint64_t>(members, 3)) << describe(plan);
    EXPECT_EQ(plan.is_empty(), members == 0) << describe(plan);
  }
}

TEST(NumberPlanTest, BoundsAreMerged) {
  NumberPlan plan;
  EXPECT_TRUE(plan.is_everything());
  plan.raise_lower(parse_decimal("1"), false);
  plan.raise_lower(parse_decimal("1.0"), true);
  plan.raise_lower(parse_decimal("0"), false);
  EXPECT_FALSE(plan.contains(parse_decimal("1")));
  EXPECT_TRUE(plan.contains(parse_decimal("1.0000001")));
  plan.reduce_upper(parse_decimal("2"), true);
  plan.reduce_upper(parse_decimal("2"), false);
  EXPECT_FALSE(plan.contains(parse_decimal("2")));
  plan.reduce_upper(parse_decimal("1"), false);
  EXPECT_TRUE(plan.is_empty());
  NumberPlan integers;
  integers.multiples.push_back(parse_decimal("1.0"));
  EXPECT_TRUE(integers.is_integers());
}

TEST(NumberPlanTest, FiniteSetsSplitIntoWholeNumbersAndOthers) {
  NumberPlan members;
  members.restrict_to({parse_decimal("-2"), parse_decimal("0.5"), parse_decimal("10e-1")});
  const std::vector<NumberPlan> parts = members.split_whole();
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts[0].list(9), (std::vector<std::string>{"-2", "1"}));
  EXPECT_EQ(parts[0].written, NumberPlan::Written::kWhole);
  EXPECT_EQ(parts[1].list(9), (std::vector<std::string>{"0.5"}));
  EXPECT_EQ(parts[1].written, NumberPlan::Written::kAnyWay);
  NumberPlan one;
  one.raise_lower(parse_decimal("3"), false);
  ASSERT_EQ(one.split_whole().size(), 1);
  EXPECT_EQ(one.split_whole()[0].written, NumberPlan::Written::kAnyWay);
  one.reduce_upper(parse_decimal("3"), false);
  ASSERT_EQ(one.split_whole().size(), 1);
  EXPECT_EQ(one.split_whole()[0].written, NumberPlan::Written::kWhole);
  one.restrict_to(NumberPlan::Written::kNotWhole);
  ASSERT_EQ(one.split_whole().size(), 1);
  EXPECT_EQ(one.split_whole()[0].written, NumberPlan::Written::kNotWhole);
}

}  // namespace
}  // namespace specdec
