#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/json/name_classes.h"
#include "grammar/numbers/number_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"
#include "grammar/tables/fixed_point.h"
#include "grammar/tables/intern_table.h"
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

  FormulaId item(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

/// A name of its own, or a class of all other names with the same assertions.
struct PropertyPlan {
  FormulaId goal = FormulaStore::kTrue;
  uint64_t exists = 0;  ///< bits of the ObjectPlan's `exists` that it can fulfil
  // A name:
  NameId name = 0;
  bool required = false;
  uint32_t rank = kNoRank;  ///< its place in the order of `properties`
  // A class:
  RegexId language = RegexStore::kNothing;
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
  uint64_t min = 0;
  uint64_t max = kUnbounded;
  // Made from them by JsonPlans::start: names in the order of their code points, and the classes.
  std::vector<PropertyPlan> names;
  std::vector<PropertyPlan> classes;

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
  FormulaId unseen = FormulaStore::kTrue;  ///< what a new item of a `unique` array must be
  bool operator==(const ArrayState&) const = default;
};

/// Inside an object: after some properties.
struct ObjectState {
  ObjectPlanId plan = 0;
  uint64_t count = 0;                 ///< properties, no further than it matters
  uint64_t pending = 0;               ///< bits of `exists` that are not fulfilled yet
  uint32_t next_rank = 0;             ///< with the schema's order: names of lower rank are over
  std::vector<uint64_t> seen;         ///< bits of the plan's names
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

struct JsonPlanOptions {
  bool schema_order = false;
  uint64_t max_alternatives = 10'000;  ///< of one value and type
  uint64_t max_steps = 3'000'000;      ///< of all the work on alternatives and feasibility
};

/// Normal forms of formulas and the question whether a value exists. All of it is computed when
/// asked for, and once.
class JsonPlans {
 public:
  JsonPlans(FormulaStore& formulas, SchemaFormulas& schemas, JsonPlanOptions options);
  ~JsonPlans();
  JsonPlans(const JsonPlans&) = delete;
  JsonPlans& operator=(const JsonPlans&) = delete;

  const ValuePlan& value(FormulaId goal);
  /// True when some finite JSON value satisfies the formula.
  bool possible(FormulaId formula);

  const NumberPlan& number(uint32_t id) const { return numbers_[id]; }

  const ArrayState& array(ArrayStateId id) const { return array_states_[id]; }
  const ArrayPlan& array_plan(ArrayStateId id) const { return arrays_[array_states_[id].plan]; }
  bool array_may_end(ArrayStateId id) const;
  /// True when the array can be finished.
  bool feasible_array(ArrayStateId id);
  /// How the next item may be; the states after it do not know its value yet.
  const std::vector<Choice>& items(ArrayStateId id);
  /// The state of a `unique` array once the item's value is known.
  ArrayStateId with_item(ArrayStateId id, const JsonValue& value);

  const ObjectState& object(ObjectStateId id) const { return object_states_[id]; }
  const ObjectPlan& object_plan(ObjectStateId id) const {
    return objects_[object_states_[id].plan];
  }
  const ObjectChoices& choices(ObjectStateId id);
  /// False when it makes no difference which of a class's names comes next: none came before, and
  /// none may come after it.
  bool names_matter(ObjectStateId id) const;
  /// How the value of that name may be; empty when the name may not come next.
  const std::vector<Choice>& property(ObjectStateId id, uint32_t name);
  /// The same for a name outside the plan's: of that class, never seen in this object.
  std::vector<Choice> other_property(ObjectStateId id, uint32_t property_class, uint32_t text);

  /// Makes plans for all that can be reached, so that what is too large is known beforehand.
  void prepare_all(FormulaId root);

 private:
  enum class Truth : uint8_t { kFalse, kTrue, kOpen };

  /// What is left to do for one alternative.
  struct Task {
    std::vector<FormulaId> pending;
    std::vector<FormulaId> choices;  ///< disjunctions
  };

  /// By type: which values a formula holds of, and of which it depends on the value.
  struct Truths {
    TypeMask known = 0;  ///< types that were asked for
    TypeMask always = 0;
    TypeMask open = 0;
  };

  struct ArrayStateHash {
    uint64_t operator()(const ArrayState& state) const {
      return WordHash()
          .add(uint64_t{state.plan} << 32 | state.unseen)
          .add(state.count)
          .add_all(state.contained)
          .value();
    }
  };
  struct ObjectStateHash {
    uint64_t operator()(const ObjectState& state) const {
      return WordHash()
          .add(uint64_t{state.plan} << 32 | state.next_rank)
          .add(state.count)
          .add(state.pending)
          .add_all(state.seen)
          .add_all(state.seen_others)
          .value();
    }
  };

  Truth truth(FormulaId formula, JsonValue::Type type);
  Truths truths(FormulaId formula, TypeMask asked, int depth = 0);
  Truths truths_of_atom(const Atom& atom, TypeMask asked, int depth);
  Truths truths_of_parts(FormulaId formula, TypeMask asked, int depth);
  bool impossible(FormulaId formula);
  bool search(FormulaId formula);
  /// Answers a question about feasibility: a value that needs itself does not exist.
  template <class Question>
  bool ask(FixedPoint::Answers& answers, uint32_t key, Question question) {
    return questions_.ask(answers, key, [&] {
      begin_question();
      return question();
    });
  }
  template <class Plan>
  std::vector<Plan> alternatives(FormulaId goal);
  template <class Plan>
  void expand(Task task, Plan plan, std::vector<Plan>& found);
  template <class Plan>
  bool add_all(Task& task, Plan& plan);
  template <class Plan>
  bool settle_choices(Task& task, Plan& plan);
  bool add(const Atom& atom, StringPlan& plan);
  bool add(const Atom& atom, NumberPlan& plan);
  bool add(const Atom& atom, ArrayPlan& plan);
  bool add(const Atom& atom, ObjectPlan& plan);
  bool implied(FormulaId formula, const ObjectPlan& plan, int depth);
  template <class Plan>
  bool implied(FormulaId, const Plan&, int) {
    return false;
  }
  bool plausible(const ObjectPlan& plan);
  template <class Plan>
  bool plausible(const Plan&) {
    return true;
  }
  /// Adds a goal for the time of its planning.
  class Planning {
   public:
    Planning(std::vector<FormulaId>& goals, FormulaId goal) : goals_(goals) {
      goals_.push_back(goal);
    }
    ~Planning() { goals_.pop_back(); }
    Planning(const Planning&) = delete;
    Planning& operator=(const Planning&) = delete;

   private:
    std::vector<FormulaId>& goals_;
  };
  /// Where the subschemas stand that a goal is made of, the first few; empty without any.
  std::string locations(FormulaId goal) const;
  /// Throws GrammarError with the locations of what is being planned.
  [[noreturn]] void fail(const std::string& what) const;
  void count_step();
  void begin_question();  ///< bounds steps and depth
  void begin_reading();   ///< limits hold for the schema, and then for each place of a text
  std::vector<StringPlan> strings(FormulaId goal);
  std::vector<uint32_t> numbers(FormulaId goal);
  template <class Plan, class Add>
  const std::vector<uint32_t>& plans_of(
      FormulaId goal, Add add, std::unordered_map<FormulaId, std::vector<uint32_t>>& known);
  const std::vector<ArrayStateId>& arrays(FormulaId goal);
  const std::vector<ObjectPlanId>& object_plans(FormulaId goal);
  FormulaId all_of(FormulaId a, FormulaId b) { return a == b ? a : formulas_.all_of({a, b}); }

  uint64_t distinct(FormulaId goal, uint64_t cap, int depth = 0);
  ArrayStateId add_array(ArrayPlan plan);
  ArrayStateId intern(ArrayState state);
  bool enough_alike(const ArrayState& state);
  enum class Wanted : uint8_t { kAll, kWayOn };
  std::vector<Choice> array_choices(ArrayStateId id, Wanted wanted);

  /// Before the first property; prepares the plan.
  ObjectStateId start(ObjectPlanId id);
  void prepare(ObjectPlan& plan);
  FormulaId goal_of(NameId name, const ObjectPlan& plan);
  /// True when the object can be finished; prepares the plan only if that makes a difference.
  bool feasible_plan(ObjectPlanId id);
  void prepare_names(ObjectPlan& plan);
  void prepare_classes(ObjectPlan& plan);
  ObjectStateId intern(ObjectState state);
  bool feasible_object(ObjectStateId id);
  bool open_name(const ObjectState& state, const PropertyPlan& property, size_t index) const;
  std::optional<uint64_t> some_more(const ObjectState& state, uint64_t pending,
                                    std::vector<std::pair<size_t, FormulaId>>& used);
  uint64_t capacity(const ObjectState& state, uint64_t wanted);
  ObjectChoices counted_choices(const ObjectState& state, const ObjectPlan& plan);
  std::vector<Choice> property_choices(const ObjectState& before, const PropertyPlan& property,
                                       ObjectState after);

  FormulaStore& formulas_;
  SchemaFormulas& schemas_;
  JsonPlanOptions options_;
  NameClasses name_classes_;
  std::vector<FormulaId> goals_;  ///< being planned, the innermost last
  uint64_t steps_ = 0;
  FixedPoint questions_;
  std::unordered_map<FormulaId, ValuePlan> values_;
  ValuePlan unsettled_;           ///< one that leaned on an open question: not kept
  FixedPoint::Answers possible_;  ///< by formula
  std::vector<Truths> truths_;    ///< by formula
  std::vector<NumberPlan> numbers_;
  std::unordered_map<FormulaId, std::vector<ArrayStateId>> arrays_of_;
  std::unordered_map<FormulaId, std::vector<ObjectPlanId>> objects_of_;
  std::deque<ArrayPlan> arrays_;
  InternTable<ArrayState, ArrayStateHash> array_states_;
  FixedPoint::Answers array_feasible_;
  std::unordered_map<ArrayStateId, std::vector<Choice>> items_;
  std::deque<ObjectPlan> objects_;
  std::unordered_map<ObjectPlanId, ObjectStateId> starts_;
  InternTable<ObjectState, ObjectStateHash> object_states_;
  FixedPoint::Answers object_feasible_;
  std::unordered_map<ObjectStateId, ObjectChoices> choices_;
  std::unordered_map<uint64_t, std::vector<Choice>> properties_;
};

}  // namespace specdec
