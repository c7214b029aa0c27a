#include "grammar/numbers/number_plan.h"

#include <algorithm>
#include <iterator>

#include "grammar/numbers/number_fractions.h"
#include "grammar/numbers/number_prefix.h"

namespace specdec {
namespace {

bool is_less(const Decimal& a, const Decimal& b) { return compare(a, b) < 0; }

bool is_in(const std::vector<Decimal>& sorted, const Decimal& value) {
  return std::ranges::binary_search(sorted, value, is_less);
}

bool is_whole(const Decimal& value) { return is_multiple(value, {mpz_class(1), 0}); }

}  // namespace

bool NumberPlan::is_everything() const {
  return !lower && !upper && multiples.empty() && not_multiples.empty() && !members &&
         excluded.empty() && written == Written::kAnyWay;
}

bool NumberPlan::is_integers() const {
  return !lower && !upper && not_multiples.empty() && !members && excluded.empty() &&
         written != Written::kNotWhole && multiples.size() == 1 && multiples.front().digits == 1 &&
         multiples.front().exponent == 0;
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

bool NumberPlan::restrict_to(Written way) {
  if (written != Written::kAnyWay) {
    return written == way;
  }
  written = way;
  const Decimal one = {mpz_class(1), 0};
  if (way == Written::kWhole &&
      std::find(multiples.begin(), multiples.end(), one) == multiples.end()) {
    multiples.push_back(one);
  }
  return true;
}

bool NumberPlan::restrict_to(const std::vector<Decimal>& sorted) {
  if (!members) {
    members = sorted;
  } else {
    std::erase_if(*members, [&](const Decimal& value) { return !is_in(sorted, value); });
  }
  return !members->empty();
}

void NumberPlan::exclude(const std::vector<Decimal>& sorted) {
  std::vector<Decimal> both;
  std::ranges::set_union(excluded, sorted, std::back_inserter(both), is_less);
  excluded = std::move(both);
}

std::vector<NumberPlan> NumberPlan::split_whole() const {
  const bool one = lower && upper && compare(*lower, *upper) == 0;
  if (written != Written::kAnyWay || (!members && !one)) {
    return {*this};
  }
  NumberPlan whole = *this;
  NumberPlan others = *this;
  if (!members) {
    whole.members = others.members = std::vector<Decimal>{*lower};
  }
  std::erase_if(*whole.members, [](const Decimal& value) { return !is_whole(value); });
  std::erase_if(*others.members, is_whole);
  std::vector<NumberPlan> parts;
  if (!whole.members->empty()) {
    whole.restrict_to(Written::kWhole);
    parts.push_back(std::move(whole));
  }
  if (!others.members->empty()) {
    parts.push_back(std::move(others));
  }
  return parts;
}

bool NumberPlan::contains(const Decimal& value) const {
  const int below = lower ? compare(value, *lower) : 1;
  const int above = upper ? compare(value, *upper) : -1;
  const auto multiple = [&](const Decimal& unit) { return is_multiple(value, unit); };
  return (below > 0 || (below == 0 && !lower_open)) && (above < 0 || (above == 0 && !upper_open)) &&
         std::all_of(multiples.begin(), multiples.end(), multiple) &&
         std::none_of(not_multiples.begin(), not_multiples.end(), multiple) &&
         (!members || is_in(*members, value)) && !is_in(excluded, value);
}

bool NumberPlan::is_empty() const { return count(1) == 0; }

std::vector<std::string> NumberPlan::list(uint64_t most) const {
  std::vector<std::string> texts;
  for (const mpq_class& value : NumberFractions(*this).list({}, most)) {
    std::string digits = NumberPrefix("").digits_rest(abs(value));
    const bool whole = digits.find('.') == std::string::npos;
    texts.push_back((sgn(value) < 0 ? "-" : "") + std::move(digits) +
                    (whole && written == Written::kNotWhole ? ".0" : ""));
  }
  return texts;
}

uint64_t NumberPlan::count(uint64_t cap) const {
  return is_everything() ? cap : NumberFractions(*this).count({}, cap);
}

}  // namespace specdec
