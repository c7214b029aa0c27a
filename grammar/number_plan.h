#pragma once
#include <optional>
#include <string>
#include <string_view>
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

/// How the text of a number may look.
enum class NumberStyle {
  kPlain,  ///< whole numbers without point and exponent; others with an exponent only when
           ///< unbounded
  kAny,    ///< every JSON number
};

/// True when the text, the beginning of a JSON number, can be completed to a number of the set.
bool can_complete(const NumberPlan& plan, NumberStyle style, std::string_view text);
/// What makes the text, the beginning of a JSON number, a number of the set; nothing when there is
/// none, or only one of thousands of digits.
std::optional<std::string> find_completion(const NumberPlan& plan, NumberStyle style,
                                           std::string_view text);
/// True when the text is a JSON number of the set.
bool is_complete(const NumberPlan& plan, std::string_view text);

}  // namespace specdec
