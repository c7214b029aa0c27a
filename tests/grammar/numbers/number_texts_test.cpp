#include "grammar/numbers/number_texts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/support/number_beginnings.h"
#include "tests/support/random_number_plan.h"

namespace specdec {
namespace {

std::string describe(const NumberPlan& plan, NumberStyle style, const std::string& text) {
  return (style == NumberStyle::kAny ? "any " : "plain ") + describe(plan) + "'" + text + "'";
}

/// What the style allows at all; no number between bounds has more than nine digits in its
/// exponent.
bool has_style(const NumberPlan& plan, NumberStyle style, std::string_view text) {
  if (plan.is_everything()) {
    return true;
  }
  const bool whole_text = text.find_first_of(".eE") == std::string_view::npos;
  if (plan.written != NumberPlan::Written::kAnyWay &&
      whole_text != (plan.written == NumberPlan::Written::kWhole)) {
    return false;
  }
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos &&
      text.size() - exponent >
          10 + (exponent + 1 < text.size() && in(text[exponent + 1], "+-") ? 1 : 0)) {
    return false;
  }
  if (style == NumberStyle::kAny || plan.written == NumberPlan::Written::kNotWhole) {
    return true;
  }
  bool whole = false;
  for (const Decimal& unit : plan.multiples) {
    whole = whole || to_fraction(unit).get_den() == 1;
  }
  const bool point = text.find('.') != std::string_view::npos;
  const bool letter = text.find_first_of("eE") != std::string_view::npos;
  return !(whole && point) && !letter;
}

bool is_text(const NumberPlan& plan, NumberStyle style, const std::string& text) {
  return begins_number(text) && in(text.empty() ? '-' : text.back(), "0123456789") &&
         has_style(plan, style, text) &&
         (plan.is_everything() || plan.contains(parse_decimal(text)));
}

/// Which texts of an alphabet can be completed, by trying all up to a length.
class Tried {
 public:
  Tried(const NumberPlan& plan, NumberStyle style, std::string_view alphabet)
      : plan_(plan), style_(style), alphabet_(alphabet) {}

  bool visit(const std::string& text, size_t more) {
    bool found = is_text(plan_, style_, text);
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
TEST(NumberTextsTest, WhatHasACompletionIsAlive) {
  std::mt19937 random(1);
  for (int i = 0; i < 150; ++i) {
    const NumberPlan plan = random_number_plan(random);
    const NumberStyle style = i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    Tried tried(plan, style, "0125.-e");
    tried.visit("", 5);
    for (const auto& [text, completable] : tried.completable()) {
      if (completable && !plan.is_empty()) {
        EXPECT_TRUE(NumberTexts(plan, style).can_complete(text)) << describe(plan, style, text);
      }
      EXPECT_FALSE(completable && plan.is_empty()) << describe(plan, style, text);
    }
  }
}

/// A text is alive exactly when it is complete or some longer one is: so nothing that is alive is a
/// dead end, and no completion is missed.
void expect_consistent(const NumberPlan& plan, NumberStyle style, std::mt19937& random) {
  constexpr std::string_view kAlphabet = "0123456789.-+eE";
  const NumberTexts texts(plan, style);
  std::string text;
  for (int steps = 0; steps < 24; ++steps) {
    std::string alive;
    for (const char c : kAlphabet) {
      if (begins_number(text + c) && texts.can_complete(text + c)) {
        alive += c;
      }
    }
    const bool complete = is_text(plan, style, text);
    EXPECT_EQ(texts.is_complete(text), begins_number(text) && complete)
        << describe(plan, style, text);
    EXPECT_EQ(texts.can_complete(text), complete || !alive.empty()) << describe(plan, style, text);
    const auto rest = texts.find_completion(text);
    EXPECT_EQ(rest.has_value(), texts.can_complete(text)) << describe(plan, style, text);
    EXPECT_TRUE(!rest || is_text(plan, style, text + *rest))
        << describe(plan, style, text) << " + '" << *rest << "'";
    const bool beyond = random() % 8 == 0;  // also from texts that are dead already
    const std::string_view next = beyond || alive.empty() ? kAlphabet : alive;
    const char c = next[random() % next.size()];
    text = begins_number(text + c) ? text + c : text;
  }
}

TEST(NumberTextsTest, AliveMeansCompleteOrAliveOneLetterOn) {
  std::mt19937 random(2);
  for (int i = 0; i < 600; ++i) {
    const NumberPlan plan = random_number_plan(random);
    expect_consistent(plan, i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain, random);
  }
}

/// What is alive can be finished by letters that keep it alive, in few steps.
TEST(NumberTextsTest, WhatIsAliveCanBeFinished) {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    const NumberPlan plan = random_number_plan(random);
    const NumberStyle style = i % 2 == 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    if (plan.is_empty()) {
      continue;
    }
    std::string text;
    int steps = 0;
    for (; steps < 500 && !is_text(plan, style, text); ++steps) {
      std::string alive;
      for (const char c : std::string_view("0123456789.-e")) {
        if (begins_number(text + c) && NumberTexts(plan, style).can_complete(text + c)) {
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

/// Whatever comes after a text decides of its representative as of itself.
TEST(NumberTextsTest, RepresentativesGoOnAlike) {
  std::mt19937 random(5);
  for (int i = 0; i < 800; ++i) {
    NumberPlan plan = random_number_plan(random);
    if (i % 4 > 0) {  // those that texts are told apart in by size
      plan.not_multiples.clear();
      plan.multiples.clear();
      plan.written = NumberPlan::Written::kAnyWay;
    }
    if (i % 4 > 1) {
      plan.multiples = {parse_decimal("1")};
      random_writing(random, plan);
    }
    const NumberStyle style = random() % 3 > 0 ? NumberStyle::kAny : NumberStyle::kPlain;
    const NumberTexts texts(plan, style);
    const std::string_view alphabet = random() % 2 == 0 ? "0123456789.-+eE" : "000112255599..-+e";
    const std::string text = random_text("", random() % 12, alphabet, random);
    const std::string other = texts.representative(text);
    ASSERT_TRUE(begins_number(other)) << describe(plan, style, text) << " " << other;
    EXPECT_EQ(texts.representative(other), other) << describe(plan, style, text);
    for (int tail = 0; tail < 20; ++tail) {
      const std::string longer = random_text(text, random() % 8, alphabet, random);
      const std::string rest = longer.substr(text.size());
      ASSERT_TRUE(begins_number(other + rest)) << describe(plan, style, longer) << " " << other;
      EXPECT_EQ(texts.is_complete(longer), texts.is_complete(other + rest))
          << describe(plan, style, longer) << " " << other;
      EXPECT_EQ(texts.can_complete(longer), texts.can_complete(other + rest))
          << describe(plan, style, longer) << " " << other;
      const std::string_view all = "0123456789.-+eE";
      for (const char c : all) {
        ASSERT_EQ(begins_number(text + c), begins_number(other + c)) << text << " " << other;
      }
    }
  }
}

/// Many texts, few representatives.
TEST(NumberTextsTest, FewPlacesInNumbers) {
  const auto places = [](const NumberPlan& plan, NumberStyle style) {
    const NumberTexts texts(plan, style);
    std::set<std::string> found;
    for (int i = -20'000; i <= 20'000; ++i) {
      found.insert(texts.representative(std::to_string(i)));
      found.insert(texts.representative(std::to_string(i / 100) + "." + std::to_string(i & 63)));
    }
    return found.size();
  };
  NumberPlan plan;
  EXPECT_LE(places(plan, NumberStyle::kAny), 4U);
  plan.raise_lower(parse_decimal("0"), false);
  EXPECT_LE(places(plan, NumberStyle::kAny), 8U);
  plan.reduce_upper(parse_decimal("1"), false);
  EXPECT_LE(places(plan, NumberStyle::kAny), 40U);
  NumberPlan bytes;
  bytes.multiples.push_back(parse_decimal("1"));
  bytes.raise_lower(parse_decimal("0"), false);
  bytes.reduce_upper(parse_decimal("255"), false);
  EXPECT_LE(places(bytes, NumberStyle::kPlain), 60U);
}

/// Numbers that enumerations of digits would never reach.
TEST(NumberTextsTest, FarNumbersAreFound) {
  NumberPlan coprime;
  coprime.multiples = {parse_decimal("1"), parse_decimal("0.123456789")};
  EXPECT_EQ(NumberTexts(coprime, NumberStyle::kPlain).find_completion("5"), "061728349");
  EXPECT_EQ(NumberTexts(coprime, NumberStyle::kPlain).find_completion("-1"), "23456789");
  NumberPlan point;
  point.raise_lower(parse_decimal("1e400"), false);
  point.reduce_upper(parse_decimal("1e400"), false);
  const auto rest = NumberTexts(point, NumberStyle::kAny).find_completion("0.00");
  ASSERT_TRUE(rest);
  EXPECT_TRUE(is_text(point, NumberStyle::kAny, "0.00" + *rest));
}

TEST(NumberTextsTest, ExponentsWithManyZeros) {
  NumberPlan plan;
  plan.raise_lower(parse_decimal("1e100"), false);
  plan.reduce_upper(parse_decimal("9e100"), false);
  std::string text = "1e";
  for (int zeros = 0; zeros < 12; ++zeros, text += '0') {
    bool goes_on = false;
    for (char digit = '0'; digit <= '9'; ++digit) {
      goes_on = goes_on || NumberTexts(plan, NumberStyle::kAny).can_complete(text + digit);
    }
    EXPECT_EQ(NumberTexts(plan, NumberStyle::kAny).can_complete(text), goes_on) << text;
  }
}

TEST(NumberTextsTest, PlainIntegersHaveNoPoint) {
  NumberPlan plan;
  plan.multiples.push_back(parse_decimal("1"));
  EXPECT_FALSE(NumberTexts(plan, NumberStyle::kPlain).can_complete("1."));
  EXPECT_FALSE(NumberTexts(plan, NumberStyle::kPlain).can_complete("1e"));
  EXPECT_TRUE(NumberTexts(plan, NumberStyle::kAny).can_complete("1."));
  EXPECT_TRUE(NumberTexts(plan, NumberStyle::kAny).can_complete("1.5"));  // 1.5e1
}

}  // namespace
}  // namespace specdec
