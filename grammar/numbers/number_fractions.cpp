#include "grammar/numbers/number_fractions.h"

#include <algorithm>

namespace specdec {
namespace {

constexpr uint64_t kMaxTried = 4096;        ///< multiples tried against units to avoid
constexpr int64_t kMaxShortDigits = 2'000;  ///< after the point, of a number that is made

mpz_class floor_of(const mpq_class& value) {
  mpz_class result;
  mpz_fdiv_q(result.get_mpz_t(), value.get_num_mpz_t(), value.get_den_mpz_t());
  return result;
}

bool divides(const mpq_class& unit, const mpq_class& value) {
  const mpq_class ratio = value / unit;
  return ratio.get_den() == 1;
}

mpq_class least_common_multiple(const mpq_class& a, const mpq_class& b) {
  const mpz_class x = a.get_num() * b.get_den();
  const mpz_class y = b.get_num() * a.get_den();
  mpz_class both;
  mpz_lcm(both.get_mpz_t(), x.get_mpz_t(), y.get_mpz_t());
  mpq_class result(both, mpz_class(a.get_den() * b.get_den()));
  result.canonicalize();
  return result;
}

bool holds(const NumberFractions::Interval& where, const mpq_class& value) {
  return !where.intersect({value, value, false, false}).is_empty();
}

}  // namespace

mpq_class power_of_ten(int64_t exponent) {
  mpz_class scale;
  mpz_ui_pow_ui(scale.get_mpz_t(), 10, static_cast<uint64_t>(exponent < 0 ? -exponent : exponent));
  return exponent < 0 ? mpq_class(mpz_class(1), scale) : mpq_class(scale);
}

bool NumberFractions::Interval::is_empty() const {
  return lower && upper && (*lower > *upper || (*lower == *upper && (lower_open || upper_open)));
}

NumberFractions::Interval NumberFractions::Interval::intersect(const Interval& other) const {
  Interval both = *this;
  if (other.lower &&
      (!lower || *other.lower > *lower || (*other.lower == *lower && other.lower_open))) {
    both.lower = other.lower;
    both.lower_open = other.lower_open;
  }
  if (other.upper &&
      (!upper || *other.upper < *upper || (*other.upper == *upper && other.upper_open))) {
    both.upper = other.upper;
    both.upper_open = other.upper_open;
  }
  return both;
}

NumberFractions::NumberFractions(const NumberPlan& plan) {
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
  for (const Decimal& value : plan.excluded) {
    excluded_.push_back(to_fraction(value));
  }
  if (plan.members) {
    members_.emplace();
    for (const Decimal& value : *plan.members) {
      if (plan.contains(value)) {
        members_->push_back(to_fraction(value));
      }
    }
    if (!members_->empty()) {
      bounds_ = {members_->front(), members_->back(), false, false};
    }
  }
}

std::span<const mpq_class> NumberFractions::members_in(const Interval& where) const {
  auto first = members_->begin();
  auto last = members_->end();
  if (where.lower) {
    first = where.lower_open ? std::ranges::upper_bound(*members_, *where.lower)
                             : std::ranges::lower_bound(*members_, *where.lower);
  }
  if (where.upper) {
    last = where.upper_open ? std::ranges::lower_bound(*members_, *where.upper)
                            : std::ranges::upper_bound(*members_, *where.upper);
  }
  return first < last ? std::span(first, last) : std::span<const mpq_class>();
}

uint64_t NumberFractions::count(const Interval& where, uint64_t cap) const {
  if (members_) {
    return std::min<uint64_t>(cap, members_in(where).size());
  }
  const Interval both = bounds_.intersect(where);
  if (both.is_empty()) {
    return 0;
  }
  if (!unit_) {
    const bool point = both.lower && both.upper && *both.lower == *both.upper;
    return point ? (is_avoided(*both.lower) ? 0 : 1) : cap;
  }
  return count_multiples(both, cap);
}

std::optional<mpq_class> NumberFractions::find(const Interval& where) const {
  if (members_) {
    const auto found = members_in(where);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  const Interval both = bounds_.intersect(where);
  if (both.is_empty()) {
    return std::nullopt;
  }
  if (!unit_) {
    return find_short(both);
  }
  std::vector<mpq_class> first;
  return count_multiples(both, 1, &first) > 0 ? std::optional(first.front()) : std::nullopt;
}

std::vector<mpq_class> NumberFractions::list(Interval where, uint64_t most) const {
  std::vector<mpq_class> members;
  if (members_) {
    const auto found = members_in(where);
    return {found.begin(),
            found.begin() + static_cast<int64_t>(std::min<uint64_t>(most, found.size()))};
  }
  where = bounds_.intersect(where);
  if (where.is_empty()) {
    return members;
  }
  if (unit_) {
    count_multiples(where, most, &members);
    return members;
  }
  const Interval all = where;
  while (members.size() < most) {  // upwards from the first one
    const auto found = where.is_empty() ? std::nullopt : find_short(where);
    if (!found) {
      break;
    }
    members.push_back(*found);
    where.lower = *found;
    where.lower_open = true;
  }
  where = all;
  while (!members.empty() && members.size() < most) {  // and then downwards
    where.upper = *std::ranges::min_element(members);
    where.upper_open = true;
    const auto found = where.is_empty() ? std::nullopt : find_short(where);
    if (!found) {
      break;
    }
    members.push_back(*found);
  }
  return members;
}

bool NumberFractions::is_avoided(const mpq_class& value) const {
  return std::ranges::binary_search(excluded_, value) ||
         std::any_of(avoided_.begin(), avoided_.end(),
                     [&](const mpq_class& unit) { return divides(unit, value); });
}

std::optional<mpq_class> NumberFractions::find_short(const Interval& where) const {
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

/// Counts the multiples in an interval by its ends; nothing when some are to be avoided.
std::optional<uint64_t> NumberFractions::count_all_multiples(const Interval& where,
                                                             uint64_t cap) const {
  if (!avoided_.empty()) {
    return std::nullopt;
  }
  if (!where.lower || !where.upper) {
    return cap;
  }
  const mpq_class low = *where.lower / *unit_;
  const mpq_class high = *where.upper / *unit_;
  mpz_class first = floor_of(low);
  first += first < low || where.lower_open ? 1 : 0;
  mpz_class last = floor_of(high);
  last -= last == high && where.upper_open ? 1 : 0;
  mpz_class all = last - first + 1;
  for (const mpq_class& value : excluded_) {
    all -= holds(where, value) && divides(*unit_, value) ? 1 : 0;
  }
  return sgn(all) <= 0 ? 0 : all >= mpz_class(cap) ? cap : all.get_ui();
}

uint64_t NumberFractions::count_multiples(const Interval& where, uint64_t cap,
                                          std::vector<mpq_class>* members) const {
  if (members == nullptr) {
    if (const auto all = count_all_multiples(where, cap)) {
      return *all;
    }
  }
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
    ++found;
    if (members != nullptr) {
      members->push_back(value);
    }
  }
  return found;
}

}  // namespace specdec
