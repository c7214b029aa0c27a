#include "grammar/numbers/number_automaton.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/number_beginnings.h"
#include "tests/support/random_number_plan.h"

namespace specdec {
namespace {

TEST(NumberAutomatonTest, WalksAsTheTextsOfItsNumbersGo) {
  std::mt19937 random(1);
  for (int i = 0; i < 600; ++i) {
    const NumberPlan plan = random_number_plan(random);
    const NumberStyle style = i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    const NumberTexts texts(plan, style);
    NumberAutomaton automaton(plan, style);
    std::string text;
    NumberAutomaton::StateId state = NumberAutomaton::kStart;
    for (int steps = 0; steps < 20 && state != NumberAutomaton::kDead; ++steps) {
      EXPECT_EQ(automaton.is_complete(state), texts.is_complete(text)) << describe(plan) << text;
      const auto rest = automaton.find_completion(state);
      ASSERT_EQ(rest.has_value(), texts.can_complete(text)) << describe(plan) << text;
      EXPECT_TRUE(!rest || texts.is_complete(text + *rest)) << describe(plan) << text << *rest;
      std::string alive;
      for (const char c : std::string_view("0123456789.-+eE,]} x")) {
        const auto next = automaton.next(state, static_cast<uint8_t>(c));
        const bool possible = in(c, "0123456789.-+eE") && begins_number(text + c);
        ASSERT_EQ(next.has_value(), possible) << describe(plan) << text + c;
        EXPECT_EQ(possible, in(c, automaton.candidates(state))) << describe(plan) << text + c;
        if (possible) {
          EXPECT_EQ(*next != NumberAutomaton::kDead, texts.can_complete(text + c))
              << describe(plan) << text + c;
          alive += c;
        }
      }
      text += alive[random() % alive.size()];
      state = *automaton.next(state, static_cast<uint8_t>(text.back()));
    }
  }
}

TEST(NumberAutomataTest, EqualSetsShareOne) {
  NumberAutomata automata;
  NumberPlan counts;
  counts.raise_lower(parse_decimal("0"), false);
  const auto known = automata.find(counts, NumberStyle::kAny);
  EXPECT_EQ(automata.find(counts, NumberStyle::kAny), known);
  EXPECT_NE(automata.find(counts, NumberStyle::kPlain), known);
  NumberPlan positive;
  positive.raise_lower(parse_decimal("0"), true);
  EXPECT_NE(automata.find(positive, NumberStyle::kAny), known);
  NumberPlan negative;
  negative.reduce_upper(parse_decimal("0"), false);
  EXPECT_NE(automata.find(negative, NumberStyle::kAny), known);
  NumberPlan even;
  even.multiples = {parse_decimal("2")};
  NumberPlan odd;
  odd.not_multiples = {parse_decimal("2")};
  EXPECT_NE(automata.find(even, NumberStyle::kAny), automata.find(odd, NumberStyle::kAny));
}

TEST(NumberAutomataTest, ALargeOneIsLeftToThoseWhoHaveIt) {
  NumberAutomata automata;
  NumberPlan plan;
  plan.multiples = {parse_decimal("0.7")};
  const auto large = automata.find(plan, NumberStyle::kAny);
  std::mt19937 random(2);
  while (large->states() <= 2'000) {
    NumberAutomaton::StateId state = NumberAutomaton::kStart;
    for (const char c : random_text("", 12, "0123456789", random)) {
      state = *large->next(state, static_cast<uint8_t>(c));
    }
  }
  const auto fresh = automata.find(plan, NumberStyle::kAny);
  EXPECT_NE(fresh, large);
  EXPECT_EQ(automata.find(plan, NumberStyle::kAny), fresh);
}

TEST(NumberAutomataTest, OnlyTheLatestAreKept) {
  NumberAutomata automata;
  const auto least = [](int bound) {
    NumberPlan plan;
    plan.raise_lower(parse_decimal(std::to_string(bound)), false);
    return plan;
  };
  const std::weak_ptr<NumberAutomaton> first = automata.find(least(0), NumberStyle::kAny);
  for (int bound = 1; bound < 100; ++bound) {
    (void)automata.find(least(bound), NumberStyle::kAny);
    ASSERT_FALSE(first.expired());
  }
  for (int bound = 100; bound < 20'000 && !first.expired(); ++bound) {
    (void)automata.find(least(bound), NumberStyle::kAny);
    ASSERT_LE(automata.bytes(), NumberAutomata::kMaxBytes);
  }
  EXPECT_TRUE(first.expired());
}

/// What an automaton grows by after it was made counts too.
TEST(NumberAutomataTest, GrowthCounts) {
  NumberAutomata automata;
  NumberPlan plan;
  plan.multiples = {parse_decimal("0.7")};
  const auto automaton = automata.find(plan, NumberStyle::kAny);
  const uint64_t before = automata.bytes();
  NumberAutomaton::StateId state = NumberAutomaton::kStart;
  for (const char c : std::string_view("123456789")) {
    state = *automaton->next(state, static_cast<uint8_t>(c));
  }
  (void)automata.find(plan, NumberStyle::kAny);
  EXPECT_GT(automata.bytes(), before);
}

}  // namespace
}  // namespace specdec
