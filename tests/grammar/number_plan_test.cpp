#include "grammar/number_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>

namespace specdec {
namespace {

constexpr std::array kBounds = {"0",   "1",  "-1",   "2.5", "-2.5", "5",    "10",   "12",
                                "100", "99", "0.05", "1.2", "-0.1", "1e3",  "1e20", "-1e-3",
                                "50",  "52", "0.5",  "20",  "21",   "-125", "1.25", "-15"};
constexpr std::array kUnits = {"1", "2", "5", "0.5", "0.1", "0.25", "10", "3", "1.5", "100", "7"};

NumberPlan random_plan(std::mt19937& random) {
  NumberPlan plan;
  if (random() % 3 > 0) {
    plan.raise_lower(parse_decimal(kBounds[random() % kBounds.size()]), random() % 2 == 0);
  }
  if (random() % 3 > 0) {
    plan.reduce_upper(parse_decimal(kBounds[random() % kBounds.size()]), random() % 2 == 0);
  }
  for (uint32_t i = random() % 3; i > 0; --i) {
    plan.multiples.push_back(parse_decimal(kUnits[random() % kUnits.size()]));
  }
  for (uint32_t i = random() % 4 / 2; i > 0; --i) {
    plan.not_multiples.push_back(parse_decimal(kUnits[random() % kUnits.size()]));
  }
  return plan;
}

std::string describe(const NumberPlan& plan, NumberStyle style, const std::string& text) {
  const auto fraction = [](const Decimal& value) { return to_fraction(value).get_str(); };
  std::string out = style == NumberStyle::kAny ? "any " : "plain ";
  out += plan.lower ? (plan.lower_open ? "> " : ">= ") + fraction(*plan.lower) + " " : "";
  out += plan.upper ? (plan.upper_open ? "< " : "<= ") + fraction(*plan.upper) + " " : "";
  for (const Decimal& unit : plan.multiples) {
    out += "of " + fraction(unit) + " ";
  }
  for (const Decimal& unit : plan.not_multiples) {
    out += "not of " + fraction(unit) + " ";
  }
  return out + "'" + text + "'";
}

bool in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

/// True for the beginning of a JSON number, the empty one too.
bool begins_number(std::string_view text) {
  if (text.starts_with('-')) {
    text.remove_prefix(1);
  }
  if (text.size() > 1 && text[0] == '0' && in(text[1], "0123456789")) {
    return false;
  }
  char before = '-';
  bool point = false;
  bool letter = false;
  for (const char c : text) {
    const bool digit = in(before, "0123456789");
    if ((c == '.' && (!digit || point || letter)) || (in(c, "eE") && (!digit || letter)) ||
        (in(c, "+-") && !in(before, "eE"))) {
      return false;
    }
    point = point || c == '.';
    letter = letter || in(c, "eE");
    before = c;
  }
  return true;
}

/// What the style allows at all; no number has more than nine digits in its exponent.
bool has_style(const NumberPlan& plan, NumberStyle style, std::string_view text) {
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos &&
      text.size() - exponent >
          10 + (exponent + 1 < text.size() && in(text[exponent + 1], "+-") ? 1 : 0)) {
    return false;
  }
  if (style == NumberStyle::kAny) {
    return true;
  }
  bool whole = false;
  for (const Decimal& unit : plan.multiples) {
    whole = whole || to_fraction(unit).get_den() == 1;
  }
  const bool point = text.find('.') != std::string_view::npos;
  const bool letter = text.find_first_of("eE") != std::string_view::npos;
  return !(whole && (point || letter)) && !(letter && !plan.is_everything());
}

bool is_text(const NumberPlan& plan, NumberStyle style, const std::string& text) {
  return begins_number(text) && has_style(plan, style, text) && is_complete(plan, text);
}

/// Which texts of an alphabet can be completed, by trying all up to a length.
class Tried {
 public:
  Tried(const NumberPlan& plan, NumberStyle style, std::string_view alphabet)
      : plan_(plan), style_(style), alphabet_(alphabet) {}

  bool visit(const std::string& text, size_t more) {
    bool found = !text.empty() && is_text(plan_, style_, text);
    for (size_t i = 0; i < alphabet_.size() && more > 0; ++i) {
      const std::string longer = text + alphabet_[i];
      if (begins_number(longer)) {
        found = visit(longer, more - 1) || found;
      }
    }
    completable_[text] = found;
    return found;
  }
  const std::map<std::string, bool>& completable() const { return completable_; }

 private:
  const NumberPlan& plan_;
  NumberStyle style_;
  std::string_view alphabet_;
  std::map<std::string, bool> completable_;
};

/// A text that has a completion is alive.
TEST(NumberPlanTest, WhatHasACompletionIsAlive) {
  std::mt19937 random(1);
  for (int i = 0; i < 150; ++i) {
    const NumberPlan plan = random_plan(random);
    const NumberStyle style = i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    Tried tried(plan, style, "0125.-e");
    tried.visit("", 5);
    for (const auto& [text, completable] : tried.completable()) {
      if (completable && !plan.is_empty()) {
        EXPECT_TRUE(can_complete(plan, style, text)) << describe(plan, style, text);
      }
      EXPECT_FALSE(completable && plan.is_empty()) << describe(plan, style, text);
    }
  }
}

/// A text is alive exactly when it is complete or some longer one is: so nothing that is alive is a
/// dead end, and no completion is missed.
void expect_consistent(const NumberPlan& plan, NumberStyle style, std::mt19937& random) {
  constexpr std::string_view kAlphabet = "0123456789.-+eE";
  std::string text;
  for (int steps = 0; steps < 24; ++steps) {
    std::string alive;
    for (const char c : kAlphabet) {
      if (begins_number(text + c) && can_complete(plan, style, text + c)) {
        alive += c;
      }
    }
    const bool complete = !text.empty() && is_text(plan, style, text);
    EXPECT_EQ(can_complete(plan, style, text), complete || !alive.empty())
        << describe(plan, style, text);
    const auto rest = find_completion(plan, style, text);
    EXPECT_EQ(rest.has_value(), can_complete(plan, style, text)) << describe(plan, style, text);
    EXPECT_TRUE(!rest || is_text(plan, style, text + *rest))
        << describe(plan, style, text) << " + '" << *rest << "'";
    const bool beyond = random() % 8 == 0;  // also from texts that are dead already
    const std::string_view next = beyond || alive.empty() ? kAlphabet : alive;
    const char c = next[random() % next.size()];
    text = begins_number(text + c) ? text + c : text;
  }
}

TEST(NumberPlanTest, AliveMeansCompleteOrAliveOneLetterOn) {
  std::mt19937 random(2);
  for (int i = 0; i < 600; ++i) {
    const NumberPlan plan = random_plan(random);
    expect_consistent(plan, i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain, random);
  }
}

/// What is alive can be finished by letters that keep it alive, in few steps.
TEST(NumberPlanTest, WhatIsAliveCanBeFinished) {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    const NumberPlan plan = random_plan(random);
    const NumberStyle style = i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    if (plan.is_empty()) {
      continue;
    }
    std::string text;
    int steps = 0;
    for (; steps < 500 && (text.empty() || !is_text(plan, style, text)); ++steps) {
      std::string alive;
      for (const char c : std::string_view("0123456789.-e")) {
        if (begins_number(text + c) && can_complete(plan, style, text + c)) {
          alive += c;
        }
      }
      ASSERT_FALSE(alive.empty()) << describe(plan, style, text);
      const bool letter = steps > 8 && alive.back() == 'e';  // bring the digits to their size
      text += letter ? 'e' : alive[random() % alive.size()];
    }
    EXPECT_LT(steps, 500) << describe(plan, style, text);
  }
}

/// As enumerations of digits never would.
TEST(NumberPlanTest, FarNumbersAreFound) {
  NumberPlan coprime;
  coprime.multiples = {parse_decimal("1"), parse_decimal("0.123456789")};
  EXPECT_EQ(find_completion(coprime, NumberStyle::kPlain, "5"), "061728349");
  EXPECT_EQ(find_completion(coprime, NumberStyle::kPlain, "-1"), "23456789");
  NumberPlan point;
  point.raise_lower(parse_decimal("1e400"), false);
  point.reduce_upper(parse_decimal("1e400"), false);
  const auto rest = find_completion(point, NumberStyle::kAny, "0.00");
  ASSERT_TRUE(rest);
  EXPECT_TRUE(is_complete(point, "0.00" + *rest));
}

TEST(NumberPlanTest, ExponentsWithManyZeros) {
  NumberPlan plan;
  plan.raise_lower(parse_decimal("1e100"), false);
  plan.reduce_upper(parse_decimal("9e100"), false);
  std::string text = "1e";
  for (int zeros = 0; zeros < 12; ++zeros, text += '0') {
    bool goes_on = false;
    for (char digit = '0'; digit <= '9'; ++digit) {
      goes_on = goes_on || can_complete(plan, NumberStyle::kAny, text + digit);
    }
    EXPECT_EQ(can_complete(plan, NumberStyle::kAny, text), goes_on) << text;
  }
}

TEST(NumberPlanTest, CountsEnumerate) {
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    NumberPlan plan = random_plan(random);
    plan.multiples.push_back(parse_decimal("0.25"));
    if (!plan.lower || !plan.upper || compare(*plan.upper, parse_decimal("200")) > 0) {
      continue;
    }
    uint64_t members = 0;
    for (int quarters = -600; quarters <= 800; ++quarters) {
      members += plan.contains(parse_decimal(std::to_string(25 * quarters) + "e-2")) ? 1 : 0;
    }
    EXPECT_EQ(plan.count(100'000), members) << describe(plan, NumberStyle::kAny, "");
    EXPECT_EQ(plan.count(3), std::min<uint64_t>(members, 3))
        << describe(plan, NumberStyle::kAny, "");
    EXPECT_EQ(plan.is_empty(), members == 0) << describe(plan, NumberStyle::kAny, "");
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

TEST(NumberPlanTest, PlainIntegersHaveNoPoint) {
  NumberPlan plan;
  plan.multiples.push_back(parse_decimal("1"));
  EXPECT_FALSE(can_complete(plan, NumberStyle::kPlain, "1."));
  EXPECT_FALSE(can_complete(plan, NumberStyle::kPlain, "1e"));
  EXPECT_TRUE(can_complete(plan, NumberStyle::kAny, "1."));
  EXPECT_TRUE(can_complete(plan, NumberStyle::kAny, "1.5"));  // 1.5e1
}

}  // namespace
}  // namespace specdec
