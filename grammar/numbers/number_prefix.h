#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/numbers/decimal.h"

namespace specdec {

/// The beginning of a JSON number, taken apart.
struct NumberPrefix {
  bool negative = false;
  std::string whole;
  bool has_point = false;
  std::string fraction;
  bool has_exponent = false;
  std::string exponent_sign;
  std::string exponent;

  explicit NumberPrefix(std::string_view text);

  /// Magnitude of the mantissa, as Decimal has it. Its continuations have the same one, unless all
  /// digits are zeros.
  int64_t magnitude() const;
  std::string text() const;
  bool is_whole() const { return !has_point && !has_exponent; }
  bool is_number() const;

  /// Digits from the first that is not zero on; empty when all are.
  std::string significant_digits() const;
  mpq_class mantissa() const;
  /// Whether an exponent that begins so can be e.
  bool fits_exponent(int64_t e) const;
  /// What follows in an exponent that it fits.
  std::string exponent_rest(int64_t e) const;

  /// What follows in the digits of a value that begins so.
  std::string digits_rest(mpq_class value) const;
};

}  // namespace specdec
