#include "grammar/numbers/number_texts.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

namespace {

int64_t digits_of(const Decimal& value) {
  const int64_t digits = static_cast<int64_t>(mpz_class(abs(value.digits)).get_str().size());
  return digits + (value.exponent < 0 ? -value.exponent : value.exponent);
}

}  // namespace

NumberTexts::NumberTexts(const NumberPlan& plan, NumberStyle style) : plan_(plan), set_(plan) {
  using Written = NumberPlan::Written;
  not_whole_ = plan.written == Written::kNotWhole;
  const bool any = not_whole_ || (style == NumberStyle::kAny && plan.written != Written::kWhole);
  const bool whole = set_.unit() && *set_.unit() == 1;
  free_exponent_ = any || plan.is_everything();
  whole_only_ = !any && std::any_of(plan.multiples.begin(), plan.multiples.end(),
                                    [](const Decimal& unit) { return unit.exponent >= 0; });
  told_by_size_ = plan.not_multiples.empty() && !plan.members && (whole || !set_.unit());
  scaled_units_ = whole && any;
  for (const std::optional<Decimal>* bound : {&plan.lower, &plan.upper}) {
    if (*bound && sgn((*bound)->digits) != 0) {
      window_ = std::max(window_, digits_of(**bound));
      bounds_.push_back({sgn((*bound)->digits) < 0, mpz_class(abs((*bound)->digits)).get_str()});
    }
  }
  for (const Decimal& value : plan.excluded) {  // like two bounds, below and above it
    window_ = std::max(window_, digits_of(value));
    if (sgn(value.digits) != 0) {
      bounds_.push_back({sgn(value.digits) < 0, mpz_class(abs(value.digits)).get_str()});
    }
  }
  for (const Decimal& value : plan.members.value_or(std::vector<Decimal>())) {
    window_ = std::max(window_, digits_of(value));
  }
  for (const std::vector<Decimal>* units : {&plan.multiples, &plan.not_multiples}) {
    for (const Decimal& unit : *units) {  // d digits have up to log2(10) d factors of two
      window_ = std::max(window_, 4 * digits_of(unit));
    }
  }
}

bool NumberTexts::can_complete(std::string_view text) const {
  return can_complete(NumberPrefix(text));
}

bool NumberTexts::can_complete(const NumberPrefix& prefix) const {
  if (plan_.is_everything()) {
    return true;
  }
  if (prefix.has_exponent) {
    return first_exponent(prefix).has_value();
  }
  return prefix.whole.empty()
             ? visit_first_digits(prefix,
                                  [&](const NumberPrefix& next) { return can_complete(next); })
             : first_shift(prefix).has_value();
}

std::optional<std::string> NumberTexts::find_completion(std::string_view text) const {
  auto rest = find_completion(NumberPrefix(text));
  if (rest && not_whole_ && NumberPrefix(std::string(text) + *rest).is_whole()) {
    *rest += ".0";
  }
  return rest;
}

std::optional<std::string> NumberTexts::find_completion(const NumberPrefix& prefix) const {
  if (plan_.is_everything()) {
    return prefix.is_number() ? "" : "0";
  }
  if (prefix.has_exponent) {
    const auto exponent = first_exponent(prefix);
    return exponent ? std::optional(prefix.exponent_rest(*exponent)) : std::nullopt;
  }
  if (prefix.whole.empty()) {
    std::optional<std::string> best;
    visit_first_digits(prefix, [&](const NumberPrefix& next) {
      const std::string sign = next.negative && !prefix.negative ? "-" : "";
      const auto rest = find_completion(next);
      if (rest && (!best || sign.size() + 1 + rest->size() < best->size())) {
        best = sign + next.whole + *rest;
      }
      return false;
    });
    return best;
  }
  const auto shift = first_shift(prefix);
  const auto value = shift ? set_.find(cone(prefix, shift->power)) : std::nullopt;
  if (!value) {
    return std::nullopt;
  }
  if (!shift->exponent) {
    return prefix.digits_rest(abs(*value));
  }
  return prefix.digits_rest(abs(*value) * power_of_ten(-shift->power)) + "e" +
         std::to_string(shift->power);
}

bool NumberTexts::is_complete(std::string_view text) const {
  const NumberPrefix prefix(text);
  if (!prefix.is_number() || plan_.is_everything()) {
    return prefix.is_number();
  }
  const bool styled = !(whole_only_ && prefix.has_point) &&
                      (free_exponent_ || !prefix.has_exponent) &&
                      !(not_whole_ && prefix.is_whole());
  return styled && prefix.exponent.size() <= kMaxExponentDigits &&
         plan_.contains(parse_decimal(text));
}

// ---- Which continuations there are --------------------------------------------------------------

int64_t NumberTexts::window(const NumberPrefix& prefix) const {
  return window_ + static_cast<int64_t>(prefix.whole.size() + prefix.fraction.size()) + 3;
}

/// The powers of ten that may bring the digits to the size of a number of the set.
NumberTexts::Magnitudes NumberTexts::scales(const NumberPrefix& prefix) const {
  Magnitudes result = prefix.negative ? negative_ : positive_;
  if (prefix.significant_digits().empty()) {
    return {};
  }
  result.least -= prefix.magnitude();
  result.most -= prefix.magnitude();
  return result;
}

/// Visits those that begin with a digit, with a sign if there was none, until one says true.
bool NumberTexts::visit_first_digits(const NumberPrefix& prefix,
                                     const std::function<bool(const NumberPrefix&)>& visit) {
  for (const bool negative : {false, true}) {
    for (char digit = '0'; digit <= '9' && (negative || !prefix.negative); ++digit) {
      NumberPrefix next = prefix;
      next.negative = negative;
      next.whole = digit;
      if (visit(next)) {
        return true;
      }
    }
  }
  return false;
}

/// False when all numbers that begin so have a sign that no number of the set has.
bool NumberTexts::may_have_sign(const NumberPrefix& prefix) const {
  return prefix.negative ? set_.may_be_negative() : set_.may_be_positive();
}

bool NumberTexts::contains(const NumberPrefix& prefix, const mpq_class& absolute) const {
  const mpq_class value = prefix.negative ? mpq_class(-absolute) : absolute;
  return set_.count({value, value, false, false}, 1) > 0;
}

/// The continuations of the digits, times ten to the `power`.
NumberFractions::Interval NumberTexts::cone(const NumberPrefix& prefix, int64_t power) const {
  const mpq_class scale = power_of_ten(power);
  const mpq_class low = prefix.mantissa() * scale;
  const mpq_class width = power_of_ten(-static_cast<int64_t>(prefix.fraction.size())) * scale;
  const bool as_they_are = whole_only_ && power == 0;
  NumberFractions::Interval cone{low, as_they_are ? low : mpq_class(low + width), false,
                                 !as_they_are};
  if (prefix.negative) {
    cone = {mpq_class(-*cone.upper), mpq_class(-low), cone.upper_open, false};
  }
  return cone;
}

/// Visits the shifts after which the digits go on to numbers of the set, until one says true.
bool NumberTexts::visit_shifts(const NumberPrefix& prefix,
                               const std::function<bool(Shift)>& visit) const {
  if (prefix.has_point && whole_only_) {
    return false;
  }
  const Magnitudes scales = this->scales(prefix);
  const auto grows = [&](int64_t power) {
    return scales.least <= power && power <= scales.most && set_.count(cone(prefix, power), 1) > 0;
  };
  if (!may_have_sign(prefix)) {  // only zero is left
    const bool zero = prefix.significant_digits().empty() && contains(prefix, 0);
    return zero && visit(Shift{});
  }
  const bool more_digits = !prefix.has_point && prefix.whole != "0";
  const int64_t window = this->window(prefix);
  for (int64_t power = 0; power <= (more_digits ? window : 0); ++power) {
    if (grows(power) && visit(Shift{power, false})) {
      return true;
    }
  }
  for (int64_t e = 1; free_exponent_ && e <= window; ++e) {
    for (const int64_t power : {e, -e}) {
      if (grows(power) && visit(Shift{power, true})) {
        return true;
      }
    }
  }
  return false;
}

std::optional<NumberTexts::Shift> NumberTexts::first_shift(const NumberPrefix& prefix) const {
  std::optional<Shift> first;
  visit_shifts(prefix, [&](Shift shift) {
    first = shift;
    return true;
  });
  return first;
}

std::optional<int64_t> NumberTexts::first_exponent(const NumberPrefix& prefix) const {
  const bool too_long = prefix.exponent.size() > kMaxExponentDigits;
  if (!free_exponent_ || whole_only_ || too_long) {
    return std::nullopt;
  }
  const mpq_class value = prefix.mantissa();
  if (sgn(value) == 0) {
    const bool negative = prefix.exponent_sign == "-";
    const int64_t e = prefix.exponent.empty() ? 0 : std::stoll(prefix.exponent);
    return contains(prefix, value) ? std::optional(negative ? -e : e) : std::nullopt;
  }
  if (!may_have_sign(prefix)) {
    return std::nullopt;
  }
  const int64_t window = this->window(prefix);
  const Magnitudes scales = this->scales(prefix);
  for (int64_t e = std::max(-window, scales.least); e <= std::min(window, scales.most); ++e) {
    if (prefix.fits_exponent(e) && contains(prefix, value * power_of_ten(e))) {
      return e;
    }
  }
  const auto above = prefix.exponent_sign != "-" ? beyond_window(prefix, 1) : std::nullopt;
  return above || prefix.exponent_sign == "+" ? above : beyond_window(prefix, -1);
}

/// Beyond the window every larger exponent answers as the first one does.
std::optional<int64_t> NumberTexts::beyond_window(const NumberPrefix& prefix, int sign) const {
  if (sign < 0 && prefix.exponent_sign.empty() && !prefix.exponent.empty()) {
    return std::nullopt;
  }
  const int64_t window = this->window(prefix);
  const size_t zeros = std::min(prefix.exponent.find_first_not_of('0'), prefix.exponent.size());
  std::string digits = prefix.exponent.substr(zeros);
  digits += digits.empty() ? "1" : "";
  while (zeros + digits.size() < kMaxExponentDigits && std::stoll(digits) <= window) {
    digits += '0';
  }
  const int64_t e = sign * std::stoll(digits);
  const bool fits = prefix.fits_exponent(e) &&
                    contains(prefix, prefix.mantissa() * power_of_ten(sign * (window + 1)));
  return fits ? std::optional(e) : std::nullopt;
}

// ---- Beginnings that mean the same --------------------------------------------------------------
//
// Digits tell two things: on which side of a bound the number lies, whatever its scale, which the
// first few of them settle; and its scale, which is the number of digits before the point. Where
// whole numbers may have exponents, zeros at the end count too: as many tens may be taken away.

NumberTexts::Comparison NumberTexts::compare(const std::string& digits, bool negative) const {
  Comparison result;
  for (const Bound& bound : bounds_) {
    if (bound.negative != negative) {
      continue;
    }
    const auto other = [&](size_t i) { return i < bound.digits.size() ? bound.digits[i] : '0'; };
    size_t same = 0;
    while (same < digits.size() && digits[same] == other(same)) {
      ++same;
    }
    const bool alike = same == digits.size();
    result.orders.push_back(alike                        ? Order::kAlike
                            : digits[same] < other(same) ? Order::kLess
                                                         : Order::kGreater);
    result.deciding =
        std::max(result.deciding, alike ? std::min(same, bound.digits.size()) : same + 1);
  }
  return result;
}

/// Digits that compare with the bounds as these do, and end in as many zeros if that matters.
std::string NumberTexts::simplest(std::string digits, bool negative) const {
  const size_t end = digits.find_last_not_of('0') + 1;
  const Comparison wanted = compare(digits, negative);
  const size_t kept = std::max<size_t>(1, wanted.deciding);
  std::fill(digits.begin() + static_cast<int64_t>(std::min(kept, digits.size())), digits.end(),
            '0');
  if (scaled_units_ && end > kept) {
    digits[end - 1] = '1';
  }
  char& last = digits[kept - 1];
  const char own = last;
  const bool not_zero = kept == 1 || (scaled_units_ && own != '0');
  const char most = scaled_units_ && own == '0' ? '0' : own;
  for (last = not_zero ? '1' : '0';
       last < most && compare(digits, negative).orders != wanted.orders;) {
    ++last;
  }
  return digits;
}

void NumberTexts::shorten_mantissa(NumberPrefix& prefix) const {
  std::string digits = prefix.significant_digits();
  const bool sized = std::any_of(bounds_.begin(), bounds_.end(), [&](const Bound& bound) {
    return bound.negative == prefix.negative;
  });
  const size_t decimals = prefix.fraction.size();
  if (digits.empty()) {
    if (!sized && !scaled_units_ && decimals > 1) {
      prefix.fraction = "0";
    }
    return;
  }
  digits = simplest(std::move(digits), prefix.negative);
  if (sized) {
    const std::string all = prefix.whole + prefix.fraction;
    const size_t zeros = all.size() - digits.size();
    digits.insert(0, zeros, '0');
    prefix.whole = digits.substr(0, prefix.whole.size());
    prefix.fraction = digits.substr(prefix.whole.size());
    const size_t kept = zeros + compare(digits.substr(zeros), prefix.negative).deciding;
    while (!scaled_units_ && prefix.fraction.size() > 1 && prefix.fraction.back() == '0' &&
           prefix.whole.size() + prefix.fraction.size() > kept) {
      prefix.fraction.pop_back();
    }
    return;
  }
  if (!scaled_units_) {
    prefix.whole = "1";
    prefix.fraction = decimals > 0 ? "0" : "";
    return;
  }
  const size_t zeros = digits.size() - (digits.find_last_not_of('0') + 1);
  const std::string tens = "1" + std::string(zeros, '0');
  digits = tens.size() > decimals ? tens : "1" + std::string(decimals - tens.size(), '0') + tens;
  prefix.whole = digits.substr(0, digits.size() - decimals);
  prefix.fraction = digits.substr(digits.size() - decimals);
}

std::string NumberTexts::representative(std::string_view text) const {
  NumberPrefix prefix(text);
  if (!told_by_size_ || prefix.whole.empty()) {
    return std::string(text);
  }
  shorten_mantissa(prefix);
  if (plan_.is_everything() || (plan_.is_integers() && whole_only_)) {
    prefix.negative = false;
    prefix.exponent = prefix.exponent.empty() ? "" : "1";
  }
  if (!prefix.exponent.empty() && prefix.exponent_sign == "+") {
    prefix.exponent_sign = "";
  }
  return prefix.text();
}

}  // namespace specdec
