#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/numbers/decimal.h"

namespace specdec {

/// A set of numbers: between bounds, multiples of some units, not multiples of others, written in
/// some way.
struct NumberPlan {
  enum class Written : uint8_t {
    kAnyWay,
    kWhole,     ///< without point and exponent
    kNotWhole,  ///< with at least one of them: 1.0 is, 1 is not
  };
  std::optional<Decimal> lower, upper;
  bool lower_open = false;
  bool upper_open = false;
  std::vector<Decimal> multiples;
  std::vector<Decimal> not_multiples;
  std::optional<std::vector<Decimal>> members;  ///< sorted: it is one of these
  std::vector<Decimal> excluded;                ///< sorted: none of these
  Written written = Written::kAnyWay;

  bool is_everything() const;
  bool is_integers() const;  ///< all whole numbers, and nothing else
  void raise_lower(const Decimal& bound, bool open);
  void reduce_upper(const Decimal& bound, bool open);
  bool restrict_to(Written way);  ///< false when no number is left
  bool restrict_to(const std::vector<Decimal>& sorted);
  void exclude(const std::vector<Decimal>& sorted);
  /// Members, or a single number, as plans of whole numbers and of others, the first written
  /// without point and exponent; itself where it is no such set, or says how its numbers are
  /// written.
  std::vector<NumberPlan> split_whole() const;
  bool contains(const Decimal& value) const;  ///< however it is written
  bool is_empty() const;
  /// How many numbers it has, or `cap` when there are at least that many.
  uint64_t count(uint64_t cap) const;
  /// Texts of different ones: of all, or of `most`.
  std::vector<std::string> list(uint64_t most) const;
};

}  // namespace specdec
