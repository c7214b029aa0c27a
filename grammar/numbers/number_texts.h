#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/numbers/number_fractions.h"
#include "grammar/numbers/number_plan.h"
#include "grammar/numbers/number_prefix.h"

namespace specdec {

/// How the text of a number may look.
enum class NumberStyle {
  kPlain,  ///< whole numbers without point and exponent; others with an exponent only when
           ///< unbounded
  kAny,    ///< every JSON number
};

/// The texts of a set's numbers, and what they begin with. Immutable.
class NumberTexts {
 public:
  /// Throws GrammarError for numbers beyond 10^+-500.
  NumberTexts(const NumberPlan& plan, NumberStyle style);

  /// True when the text, the beginning of a JSON number, can be completed to a number of the set.
  bool can_complete(std::string_view text) const;
  /// What makes the text, the beginning of a JSON number, a number of the set; nothing when there
  /// is none, or only one of thousands of digits.
  std::optional<std::string> find_completion(std::string_view text) const;
  /// What makes the text different numbers of the set: of all that it can become, or of `most`.
  std::vector<std::string> completions(std::string_view text, uint64_t most) const;
  /// True only when the text can become that many numbers of the set: told by a part of them.
  bool has_completions(std::string_view text, uint64_t many) const;
  /// True when the text, the beginning of a JSON number, is one of the set.
  bool is_complete(std::string_view text) const;
  /// A beginning that goes on to numbers of the set exactly as this one does; the same one for most
  /// that do, so that a place after many texts is one place.
  std::string representative(std::string_view text) const;

 private:
  /// How a continuation of the digits may be scaled: by digits before the point, or an exponent.
  struct Shift {
    int64_t power = 0;
    bool exponent = false;
  };
  /// The digits of a bound other than zero.
  struct Bound {
    bool negative = false;
    std::string digits;
  };
  /// Magnitudes of the numbers of one sign.
  struct Magnitudes {
    int64_t least = std::numeric_limits<int64_t>::min() / 2;
    int64_t most = std::numeric_limits<int64_t>::max() / 2;
  };
  enum class Order : uint8_t { kAlike, kLess, kGreater };
  /// Order of digits and each bound of a sign, wherever their points are; digits that a bound
  /// begins with are like it.
  struct Comparison {
    std::vector<Order> orders;
    size_t deciding = 0;  ///< how many of the digits it takes to compare them
  };

  bool can_complete(const NumberPrefix& prefix) const;
  std::optional<std::string> find_completion(const NumberPrefix& prefix) const;
  using Completions = std::map<mpq_class, std::string>;  ///< by value
  void complete(const NumberPrefix& prefix, uint64_t most, Completions& found) const;
  void complete_exponent(const NumberPrefix& prefix, uint64_t most, Completions& found) const;
  void complete_shifted(const NumberPrefix& prefix, Shift shift, uint64_t most,
                        Completions& found) const;
  bool visit_shifts(const NumberPrefix& prefix, const std::function<bool(Shift)>& visit) const;
  bool may_have_sign(const NumberPrefix& prefix) const;
  bool contains(const NumberPrefix& prefix, const mpq_class& absolute) const;
  NumberFractions::Interval cone(const NumberPrefix& prefix, int64_t power) const;
  std::optional<Shift> first_shift(const NumberPrefix& prefix) const;
  std::optional<int64_t> first_exponent(const NumberPrefix& prefix) const;
  std::optional<int64_t> beyond_window(const NumberPrefix& prefix, int sign) const;
  static bool visit_first_digits(const NumberPrefix& prefix,
                                 const std::function<bool(const NumberPrefix&)>& visit);
  int64_t window(const NumberPrefix& prefix) const;
  Magnitudes scales(const NumberPrefix& prefix) const;
  Comparison compare(const std::string& digits, bool negative) const;
  std::string simplest(std::string digits, bool negative) const;
  void shorten_mantissa(NumberPrefix& prefix) const;

  NumberPlan plan_;
  NumberFractions set_;
  bool not_whole_ = false;  ///< a point or an exponent must come
  bool free_exponent_ = false;
  bool whole_only_ = false;    ///< no point, and so no exponent
  bool told_by_size_ = false;  ///< units do not matter, but for being whole
  bool scaled_units_ = false;  ///< whole, and an exponent may make it so
  std::vector<Bound> bounds_;
  Magnitudes positive_, negative_;
  int64_t window_ = 0;
};

}  // namespace specdec
