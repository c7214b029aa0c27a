#pragma once
#include <gmpxx.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace specdec {

/// The exact value of a JSON number: `digits` * 10^`exponent`, without trailing zeros in the
/// digits.
struct Decimal {
  mpz_class digits = 0;
  int64_t exponent = 0;

  bool operator==(const Decimal& other) const = default;
};

/// The longest exponent that is read, in digits.
inline constexpr size_t kMaxExponentDigits = 9;

/// Reads the text of a JSON number. Throws GrammarError when its exponent is longer, or it has more
/// than 10,000 digits.
Decimal parse_decimal(std::string_view text);

/// The position of the first digit of a number that is not zero:
/// 10^(magnitude - 1) <= |value| < 10^magnitude.
int64_t magnitude(const Decimal& value);
/// -1, 0 or 1. Quick also when the exponents are far apart.
int compare(const Decimal& a, const Decimal& b);
/// True when `value` is a whole multiple of `unit`, which is not zero.
bool is_multiple(const Decimal& value, const Decimal& unit);
/// The value as a fraction. Throws GrammarError when its exponent is beyond +-500.
mpq_class to_fraction(const Decimal& value);

}  // namespace specdec
