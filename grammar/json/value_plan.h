#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/regex/regex.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/value_store.h"
#include "grammar/tables/number_sets.h"
#include "grammar/tables/sorted_map.h"

namespace specdec {

/// Strings of a language with a number of code points; the number is kept apart from the language
/// only when that is C*, so that any length up to the bounds exists.
struct StringPlan {
  RegexId language = RegexStore::kAll;
  uint64_t min = 0;
  uint64_t max = kUnbounded;
};

struct ArrayPlan {
  struct Contains {
    uint64_t from = 0;
    FormulaId formula = FormulaStore::kTrue;
    uint64_t min = 0;
    uint64_t max = kUnbounded;
  };
  std::vector<FormulaId> prefix;
  FormulaId rest = FormulaStore::kTrue;
  uint64_t min = 0;
  uint64_t max = kUnbounded;
  std::vector<Contains> contains;
  bool unique = false;
  bool repeated = false;  ///< two items are equal

  FormulaId item(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

/// A name of its own, or a class of all other names with the same assertions.
struct PropertyPlan {
  FormulaId goal = FormulaStore::kTrue;
  uint64_t exists = 0;  ///< bits of the ObjectPlan's `exists` that it can fulfil
  // A name:
  NameId name = 0;
  bool required = false;
  uint32_t rank = kNoRank;  ///< its position in the order of `properties`
  // A class:
  RegexId language = RegexStore::kNothing;
};

/// What a clause says of one property.
struct ClauseLiteral {
  NameId name = 0;
  FormulaId formula = FormulaStore::kTrue;  ///< of its value
  FormulaId meaning = FormulaStore::kTrue;  ///< the same, when that only refers to a subschema
  /// The formula or its contrary, where it lists its values: few constants.
  FormulaId listing = FormulaStore::kFalse;
  bool present = false;  ///< it must be there; else only its value matters
  uint32_t rank = kNoRank;
  size_t place = 0;  ///< among the plan's names, once they are prepared
};
using ClausePart = std::vector<ClauseLiteral>;  ///< all of them hold
using ObjectClause = std::vector<ClausePart>;   ///< one of them does

/// Clauses that share names with each other and with no others, and these names, by their places.
struct ClauseGroup {
  std::vector<uint32_t> clauses;
  std::vector<uint32_t> names;
};

struct ObjectPlan {
  // What the atoms say, merged:
  struct Named {
    FormulaId goal = FormulaStore::kTrue;
    uint32_t rank = kNoRank;
    bool required = false;
  };
  SortedMap<NameId, Named> named;
  uint64_t required = 0;  ///< how many of them
  std::vector<std::pair<KeySetId, FormulaId>> rules;
  std::vector<std::pair<KeySetId, FormulaId>> exists;
  std::vector<ObjectClause> clauses;  ///< other names than theirs can fulfil `exists`
  uint64_t min = 0;
  uint64_t max = kUnbounded;
  // Made from them by ObjectStates::start: names in the order of their code points, and the
  // classes.
  std::vector<PropertyPlan> names;
  std::vector<PropertyPlan> classes;
  std::vector<ClauseGroup> clause_groups;
  std::vector<std::vector<uint32_t>> clauses_of;  ///< by name
  std::vector<uint32_t> clause_group_of;          ///< by name; of none: as many as there are

  Named& require(NameId name);  ///< the name is required from now on
};

using ArrayStateId = uint32_t;
using ObjectStateId = uint32_t;
using ObjectPlanId = uint32_t;

/// Everything that a value may be, alternatives of each type; each can be finished.
struct ValuePlan {
  bool can_be_null = false;
  bool can_be_false = false;
  bool can_be_true = false;
  std::vector<StringPlan> strings;
  std::vector<uint32_t> numbers;       ///< ids for JsonPlans::number
  std::vector<ArrayStateId> arrays;    ///< before their first item
  std::vector<ObjectStateId> objects;  ///< before their first property
};

/// Inside an array: after some items.
struct ArrayState {
  uint32_t plan = 0;
  uint64_t count = 0;  ///< items, no further than it matters
  std::vector<uint64_t> contained;
  /// Values of the items: of an array whose items must differ, or must not.
  NumberSets::Id seen = NumberSets::kEmpty;
  bool repeated = false;  ///< two were equal, as they had to be
  bool any_seen = false;  ///< an item of unknown value was among those that one must be equal to
  /// What an item was that must come again, while looking ahead; kFalse: none.
  FormulaId twin = FormulaStore::kFalse;
  bool operator==(const ArrayState&) const = default;
};

/// Some values of a formula, with a text of each.
struct ValueEntry {
  ValueId id = 0;
  std::string text;
};
struct ValueList {
  std::vector<ValueEntry> entries;
  bool all = true;  ///< there are no others
};

/// Inside an object: after some properties.
struct ObjectState {
  static constexpr uint64_t kSettled = ~uint64_t{0};  ///< a clause that holds whatever comes
  ObjectPlanId plan = 0;
  uint64_t count = 0;                 ///< properties, no further than it matters
  uint64_t pending = 0;               ///< bits of `exists` that are not fulfilled yet
  uint32_t next_rank = 0;             ///< with the schema's order: names of lower rank are over
  std::vector<uint64_t> seen;         ///< bits of the plan's names
  std::vector<uint64_t> clauses;      ///< bits of the parts that may still hold, or kSettled
  std::vector<uint32_t> seen_others;  ///< names outside the plan's, as text ids, sorted
  bool has_seen(size_t name) const { return (seen[name / 64] >> (name % 64) & 1) != 0; }
  bool operator==(const ObjectState&) const = default;
};

/// One way to go on with an item or a property: what the value must be, and the state after it.
struct Choice {
  FormulaId goal = FormulaStore::kTrue;
  uint32_t next = 0;
  bool operator==(const Choice&) const = default;
};

/// Which properties an object may go on with.
struct ObjectChoices {
  std::vector<bool> names;
  std::vector<bool> classes;
  bool may_end = false;
};

}  // namespace specdec
