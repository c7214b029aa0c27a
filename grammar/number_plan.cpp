#include "grammar/number_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

/// Fractions between two bounds; a bound that is missing is infinite.
struct Interval {
  std::optional<mpq_class> lower, upper;
  bool lower_open = false;
  bool upper_open = false;
};

constexpr uint64_t kMaxTried = 4096;        ///< multiples tried against units to avoid
constexpr int64_t kMaxShortDigits = 2'000;  ///< after the point, of a number that is made

mpq_class power_of_ten(int64_t exponent) {
  mpz_class scale;
  mpz_ui_pow_ui(scale.get_mpz_t(), 10, static_cast<uint64_t>(exponent < 0 ? -exponent : exponent));
  return exponent < 0 ? mpq_class(mpz_class(1), scale) : mpq_class(scale);
}

Interval intersect(Interval a, const Interval& b) {
  if (b.lower && (!a.lower || *b.lower > *a.lower || (*b.lower == *a.lower && b.lower_open))) {
    a.lower = b.lower;
    a.lower_open = b.lower_open;
  }
  if (b.upper && (!a.upper || *b.upper < *a.upper || (*b.upper == *a.upper && b.upper_open))) {
    a.upper = b.upper;
    a.upper_open = b.upper_open;
  }
  return a;
}

bool is_empty(const Interval& interval) {
  return interval.lower && interval.upper &&
         (*interval.lower > *interval.upper ||
          (*interval.lower == *interval.upper && (interval.lower_open || interval.upper_open)));
}

mpz_class floor_of(const mpq_class& value) {
  mpz_class result;
  mpz_fdiv_q(result.get_mpz_t(), value.get_num_mpz_t(), value.get_den_mpz_t());
  return result;
}

bool divides(const mpq_class& unit, const mpq_class& value) {
  const mpq_class ratio = value / unit;
  return ratio.get_den() == 1;
}

/// The set as fractions, made once for many questions.
class Fractions {
 public:
  explicit Fractions(const NumberPlan& plan) {
    if (plan.lower) {
      bounds_.lower = to_fraction(*plan.lower);
    }
    if (plan.upper) {
      bounds_.upper = to_fraction(*plan.upper);
    }
    bounds_.lower_open = plan.lower_open;
    bounds_.upper_open = plan.upper_open;
    for (const Decimal& unit : plan.multiples) {
      const mpq_class value = to_fraction(unit);
      unit_ = unit_ ? least_common_multiple(*unit_, value) : value;
    }
    for (const Decimal& unit : plan.not_multiples) {
      avoided_.push_back(to_fraction(unit));
    }
  }

  /// How many members lie in the interval, up to `cap`.
  uint64_t count(const Interval& where, uint64_t cap) const {
    const Interval both = intersect(bounds_, where);
    if (is_empty(both)) {
      return 0;
    }
    if (!unit_) {
      const bool point = both.lower && both.upper && *both.lower == *both.upper;
      return point ? (is_avoided(*both.lower) ? 0 : 1) : cap;
    }
    return count_multiples(both, cap);
  }

  /// A member in the interval; without units the one that has the fewest digits after its point.
  std::optional<mpq_class> find(const Interval& where) const {
    const Interval both = intersect(bounds_, where);
    if (is_empty(both)) {
      return std::nullopt;
    }
    if (!unit_) {
      return find_short(both);
    }
    mpq_class first;
    return count_multiples(both, 1, &first) > 0 ? std::optional(first) : std::nullopt;
  }

 private:
  static mpq_class least_common_multiple(const mpq_class& a, const mpq_class& b) {
    const mpz_class x = a.get_num() * b.get_den();
    const mpz_class y = b.get_num() * a.get_den();
    mpz_class both;
    mpz_lcm(both.get_mpz_t(), x.get_mpz_t(), y.get_mpz_t());
    mpq_class result(both, mpz_class(a.get_den() * b.get_den()));
    result.canonicalize();
    return result;
  }

  bool is_avoided(const mpq_class& value) const {
    return std::any_of(avoided_.begin(), avoided_.end(),
                       [&](const mpq_class& unit) { return divides(unit, value); });
  }

  static bool holds(const Interval& where, const mpq_class& value) {
    return !is_empty(intersect(where, {value, value, false, false}));
  }

  std::optional<mpq_class> find_short(const Interval& where) const {
    const mpq_class begin = where.lower ? *where.lower : where.upper ? *where.upper : mpq_class(0);
    const int direction = where.lower ? 1 : -1;
    for (int64_t digits = 0; digits <= kMaxShortDigits; ++digits) {
      const mpq_class scale = power_of_ten(digits);
      mpz_class step = floor_of(begin * scale);
      for (int tried = 0; tried < 3; ++tried, step += direction) {
        const mpq_class value = mpq_class(step) / scale;
        if (holds(where, value) && !is_avoided(value)) {
          return value;
        }
      }
    }
    return std::nullopt;
  }

  uint64_t count_multiples(const Interval& where, uint64_t cap, mpq_class* first = nullptr) const {
    const bool hopeless = std::any_of(avoided_.begin(), avoided_.end(),
                                      [&](const mpq_class& unit) { return divides(unit, *unit_); });
    if (hopeless) {
      return 0;
    }
    mpz_class step = 0;
    int direction = 1;
    if (where.lower) {
      const mpq_class ratio = *where.lower / *unit_;
      step = floor_of(ratio);
      step += step < ratio || where.lower_open ? 1 : 0;
    } else if (where.upper) {
      const mpq_class ratio = *where.upper / *unit_;
      step = floor_of(ratio);
      step -= step == ratio && where.upper_open ? 1 : 0;
      direction = -1;
    }
    uint64_t found = 0;
    for (uint64_t tried = 0; found < cap && tried < cap + kMaxTried; ++tried, step += direction) {
      const mpq_class value = *unit_ * mpq_class(step);
      const bool past = direction > 0 && where.upper &&
                        (value > *where.upper || (where.upper_open && value == *where.upper));
      if (past) {
        break;
      }
      if (is_avoided(value)) {
        continue;
      }
      if (++found == 1 && first != nullptr) {
        *first = value;
      }
    }
    return found;
  }

  Interval bounds_;
  std::optional<mpq_class> unit_;
  std::vector<mpq_class> avoided_;
};

/// The beginning of a number, taken apart.
struct Prefix {
  bool negative = false;
  std::string whole;
  bool has_point = false;
  std::string fraction;
  bool has_exponent = false;
  std::string exponent_sign;
  std::string exponent;
};

Prefix take_apart(std::string_view text) {
  Prefix prefix;
  if (text.starts_with('-')) {
    prefix.negative = true;
    text.remove_prefix(1);
  }
  const size_t letter = text.find_first_of("eE");
  if (letter != std::string_view::npos) {
    prefix.has_exponent = true;
    std::string_view rest = text.substr(letter + 1);
    if (rest.starts_with('-') || rest.starts_with('+')) {
      prefix.exponent_sign = rest.front();
      rest.remove_prefix(1);
    }
    prefix.exponent = rest;
    text = text.substr(0, letter);
  }
  const size_t point = text.find('.');
  prefix.has_point = point != std::string_view::npos;
  prefix.whole = text.substr(0, point);
  prefix.fraction = prefix.has_point ? std::string(text.substr(point + 1)) : "";
  return prefix;
}

class Completion {
 public:
  Completion(const NumberPlan& plan, NumberStyle style, const Prefix& prefix)
      : set_(plan), style_(style), prefix_(prefix) {
    free_exponent_ = style == NumberStyle::kAny || plan.is_everything();
    whole_only_ = style == NumberStyle::kPlain && !plan.multiples.empty() &&
                  std::any_of(plan.multiples.begin(), plan.multiples.end(),
                              [](const Decimal& unit) { return unit.exponent >= 0; });
    for (const std::optional<Decimal>* bound : {&plan.lower, &plan.upper}) {
      window_ = std::max(window_, *bound ? size_of(**bound) : 0);
    }
    for (const std::vector<Decimal>* units : {&plan.multiples, &plan.not_multiples}) {
      for (const Decimal& unit : *units) {  // d digits have up to log2(10) d factors of two
        window_ = std::max(window_, 4 * size_of(unit));
      }
    }
    window_ += static_cast<int64_t>(prefix.whole.size() + prefix.fraction.size()) + 3;
  }

  bool possible() const {
    if (prefix_.has_exponent) {
      return first_exponent().has_value();
    }
    return prefix_.whole.empty()
               ? visit_first_digits([](const Completion& next) { return next.possible(); })
               : first_shift().has_value();
  }

  /// What makes it a number of the set.
  std::optional<std::string> find() const {
    if (prefix_.has_exponent) {
      const auto exponent = first_exponent();
      return exponent ? std::optional(exponent_rest(*exponent)) : std::nullopt;
    }
    if (prefix_.whole.empty()) {
      return shortest_with_first_digit();
    }
    const auto shift = first_shift();
    auto value = shift ? find_grown(*shift) : std::nullopt;
    if (!value) {
      return std::nullopt;
    }
    if (!shift->exponent) {
      return digits_rest(abs(*value));
    }
    return digits_rest(abs(*value) * power_of_ten(-shift->places)) + "e" +
           std::to_string(shift->places);
  }

 private:
  static int64_t size_of(const Decimal& value) {
    const int64_t digits = static_cast<int64_t>(mpz_class(abs(value.digits)).get_str().size());
    return digits + (value.exponent < 0 ? -value.exponent : value.exponent);
  }

  mpq_class mantissa() const {
    mpq_class value = mpz_class(prefix_.whole + prefix_.fraction, 10);
    return value * power_of_ten(-static_cast<int64_t>(prefix_.fraction.size()));
  }

  /// How a continuation of the digits may be scaled: by digits before the point, or an exponent.
  struct Shift {
    int64_t places = 0;
    bool exponent = false;
  };

  std::optional<Shift> first_shift() const {
    if (prefix_.has_point && whole_only_) {
      return std::nullopt;
    }
    const bool more_digits = !prefix_.has_point && prefix_.whole != "0";
    for (int64_t places = 0; places <= (more_digits ? window_ : 0); ++places) {
      if (grows(places)) {
        return Shift{places, false};
      }
    }
    for (int64_t e = 1; free_exponent_ && e <= window_; ++e) {
      for (const int64_t places : {e, -e}) {
        if (grows(places)) {
          return Shift{places, true};
        }
      }
    }
    return std::nullopt;
  }

  /// The continuations of the digits, times ten to the power `places`.
  Interval cone(int64_t places) const {
    const mpq_class scale = power_of_ten(places);
    const mpq_class low = mantissa() * scale;
    const mpq_class width = power_of_ten(-static_cast<int64_t>(prefix_.fraction.size())) * scale;
    const bool as_they_are = whole_only_ && places == 0;
    Interval cone{low, as_they_are ? low : mpq_class(low + width), false, !as_they_are};
    if (prefix_.negative) {
      cone = {mpq_class(-*cone.upper), mpq_class(-low), cone.upper_open, false};
    }
    return cone;
  }

  bool grows(int64_t places) const { return set_.count(cone(places), 1) > 0; }
  std::optional<mpq_class> find_grown(const Shift& shift) const {
    return set_.find(cone(shift.places));
  }

  /// What follows the prefix in the digits of a value that begins with it.
  std::string digits_rest(mpq_class value) const {
    size_t places = 0;  // after the point
    for (; value.get_den() != 1; ++places) {
      value *= 10;
    }
    std::string digits = value.get_num().get_str();
    digits.insert(0, digits.size() > places ? 0 : places + 1 - digits.size(), '0');
    std::string fraction = digits.substr(digits.size() - places);
    digits.resize(digits.size() - places);
    const size_t least = prefix_.fraction.size() + (prefix_.has_point && prefix_.fraction.empty());
    fraction.append(fraction.size() < least ? least - fraction.size() : 0, '0');
    const std::string begun = prefix_.whole + (prefix_.has_point ? "." : "") + prefix_.fraction;
    return (digits + (fraction.empty() ? "" : "." + fraction)).substr(begun.size());
  }

  /// What follows the prefix in an exponent that it fits.
  std::string exponent_rest(int64_t e) const {
    const std::string digits = std::to_string(e < 0 ? -e : e);
    if (prefix_.exponent.empty()) {
      return (e < 0 && prefix_.exponent_sign.empty() ? "-" : "") + digits;
    }
    const size_t zeros = prefix_.exponent.find_first_not_of('0');
    if (zeros == std::string::npos) {
      return e == 0 ? "" : digits;
    }
    return digits.substr(prefix_.exponent.size() - zeros);
  }

  bool in_set(mpq_class value) const {
    value = prefix_.negative ? mpq_class(-value) : value;
    return set_.count({value, value, false, false}, 1) > 0;
  }

  /// Visits those that begin with a digit, with a sign if there was none, until one says true.
  template <class Visit>
  bool visit_first_digits(const Visit& visit) const {
    for (const bool negative : {false, true}) {
      for (char digit = '0'; digit <= '9' && (negative || !prefix_.negative); ++digit) {
        Completion next = *this;
        next.prefix_.negative = negative;
        next.prefix_.whole = digit;
        if (visit(next)) {
          return true;
        }
      }
    }
    return false;
  }

  std::optional<std::string> shortest_with_first_digit() const {
    std::optional<std::string> best;
    visit_first_digits([&](const Completion& next) {
      const std::string sign = next.prefix_.negative && !prefix_.negative ? "-" : "";
      const auto rest = next.find();
      if (rest && (!best || sign.size() + 1 + rest->size() < best->size())) {
        best = sign + next.prefix_.whole + *rest;
      }
      return false;
    });
    return best;
  }

  bool fits_exponent(int64_t e) const {
    const bool negative = prefix_.exponent_sign == "-";
    if (e < 0 ? prefix_.exponent_sign == "+" || (!negative && !prefix_.exponent.empty())
              : negative && e > 0) {
      return false;
    }
    const std::string digits = std::to_string(e < 0 ? -e : e);
    const size_t zeros = prefix_.exponent.find_first_not_of('0');
    if (zeros == std::string::npos) {  // e may be one of the zeros, or follow them
      return (e == 0 && !prefix_.exponent.empty()) ||
             prefix_.exponent.size() + digits.size() <= kMaxExponentDigits;
    }
    return zeros + digits.size() <= kMaxExponentDigits &&
           digits.starts_with(prefix_.exponent.substr(zeros));
  }

  std::optional<int64_t> first_exponent() const {
    const bool too_long = prefix_.exponent.size() > kMaxExponentDigits;
    if (!free_exponent_ || whole_only_ || too_long) {
      return std::nullopt;
    }
    const mpq_class value = mantissa();
    if (sgn(value) == 0) {
      const bool negative = prefix_.exponent_sign == "-";
      const int64_t e = prefix_.exponent.empty() ? 0 : std::stoll(prefix_.exponent);
      return in_set(value) ? std::optional(negative ? -e : e) : std::nullopt;
    }
    for (int64_t e = -window_; e <= window_; ++e) {
      if (fits_exponent(e) && in_set(value * power_of_ten(e))) {
        return e;
      }
    }
    const auto above = prefix_.exponent_sign != "-" ? beyond_window(1) : std::nullopt;
    return above || prefix_.exponent_sign == "+" ? above : beyond_window(-1);
  }

  /// Beyond the window every larger exponent answers as the first one does.
  std::optional<int64_t> beyond_window(int sign) const {
    if (sign < 0 && prefix_.exponent_sign.empty() && !prefix_.exponent.empty()) {
      return std::nullopt;
    }
    const size_t zeros = std::min(prefix_.exponent.find_first_not_of('0'), prefix_.exponent.size());
    std::string digits = prefix_.exponent.substr(zeros);
    digits += digits.empty() ? "1" : "";
    while (zeros + digits.size() < kMaxExponentDigits && std::stoll(digits) <= window_) {
      digits += '0';
    }
    const int64_t e = sign * std::stoll(digits);
    const bool fits = fits_exponent(e) && in_set(mantissa() * power_of_ten(sign * (window_ + 1)));
    return fits ? std::optional(e) : std::nullopt;
  }

  Fractions set_;
  NumberStyle style_;
  Prefix prefix_;
  bool free_exponent_ = false;
  bool whole_only_ = false;
  int64_t window_ = 0;
};

bool well_formed(const Prefix& prefix) {
  return !prefix.whole.empty() && (!prefix.has_point || !prefix.fraction.empty()) &&
         (!prefix.has_exponent || !prefix.exponent.empty());
}

}  // namespace

bool NumberPlan::is_everything() const {
  return !lower && !upper && multiples.empty() && not_multiples.empty();
}

bool NumberPlan::is_integers() const {
  return !lower && !upper && not_multiples.empty() && multiples.size() == 1 &&
         multiples.front().digits == 1 && multiples.front().exponent == 0;
}

void NumberPlan::raise_lower(const Decimal& bound, bool open) {
  const int order = lower ? compare(bound, *lower) : 1;
  if (order >= 0) {
    lower_open = order > 0 ? open : lower_open || open;
    lower = bound;
  }
}

void NumberPlan::reduce_upper(const Decimal& bound, bool open) {
  const int order = upper ? compare(bound, *upper) : -1;
  if (order <= 0) {
    upper_open = order < 0 ? open : upper_open || open;
    upper = bound;
  }
}

bool NumberPlan::contains(const Decimal& value) const {
  const int below = lower ? compare(value, *lower) : 1;
  const int above = upper ? compare(value, *upper) : -1;
  const auto multiple = [&](const Decimal& unit) { return is_multiple(value, unit); };
  return (below > 0 || (below == 0 && !lower_open)) && (above < 0 || (above == 0 && !upper_open)) &&
         std::all_of(multiples.begin(), multiples.end(), multiple) &&
         std::none_of(not_multiples.begin(), not_multiples.end(), multiple);
}

bool NumberPlan::is_empty() const { return count(1) == 0; }

uint64_t NumberPlan::count(uint64_t cap) const {
  return is_everything() ? cap : Fractions(*this).count({}, cap);
}

bool can_complete(const NumberPlan& plan, NumberStyle style, std::string_view text) {
  return Completion(plan, style, take_apart(text)).possible();
}

std::optional<std::string> find_completion(const NumberPlan& plan, NumberStyle style,
                                           std::string_view text) {
  return Completion(plan, style, take_apart(text)).find();
}

bool is_complete(const NumberPlan& plan, std::string_view text) {
  return well_formed(take_apart(text)) && plan.contains(parse_decimal(text));
}

}  // namespace specdec
