// Several numbers of a set that a text can become.
#include <algorithm>

#include "grammar/numbers/number_texts.h"

namespace specdec {
namespace {

/// Texts that make the beginning of a number of any size different numbers.
std::vector<std::string> any_completions(const NumberPrefix& prefix, uint64_t most) {
  const bool zero = !prefix.whole.empty() && prefix.significant_digits().empty();
  if (prefix.has_exponent && zero) {
    return {prefix.is_number() ? "" : "0"};
  }
  std::vector<std::string> texts;
  for (uint64_t i = 1; i <= most; ++i) {
    const std::string digits = std::to_string(i);
    const bool fraction = !prefix.has_exponent && (prefix.has_point || prefix.whole == "0");
    texts.push_back((fraction && !prefix.has_point ? "." : "") + digits + (fraction ? "1" : ""));
  }
  return texts;
}

}  // namespace

std::vector<std::string> NumberTexts::completions(std::string_view text, uint64_t most) const {
  const NumberPrefix prefix(text);
  if (plan_.is_everything()) {
    return any_completions(prefix, most);
  }
  Completions found;
  complete(prefix, most, found);
  std::vector<std::string> texts;
  for (auto& [value, rest] : found) {
    const bool whole = not_whole_ && NumberPrefix(std::string(text) + rest).is_whole();
    texts.push_back(std::move(rest) + (whole ? ".0" : ""));
  }
  return texts;
}

bool NumberTexts::has_completions(std::string_view text, uint64_t many) const {
  const NumberPrefix prefix(text);
  if (plan_.is_everything()) {
    const bool zero = !prefix.whole.empty() && prefix.significant_digits().empty();
    return !(prefix.has_exponent && zero) || many <= 1;
  }
  if (prefix.has_exponent || prefix.whole.empty()) {
    return false;
  }
  const bool endless = prefix.negative ? !plan_.lower : !plan_.upper;
  const bool more_digits = !prefix.has_point && prefix.whole != "0";
  if (endless && more_digits && plan_.not_multiples.empty() && !plan_.members) {
    return true;
  }
  return visit_shifts(
      prefix, [&](Shift shift) { return set_.count(cone(prefix, shift.power), many) >= many; });
}

void NumberTexts::complete(const NumberPrefix& prefix, uint64_t most, Completions& found) const {
  if (prefix.has_exponent) {
    return complete_exponent(prefix, most, found);
  }
  if (prefix.whole.empty()) {
    visit_first_digits(prefix, [&](const NumberPrefix& next) {
      Completions more;
      complete(next, most, more);
      for (auto& [value, rest] : more) {
        found.emplace(value, (next.negative && !prefix.negative ? "-" : "") + next.whole + rest);
      }
      return found.size() >= most;
    });
    return;
  }
  visit_shifts(prefix, [&](Shift shift) {
    complete_shifted(prefix, shift, most, found);
    return found.size() >= most;
  });
}

void NumberTexts::complete_shifted(const NumberPrefix& prefix, Shift shift, uint64_t most,
                                   Completions& found) const {
  for (const mpq_class& value : set_.list(cone(prefix, shift.power), most)) {
    const mpq_class digits =
        abs(value) * (shift.exponent ? power_of_ten(-shift.power) : mpq_class(1));
    const std::string power = shift.exponent ? "e" + std::to_string(shift.power) : "";
    found.emplace(value, prefix.digits_rest(digits) + power);
  }
}

void NumberTexts::complete_exponent(const NumberPrefix& prefix, uint64_t most,
                                    Completions& found) const {
  const auto first = first_exponent(prefix);
  const mpq_class value = prefix.mantissa();
  if (!first || sgn(value) == 0) {
    if (first) {
      found.emplace(0, prefix.exponent_rest(*first));
    }
    return;
  }
  const int64_t window = this->window(prefix);
  for (int64_t e = -window; e <= window && found.size() < most; ++e) {
    const mpq_class whole = value * power_of_ten(e);
    if (prefix.fits_exponent(e) && contains(prefix, whole)) {
      found.emplace(prefix.negative ? mpq_class(-whole) : whole, prefix.exponent_rest(e));
    }
  }
  for (const int sign : {1, -1}) {  // beyond it, one more digit at a time, all answer alike
    const bool fits = !(sign > 0 ? prefix.exponent_sign == "-" : prefix.exponent_sign == "+");
    const auto beyond = fits ? beyond_window(prefix, sign) : std::nullopt;
    if (!beyond) {
      continue;
    }
    NumberPrefix next = prefix;
    std::string rest = prefix.exponent_rest(*beyond);
    if (prefix.exponent.empty() && prefix.exponent_sign.empty() && sign < 0) {
      next.exponent_sign = "-";
    }
    next.exponent += rest.substr(rest.starts_with('-') ? 1 : 0);
    for (uint64_t i = 0; next.exponent.size() <= kMaxExponentDigits && i < most; ++i) {
      // Values so far apart are told by their exponents: any different fractions stand for them.
      found.emplace(
          sign * (mpq_class(mpz_class(1)) * power_of_ten(2 * window + 1 + static_cast<int64_t>(i))),
          rest);
      rest += '0';
      next.exponent += '0';
    }
  }
}

}  // namespace specdec
