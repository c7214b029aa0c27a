#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/regex/regex.h"
#include "grammar/tables/growing_array.h"
#include "grammar/tables/hash_slots.h"

namespace specdec {

/// The expressions of a RegexStore: hash-consed nodes with constructors that bring them into the
/// similarity form of Owens, Reppy and Turon 2009 (section 4.1), so that each expression has
/// finitely many derivatives, and further so that few of them are needed. While one thread makes
/// expressions, others may look at nodes and points of those that they were given, at nothing else.
class RegexNodes {
 public:
  enum class Kind : uint8_t { kNothing, kEmpty, kClass, kConcat, kOr, kAnd, kNot, kRepeat };
  static constexpr uint64_t kInfinite = std::numeric_limits<uint64_t>::max();
  static constexpr RegexId kAnyPoint = 3;  ///< one code point, whichever

  /// kClass: `a` the class. kConcat: `a` then `b`, `a` never a kConcat itself. kOr, kAnd: `b`
  /// operands at `a`. kNot: not `a`. kRepeat: `a` from `min` to `max` times.
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;  ///< matches the empty text
    bool extended = false;  ///< has a kAnd or kNot in it, so its language may be empty unseen
    uint32_t a = 0;
    uint32_t b = 0;
    uint64_t min = 0;
    uint64_t max = 0;
    uint64_t shortest = 0;     ///< lower bound of the texts' lengths; exact unless extended
    uint64_t longest = 0;      ///< upper bound; exact unless extended
    WideHash::Value key = {};  ///< the same for the same expression in all stores
    bool same_expression(const Node& other) const;
  };

  RegexNodes();
  RegexNodes(const RegexNodes&) = delete;
  RegexNodes& operator=(const RegexNodes&) = delete;

  const Node& operator[](RegexId id) const { return nodes_[id]; }
  RegexId size() const { return size_; }
  /// Operands of a kOr or kAnd, sorted. The span lives until the next constructor.
  std::span<const RegexId> operands(RegexId id) const;
  const CodePoints& points(RegexId id) const { return classes_[nodes_[id].a]; }
  /// Operands stored so far, to bound what derivatives may use.
  uint64_t stored_operands() const { return operands_.size(); }
  uint64_t bytes() const;

  RegexId one_of(const CodePoints& points);
  RegexId letter(char32_t point);
  RegexId concat(RegexId first, RegexId second);
  RegexId any_of(std::vector<RegexId> parts);
  RegexId all_of(std::vector<RegexId> parts);
  RegexId complement(RegexId regex);
  RegexId repeat(RegexId regex, uint64_t min, uint64_t max);

 private:
  /// A union's operand seen as `base`{min,max} `tail`.
  struct Counted {
    RegexId tail = 0;
    RegexId base = 0;
    uint64_t min = 0;
    uint64_t max = 0;
    auto operator<=>(const Counted&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  uint64_t hash(RegexId id) const;
  bool same(RegexId a, RegexId b) const;
  RegexId add(Node node);
  WideHash::Value key_of(RegexId id) const;
  RegexId add_operands(Kind kind, const std::vector<RegexId>& parts);
  RegexId prepend(RegexId head, RegexId tail);
  std::optional<RegexId> join_repeats(RegexId head, RegexId tail);
  std::optional<RegexId> repeat_of_repeat(const Node& inner, uint64_t min, uint64_t max);
  Counted counted(RegexId id) const;
  void flatten(Kind kind, std::vector<RegexId>& parts) const;
  void unite_classes(std::vector<RegexId>& parts);
  void unite_repeats(std::vector<RegexId>& parts);
  void intersect_class_repeats(std::vector<RegexId>& parts);
  bool has_opposites(const std::vector<RegexId>& parts) const;
  bool has_excluded(const std::vector<RegexId>& parts) const;

  GrowingArray<Node> nodes_;
  RegexId size_ = 0;
  std::vector<RegexId> operands_;
  GrowingArray<CodePoints> classes_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, uint32_t> class_ids_;
  std::array<RegexId, 128> letters_ = {};  ///< those of ASCII; kNothing: not made yet
  NumberSlots ids_;                        ///< of different expressions
  uint64_t class_bytes_ = 0;
};

}  // namespace specdec
