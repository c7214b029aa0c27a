#include "grammar/numbers/decimal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

struct Number {
  std::string text;
  mpq_class value;
};

/// A random number with its value, worked out here.
Number random_number(std::mt19937& random) {
  const uint32_t digits = 1 + random() % 6;
  const uint32_t places = random() % (digits + 1);
  const int exponent = static_cast<int>(random() % 9) - 4;
  mpz_class whole = random() % 5 == 0 ? random() % 30 : random() % 1'000'000;
  std::string text = whole.get_str();
  text.insert(0, text.size() <= places ? places + 1 - text.size() : 0, '0');
  text.insert(text.size() - places, places > 0 ? "." : "");
  mpq_class value = whole;
  for (int shift = static_cast<int>(places) - exponent; shift != 0; shift += shift > 0 ? -1 : 1) {
    value *= shift > 0 ? mpq_class(1, 10) : mpq_class(10);
  }
  if (random() % 3 == 0) {
    text.insert(0, "-");
    value = -value;
  }
  const bool plus = exponent >= 0 && random() % 2 == 0;
  text += (random() % 2 == 0 ? "e" : "E") + std::string(plus ? "+" : "") + std::to_string(exponent);
  return {text, value};
}

TEST(DecimalTest, AgreesWithFractions) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const Number a = random_number(random);
    const Number b = random_number(random);
    const Decimal x = parse_decimal(a.text);
    const Decimal y = parse_decimal(b.text);
    EXPECT_EQ(to_fraction(x), a.value) << a.text;
    EXPECT_EQ(compare(x, y), a.value < b.value   ? -1
                             : a.value > b.value ? 1
                                                 : 0)
        << a.text << " " << b.text;
    EXPECT_EQ(x == y, a.value == b.value) << a.text << " " << b.text;
    if (b.value != 0) {
      const mpq_class ratio = a.value / b.value;
      EXPECT_EQ(is_multiple(x, y), ratio.get_den() == 1) << a.text << " of " << b.text;
    }
  }
}

TEST(DecimalTest, MultiplesAreExact) {
  const auto multiple = [](std::string_view value, std::string_view unit) {
    return is_multiple(parse_decimal(value), parse_decimal(unit));
  };
  EXPECT_TRUE(multiple("0.3", "0.1"));
  EXPECT_TRUE(multiple("0.0075", "0.0001"));
  EXPECT_FALSE(multiple("0.00751", "0.0001"));
  EXPECT_TRUE(multiple("19.99", "0.01"));
  EXPECT_TRUE(multiple("1e308", "0.123456789e-3") == false);
  EXPECT_TRUE(multiple("-9", "3"));
  EXPECT_TRUE(multiple("0", "7"));
  EXPECT_TRUE(multiple("1e10", "1024"));
  EXPECT_FALSE(multiple("1e9", "1024"));
}

TEST(DecimalTest, EqualTextsOfOneValue) {
  const Decimal hundred = parse_decimal("100");
  for (const char* text :
       {"100.0", "1e2", "1E+2", "0.1e3", "10000e-2", "100.00e0", "1e0000000000002"}) {
    EXPECT_EQ(parse_decimal(text), hundred) << text;
  }
  for (const char* text : {"0", "-0", "0.0", "0e99", "-0.00E-7", "0e999999999999"}) {
    EXPECT_EQ(parse_decimal(text), Decimal()) << text;
  }
}

TEST(DecimalTest, HugeExponentsAreQuick) {
  const Decimal huge = parse_decimal("7e999999999");
  const Decimal tiny = parse_decimal("-7e-999999999");
  EXPECT_EQ(compare(huge, tiny), 1);
  EXPECT_EQ(compare(tiny, Decimal()), -1);
  EXPECT_EQ(compare(huge, huge), 0);
  EXPECT_EQ(compare(huge, parse_decimal("8e999999999")), -1);
  EXPECT_EQ(compare(huge, parse_decimal("70e999999998")), 0);
  EXPECT_EQ(compare(huge, parse_decimal("69e999999998")), 1);
  EXPECT_TRUE(is_multiple(huge, parse_decimal("3.5")));
  EXPECT_FALSE(is_multiple(huge, parse_decimal("3")));
  EXPECT_FALSE(is_multiple(tiny, parse_decimal("1")));
}

TEST(DecimalTest, Limits) {
  EXPECT_THAT(error_message<GrammarError>([] { parse_decimal("1e1000000000"); }),
              HasSubstr("too large"));
  EXPECT_THAT(error_message<GrammarError>([] { parse_decimal(std::string(10'001, '1')); }),
              HasSubstr("more than 10000 digits"));
  EXPECT_THAT(error_message<GrammarError>([] { to_fraction(parse_decimal("1e501")); }),
              HasSubstr("10^500 "));
  EXPECT_EQ(to_fraction(parse_decimal("1e-500")) > 0, true);
}

}  // namespace
}  // namespace specdec
