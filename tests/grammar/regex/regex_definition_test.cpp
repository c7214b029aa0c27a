// Random expressions against what their definition says.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "core/error.h"
#include "grammar/regex/regex.h"

namespace specdec {
namespace {

RegexId code_points(RegexStore& store, char32_t first, char32_t last) {
  return store.one_of(CodePoints({{first, last}}));
}

/// An expression that is matched as its definition says, by trying all splits.
struct Expression {
  enum class Kind { kRange, kEmpty, kConcat, kOr, kAnd, kNot, kRepeat } kind = Kind::kEmpty;
  char32_t first = 0;
  char32_t last = 0;
  uint64_t min = 0;
  std::optional<uint64_t> max;
  std::unique_ptr<Expression> a;
  std::unique_ptr<Expression> b;

  bool matches(std::u32string_view text) const {
    switch (kind) {
      case Kind::kRange:
        return text.size() == 1 && first <= text[0] && text[0] <= last;
      case Kind::kEmpty:
        return text.empty();
      case Kind::kOr:
        return a->matches(text) || b->matches(text);
      case Kind::kAnd:
        return a->matches(text) && b->matches(text);
      case Kind::kNot:
        return !a->matches(text);
      case Kind::kConcat:
        for (size_t i = 0; i <= text.size(); ++i) {
          if (a->matches(text.substr(0, i)) && b->matches(text.substr(i))) {
            return true;
          }
        }
        return false;
      case Kind::kRepeat:
        return repeats(text, 0);
    }
    return false;
  }

  /// Rounds that match nothing only help to reach `min`.
  bool repeats(std::u32string_view text, uint64_t done) const {
    if (text.empty() && (done >= min || a->matches(text))) {
      return true;
    }
    if (max && done >= *max) {
      return false;
    }
    for (size_t i = 1; i <= text.size(); ++i) {
      if (a->matches(text.substr(0, i)) && repeats(text.substr(i), done + 1)) {
        return true;
      }
    }
    return false;
  }

  RegexId build(RegexStore& store) const {
    switch (kind) {
      case Kind::kRange:
        return code_points(store, first, last);
      case Kind::kEmpty:
        return RegexStore::kEmpty;
      case Kind::kOr:
        return store.any_of(a->build(store), b->build(store));
      case Kind::kAnd:
        return store.all_of(a->build(store), b->build(store));
      case Kind::kNot:
        return store.complement(a->build(store));
      case Kind::kConcat:
        return store.concat(a->build(store), b->build(store));
      case Kind::kRepeat:
        return store.repeat(a->build(store), min, max);
    }
    return RegexStore::kNothing;
  }
};

std::unique_ptr<Expression> random_expression(std::mt19937& random, int size, bool sets) {
  using Kind = Expression::Kind;
  auto expression = std::make_unique<Expression>();
  const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  if (size <= 1) {
    expression->kind = draw(8) == 0 ? Kind::kEmpty : Kind::kRange;
    expression->first = U'a' + draw(3);
    expression->last = expression->first + draw(2);
    return expression;
  }
  const std::vector<Kind> kinds = {Kind::kConcat, Kind::kConcat, Kind::kOr,
                                   Kind::kRepeat, Kind::kAnd,    Kind::kNot};
  expression->kind = kinds[draw(sets ? 6 : 4)];
  const bool one = expression->kind == Kind::kRepeat || expression->kind == Kind::kNot;
  const int left = one ? size - 1 : 1 + static_cast<int>(draw(static_cast<unsigned>(size) - 1));
  expression->a = random_expression(random, left, sets);
  if (!one) {
    expression->b = random_expression(random, size - left, sets);
  }
  expression->min = draw(3);
  if (draw(2) == 0) {
    expression->max = expression->min + draw(3);
  }
  return expression;
}

std::vector<std::u32string> all_texts(std::u32string_view letters, size_t max_length) {
  std::vector<std::u32string> texts = {U""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < max_length; ++i) {
    for (const char32_t letter : letters) {
      texts.push_back(texts[i] + letter);
    }
  }
  return texts;
}

/// Walks, counts, lists and shortest texts of random expressions against their definition.
void check_random_expressions(bool sets, int rounds) {
  std::mt19937 random(sets ? 1 : 2);
  const auto texts = all_texts(U"abcd", 4);
  for (int round = 0; round < rounds; ++round) {
    RegexStore store;
    const auto expression = random_expression(random, 2 + round % 8, sets);
    const RegexId regex = expression->build(store);
    const RegexId letters = store.repeat(code_points(store, 'a', 'd'), 0, 4);
    const RegexId bounded = store.all_of(regex, letters);
    std::vector<std::u32string> expected;
    for (const std::u32string& text : texts) {
      if (expression->matches(text)) {
        expected.push_back(text);
      }
      ASSERT_EQ(store.matches(regex, text), expression->matches(text))
          << "round " << round << " text '" << to_utf8(text) << "'";
    }
    ASSERT_EQ(store.list(bounded, 10'000), expected) << "round " << round;
    ASSERT_EQ(store.count(bounded, 10'000), expected.size()) << "round " << round;
    ASSERT_EQ(store.is_nothing(bounded), expected.empty()) << "round " << round;
    ASSERT_TRUE(store.is_finite(bounded));
    const auto shortest = store.shortest(regex);
    ASSERT_EQ(shortest.has_value(), !store.is_nothing(regex)) << "round " << round;
    if (shortest && shortest->size() < 7) {
      ASSERT_TRUE(expression->matches(*shortest)) << "round " << round;
    }
    if (!expected.empty()) {
      ASSERT_LE(shortest->size(), expected[0].size()) << "round " << round;
    }
  }
}

TEST(RegexDefinitionTest, RandomExpressionsMatchTheirDefinition) {
  check_random_expressions(false, 1500);
}

TEST(RegexDefinitionTest, RandomExpressionsWithSetsMatchTheirDefinition) {
  check_random_expressions(true, 1500);
}

TEST(RegexDefinitionTest, NextIsNothingExactlyWhenNothingCanFollow) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    RegexStore store;
    const RegexId regex = random_expression(random, 3 + round % 8, true)->build(store);
    std::vector<RegexId> seen = {regex};
    for (size_t i = 0; i < seen.size() && i < 40; ++i) {
      char32_t first = 0;
      const std::vector<RegexStore::Transition> transitions = store.transitions(seen[i]);
      for (const RegexStore::Transition& t : transitions) {
        ASSERT_EQ(store.next(seen[i], first), t.target);
        ASSERT_EQ(store.next(seen[i], t.last), t.target);
        ASSERT_EQ(t.target == RegexStore::kNothing, !store.shortest(t.target).has_value());
        if (std::find(seen.begin(), seen.end(), t.target) == seen.end()) {
          seen.push_back(t.target);
        }
        first = t.last + 1;
      }
      ASSERT_EQ(first, CodePoints::kLast + 1);
    }
  }
}

}  // namespace
}  // namespace specdec
