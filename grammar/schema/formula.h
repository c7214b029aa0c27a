#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/numbers/decimal.h"
#include "grammar/regex/regex.h"
#include "grammar/schema/json_value.h"
#include "grammar/tables/flat_map.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// What a JSON value must be: a boolean combination of atoms. Equal ids are equal formulas.
using FormulaId = uint32_t;
/// A set of property names.
using KeySetId = uint32_t;
/// The name of a property.
using NameId = uint32_t;

/// Bits by JsonValue::Type.
using TypeMask = uint32_t;
constexpr TypeMask type_bit(JsonValue::Type type) { return 1U << static_cast<unsigned>(type); }
inline constexpr TypeMask kAllTypes = 0x7F;
inline constexpr uint64_t kUnbounded = ~uint64_t{0};
inline constexpr uint32_t kNoRank = ~uint32_t{0};

enum class AtomKind : uint8_t {
  kTypes,   ///< a: mask
  kText,    ///< a: language
  kLength,  ///< min, max: code points
  kRange,   ///< a, b: lower and upper bound, plus one (0: none); min: bits 1, 2 = open below, above
  kMultiple,      ///< a: of what
  kNotMultiple,   ///< a: of what
  kNumbers,       ///< a: set of numbers: it is one of them
  kNotNumbers,    ///< a: set; none of them
  kWrittenWhole,  ///< without point and exponent
  kNotWrittenWhole,
  kItem,        ///< min: index; formula
  kItems,       ///< min: from this index on; formula
  kContains,    ///< a: from this index on; formula; min, max: how many items satisfy it
  kItemCount,   ///< min, max
  kUnique,      ///< a: node whose keyword it is; no two items are equal
  kRepeated,    ///< a: node; two are
  kProperties,  ///< a: of these names; formula; b: the name's position in `properties`, or kNoRank
  kExists,      ///< a property of the names `a` satisfies the formula
  kRequired,    ///< a: the property's name
  kPropertyCount,  ///< min, max
  kSchema,         ///< a: node, b: dynamic scope: what the subschema says
  kNotSchema,      ///< its contrary
};

/// One assertion. But for kTypes and kSchema it speaks of values of its own type only and is true
/// of all others, as JSON Schema's assertions are.
struct Atom {
  AtomKind kind = AtomKind::kTypes;
  uint32_t a = 0;
  uint32_t b = 0;
  uint64_t min = 0;
  uint64_t max = 0;
  FormulaId formula = 0;

  bool is_schema() const { return kind == AtomKind::kSchema || kind == AtomKind::kNotSchema; }
  bool operator==(const Atom&) const = default;
};

/// All names of `base` without those `excluded` (sorted), or the one `name`.
struct KeySet {
  RegexId base = RegexStore::kNothing;
  std::vector<NameId> excluded;
  NameId name = 0;  ///< plus one; 0: not a single name

  bool operator==(const KeySet&) const = default;
};

/// Hash-consed formulas in negation normal form.
class FormulaStore {
 public:
  static constexpr FormulaId kFalse = 0;
  static constexpr FormulaId kTrue = 1;
  enum class Kind : uint8_t { kConstant, kAtom, kAll, kAny };

  explicit FormulaStore(RegexStore& regexes);

  FormulaId atom(const Atom& atom);
  FormulaId all_of(std::span<const FormulaId> parts) { return combine(Kind::kAll, parts); }
  FormulaId any_of(std::span<const FormulaId> parts) { return combine(Kind::kAny, parts); }
  FormulaId all_of(std::initializer_list<FormulaId> parts) { return all_of(std::span(parts)); }
  FormulaId any_of(std::initializer_list<FormulaId> parts) { return any_of(std::span(parts)); }
  FormulaId negate(FormulaId formula);

  FormulaId types(TypeMask mask) { return atom({.kind = AtomKind::kTypes, .a = mask}); }
  FormulaId only(JsonValue::Type type) { return types(type_bit(type)); }
  FormulaId range(const Decimal* lower, bool lower_open, const Decimal* upper, bool upper_open);
  FormulaId multiple(const Decimal& unit);
  FormulaId numbers(std::vector<Decimal> values);
  FormulaId written_whole() { return atom({.kind = AtomKind::kWrittenWhole}); }
  FormulaId properties(KeySet names, FormulaId formula, uint32_t rank = kNoRank);
  FormulaId exists(KeySet names, FormulaId formula);
  FormulaId required(NameId name);
  /// "The value is equal to this one", as JSON Schema compares values.
  FormulaId equals(const JsonValue& value);
  FormulaId equals_any(const std::vector<JsonValue>& values);

  Kind kind(FormulaId formula) const { return nodes_[formula].kind; }
  // What these refer to stays where it is.
  const Atom& atom_of(FormulaId formula) const { return nodes_[formula].atom; }
  const std::vector<FormulaId>& parts(FormulaId formula) const { return nodes_[formula].parts; }

  NameId name(std::string_view utf8);
  const std::string& name_text(NameId id) const { return names_[id]; }
  const std::u32string& name_points(NameId id) const { return name_points_[id]; }
  KeySet one_name(NameId id) { return {RegexStore::kNothing, {}, id + 1}; }
  const KeySet& key_set(KeySetId id) const { return key_sets_[id]; }
  bool in_key_set(KeySetId id, NameId name);
  const Decimal& decimal(uint32_t id) const { return decimals_[id]; }
  /// Sorted.
  const std::vector<Decimal>& number_set(uint32_t id) const { return number_sets_[id]; }
  RegexStore& regexes() { return regexes_; }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    Kind kind = Kind::kConstant;
    Atom atom;
    std::vector<FormulaId> parts;
    bool operator==(const Node&) const = default;
  };
  struct NodeHash {
    uint64_t operator()(const Node& node) const;
  };
  struct KeySetHash {
    uint64_t operator()(const KeySet& set) const;
  };
  struct DecimalHash {
    size_t operator()(const Decimal& value) const {
      return WordHash()
          .add(value.digits.get_ui())
          .add(static_cast<uint64_t>(value.exponent))
          .value();
    }
  };

  struct NumberSetHash {
    uint64_t operator()(const std::vector<Decimal>& values) const {
      WordHash hash;
      for (const Decimal& value : values) {
        hash.add(DecimalHash()(value));
      }
      return hash.value();
    }
  };

  FormulaId combine(Kind kind, std::span<const FormulaId> parts);
  FormulaId negate_atom(const Atom& atom);
  FormulaId negate_range(const Atom& atom);
  FormulaId none_of_numbers(uint32_t set);
  const Atom* of_objects(FormulaId formula) const;
  void join_absences(std::vector<FormulaId>& parts);
  FormulaId outside(JsonValue::Type type, Atom count);
  KeySetId add_key_set(KeySet set);
  uint32_t add_decimal(const Decimal& value);

  RegexStore& regexes_;
  InternTable<Node, NodeHash> nodes_;
  Node combined_;                     ///< what `combine` puts together
  std::vector<FormulaId> negations_;  ///< by formula; kFalse: not known yet
  std::vector<std::string> names_;
  std::vector<std::u32string> name_points_;
  std::unordered_map<std::string, NameId> name_ids_;
  InternTable<KeySet, KeySetHash> key_sets_;
  FlatMap matches_;  ///< 1 where the name (low half) is in the language
  InternTable<Decimal, DecimalHash> decimals_;
  InternTable<std::vector<Decimal>, NumberSetHash> number_sets_;
};

}  // namespace specdec
