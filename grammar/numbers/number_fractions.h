#pragma once
#include <gmpxx.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "grammar/numbers/number_plan.h"

namespace specdec {

/// 10^exponent.
mpq_class power_of_ten(int64_t exponent);

/// The numbers of a plan as fractions, made once for many questions. Immutable.
class NumberFractions {
 public:
  /// Fractions between two bounds; a bound that is missing is infinite.
  struct Interval {
    std::optional<mpq_class> lower, upper;
    bool lower_open = false;
    bool upper_open = false;

    bool is_empty() const;
    Interval intersect(const Interval& other) const;
  };

  /// Throws GrammarError for numbers beyond 10^+-500.
  explicit NumberFractions(const NumberPlan& plan);

  /// How many members lie in the interval, up to `cap`.
  uint64_t count(const Interval& where, uint64_t cap) const;
  /// Members in the interval: all of them, or `most`.
  std::vector<mpq_class> list(Interval where, uint64_t most) const;
  /// A member in the interval; without units the one that has the fewest digits after its point.
  std::optional<mpq_class> find(const Interval& where) const;
  /// False when no positive (or negative) number is within the bounds.
  bool may_be_positive() const { return !bounds_.upper || sgn(*bounds_.upper) > 0; }
  bool may_be_negative() const { return !bounds_.lower || sgn(*bounds_.lower) < 0; }
  /// What all members are multiples of.
  const std::optional<mpq_class>& unit() const { return unit_; }

 private:
  bool is_avoided(const mpq_class& value) const;
  std::span<const mpq_class> members_in(const Interval& where) const;
  std::optional<mpq_class> find_short(const Interval& where) const;
  std::optional<uint64_t> count_all_multiples(const Interval& where, uint64_t cap) const;
  uint64_t count_multiples(const Interval& where, uint64_t cap,
                           std::vector<mpq_class>* members = nullptr) const;

  Interval bounds_;
  std::optional<mpq_class> unit_;
  std::vector<mpq_class> avoided_;                 ///< what members are no multiples of
  std::vector<mpq_class> excluded_;                ///< sorted
  std::optional<std::vector<mpq_class>> members_;  ///< sorted: all of them, when they are told
};

}  // namespace specdec
