#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/decimal.h"

namespace specdec {

/// A set of numbers: between bounds, multiples of some units, not multiples of others.
struct NumberPlan {
  std::optional<Decimal> lower, upper;
  bool lower_open = false;
  bool upper_open = false;
  std::vector<Decimal> multiples;
  std::vector<Decimal> not_multiples;

  bool is_everything() const;
  bool is_integers() const;  ///< all whole numbers, and nothing else
  void raise_lower(const Decimal& bound, bool open);
  void reduce_upper(const Decimal& bound, bool open);
  bool contains(const Decimal& value) const;
  bool is_empty() const;
  /// How many numbers it has, or `cap` when there are at least that many.
  uint64_t count(uint64_t cap) const;
};

}  // namespace specdec
