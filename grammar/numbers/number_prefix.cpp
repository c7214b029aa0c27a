#include "grammar/numbers/number_prefix.h"

#include <algorithm>

#include "grammar/numbers/number_fractions.h"

namespace specdec {

NumberPrefix::NumberPrefix(std::string_view text) {
  if (text.starts_with('-')) {
    negative = true;
    text.remove_prefix(1);
  }
  const size_t letter = text.find_first_of("eE");
  if (letter != std::string_view::npos) {
    has_exponent = true;
    std::string_view rest = text.substr(letter + 1);
    if (rest.starts_with('-') || rest.starts_with('+')) {
      exponent_sign = rest.front();
      rest.remove_prefix(1);
    }
    exponent = rest;
    text = text.substr(0, letter);
  }
  const size_t point = text.find('.');
  has_point = point != std::string_view::npos;
  whole = text.substr(0, point);
  fraction = has_point ? std::string(text.substr(point + 1)) : "";
}

int64_t NumberPrefix::magnitude() const {
  return whole != "0"
             ? static_cast<int64_t>(whole.size())
             : -static_cast<int64_t>(std::min(fraction.find_first_not_of('0'), fraction.size()));
}

std::string NumberPrefix::text() const {
  return (negative ? "-" : "") + whole + (has_point ? "." : "") + fraction +
         (has_exponent ? "e" + exponent_sign + exponent : "");
}

bool NumberPrefix::is_number() const {
  return !whole.empty() && (!has_point || !fraction.empty()) &&
         (!has_exponent || !exponent.empty());
}

std::string NumberPrefix::significant_digits() const {
  const std::string digits = whole + fraction;
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

mpq_class NumberPrefix::mantissa() const {
  mpq_class value = mpz_class(whole + fraction, 10);
  return value * power_of_ten(-static_cast<int64_t>(fraction.size()));
}

bool NumberPrefix::fits_exponent(int64_t e) const {
  const bool below = exponent_sign == "-";
  if (e < 0 ? exponent_sign == "+" || (!below && !exponent.empty()) : below && e > 0) {
    return false;
  }
  const std::string digits = std::to_string(e < 0 ? -e : e);
  const size_t zeros = exponent.find_first_not_of('0');
  if (zeros == std::string::npos) {  // e may be one of the zeros, or follow them
    return (e == 0 && !exponent.empty()) || exponent.size() + digits.size() <= kMaxExponentDigits;
  }
  return zeros + digits.size() <= kMaxExponentDigits && digits.starts_with(exponent.substr(zeros));
}

std::string NumberPrefix::exponent_rest(int64_t e) const {
  const std::string digits = std::to_string(e < 0 ? -e : e);
  if (exponent.empty()) {
    return (e < 0 && exponent_sign.empty() ? "-" : "") + digits;
  }
  const size_t zeros = exponent.find_first_not_of('0');
  if (zeros == std::string::npos) {
    return e == 0 ? "" : digits;
  }
  return digits.substr(exponent.size() - zeros);
}

std::string NumberPrefix::digits_rest(mpq_class value) const {
  size_t decimals = 0;  // after the point
  for (; value.get_den() != 1; ++decimals) {
    value *= 10;
  }
  std::string digits = value.get_num().get_str();
  digits.insert(0, digits.size() > decimals ? 0 : decimals + 1 - digits.size(), '0');
  std::string rest = digits.substr(digits.size() - decimals);
  digits.resize(digits.size() - decimals);
  const size_t least = fraction.size() + (has_point && fraction.empty() ? 1 : 0);
  rest.append(rest.size() < least ? least - rest.size() : 0, '0');
  const std::string begun = whole + (has_point ? "." : "") + fraction;
  return (digits + (rest.empty() ? "" : "." + rest)).substr(begun.size());
}

}  // namespace specdec
