#include "grammar/numbers/decimal.h"

#include <charconv>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kMaxDigits = 10'000;
constexpr int64_t kMaxFractionExponent = 500;  ///< beyond float64, and quick to ask about

int64_t read_exponent(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative ? 1 : 0);
  while (text.size() > 1 && text.front() == '0') {
    text.remove_prefix(1);
  }
  int64_t value = 0;
  if (text.size() > kMaxExponentDigits) {
    throw GrammarError(fmt::format("the exponent {} of a number is too large", text));
  }
  std::from_chars(text.data(), text.data() + text.size(), value);
  return negative ? -value : value;
}

mpz_class power_of_ten(uint64_t exponent) {
  mpz_class result;
  mpz_ui_pow_ui(result.get_mpz_t(), 10, exponent);
  return result;
}

}  // namespace

Decimal parse_decimal(std::string_view text) {
  const size_t letter = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, letter);
  if (mantissa.size() > kMaxDigits) {
    throw GrammarError(fmt::format("a number has more than {} digits", kMaxDigits));
  }
  const size_t point = mantissa.find('.');
  std::string digits(mantissa.substr(0, point));
  Decimal result;
  if (point != std::string_view::npos) {
    digits += mantissa.substr(point + 1);
    result.exponent = -static_cast<int64_t>(mantissa.size() - point - 1);
  }
  const size_t last = digits.find_last_not_of('0');
  if (last == std::string::npos || digits[last] == '-') {
    return {};
  }
  result.exponent += static_cast<int64_t>(digits.size() - last - 1);
  result.digits = mpz_class(digits.substr(0, last + 1), 10);
  if (letter != std::string_view::npos) {
    result.exponent += read_exponent(text.substr(letter + 1));
  }
  return result;
}

int64_t magnitude(const Decimal& value) {
  const mpz_class absolute = abs(value.digits);
  if (!absolute.fits_ulong_p()) {
    return static_cast<int64_t>(absolute.get_str().size()) + value.exponent;
  }
  int64_t digits = 1;
  for (uint64_t left = absolute.get_ui() / 10; left > 0; left /= 10) {
    ++digits;
  }
  return digits + value.exponent;
}

int compare(const Decimal& a, const Decimal& b) {
  const int sign_a = sgn(a.digits);
  const int sign_b = sgn(b.digits);
  if (sign_a != sign_b || sign_a == 0) {
    return sign_a < sign_b ? -1 : sign_a > sign_b ? 1 : 0;
  }
  if (a.exponent == b.exponent) {
    const int order = cmp(a.digits, b.digits);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  const int64_t place_a = magnitude(a);
  const int64_t place_b = magnitude(b);
  if (place_a != place_b) {
    return place_a < place_b ? -sign_a : sign_a;
  }
  const int64_t shift = a.exponent - b.exponent;
  const mpz_class scale = power_of_ten(static_cast<uint64_t>(shift < 0 ? -shift : shift));
  const int order =
      shift >= 0 ? cmp(mpz_class(a.digits * scale), b.digits) : cmp(a.digits, b.digits * scale);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

bool is_multiple(const Decimal& value, const Decimal& unit) {
  SPECDEC_CHECK(unit.digits != 0, "nothing but zero is a multiple of zero");
  if (value.digits == 0) {
    return true;
  }
  if (value.exponent < unit.exponent) {
    return false;  // the digits have no factor 10 left
  }
  const mpz_class modulus = abs(unit.digits);
  mpz_class scale;
  const mpz_class exponent(value.exponent - unit.exponent);
  const mpz_class ten = 10;
  mpz_powm(scale.get_mpz_t(), ten.get_mpz_t(), exponent.get_mpz_t(), modulus.get_mpz_t());
  return value.digits * scale % modulus == 0;
}

mpq_class to_fraction(const Decimal& value) {
  if (value.exponent > kMaxFractionExponent || value.exponent < -kMaxFractionExponent) {
    throw GrammarError(fmt::format("numbers beyond 10^{} (or as close to zero) are not supported",
                                   kMaxFractionExponent));
  }
  const mpz_class scale =
      power_of_ten(static_cast<uint64_t>(value.exponent < 0 ? -value.exponent : value.exponent));
  mpq_class result = value.exponent < 0 ? mpq_class(value.digits, scale)
                                        : mpq_class(mpz_class(value.digits * scale));
  result.canonicalize();
  return result;
}

}  // namespace specdec
