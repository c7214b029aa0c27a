#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/json/unique_items.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/value_store.h"
#include "grammar/tables/hash.h"
#include "grammar/tables/intern_table.h"
#include "grammar/tables/number_sets.h"

namespace specdec {

/// Arrays of plans, after some items: how they may go on, each found out when asked for, and once.
class ArrayStates {
 public:
  /// Borrows all three.
  ArrayStates(FormulaStore& formulas, PlanQuestions& questions, Feasibility& feasibility)
      : formulas_(formulas),
        questions_(questions),
        feasibility_(feasibility),
        unique_(formulas, questions, feasibility, sets_) {}

  /// Adds a plan; the state before the first item of its arrays.
  ArrayStateId add(ArrayPlan plan);
  const ArrayState& operator[](ArrayStateId id) const { return states_[id]; }
  const ArrayPlan& plan(ArrayStateId id) const { return plans_[states_[id].plan]; }
  bool may_end(ArrayStateId id) const;
  /// True when the array can be finished.
  bool feasible(ArrayStateId id);
  /// How the next item may be; where values are told apart, the states after it do not know its
  /// value yet.
  const std::vector<Choice>& items(ArrayStateId id);
  /// Choices of the next item as of items(), with ways among them that may lead nowhere.
  std::vector<Choice> ways(ArrayStateId id);

  // Arrays whose items must differ, or must not.

  /// The values of items, by which they are told apart.
  ValueStore& store() { return store_; }
  /// True when it matters which values its items have.
  bool tells_values(ArrayStateId id) const {
    return plan(id).unique || (plan(id).repeated && !states_[id].repeated);
  }
  /// How many different values its items have, where they are told apart.
  uint64_t count_seen(ArrayStateId id) const { return sets_.size(states_[id].seen); }
  /// The state once the item's value is known; itself where that does not matter.
  ArrayStateId with_item(ArrayStateId id, ValueId value);
  /// The state after an item of any value but those `told_apart`.
  ArrayStateId with_other_item(ArrayStateId id);
  /// True when the item may have that value.
  bool takes(ArrayStateId id, ValueId value);
  /// Values, sorted, with which an item makes a difference to what may follow; all others are
  /// alike.
  std::vector<ValueId> excluded_values(ArrayStateId id);
  /// Upper bound of the number of excluded values.
  uint64_t count_excluded_values(ArrayStateId id);

 private:
  struct Hash {
    uint64_t operator()(const ArrayState& state) const {
      return WordHash()
          .add(uint64_t{state.plan} << 32 | state.twin)
          .add(state.count << 2 | uint64_t{state.repeated} << 1 | uint64_t{state.any_seen})
          .add_all(state.contained)
          .add(state.seen)
          .value();
    }
  };
  ArrayStateId intern(ArrayState state);
  bool enough_alike(const ArrayState& state);
  bool search(ArrayStateId id);
  bool feasible_further_on(const ArrayState& state);
  /// A way that the next item may count towards each `contains`.
  struct Way {
    std::vector<FormulaId> parts;
    ArrayState next;
  };
  std::vector<Way> all_ways(ArrayStateId id);
  enum class Wanted : uint8_t { kAll, kWayOn };
  std::vector<Choice> choices(ArrayStateId id, Wanted wanted);
  std::vector<Choice> unique_items(ArrayStateId id);
  bool has_value_for(const Choice& choice);
  bool leads_to_twins(ArrayStateId id);
  std::vector<Choice> repeated_items(ArrayStateId id);
  FormulaId later_items(ArrayStateId id);
  FormulaId any_seen(const ArrayState& state);
  const std::vector<ValueId>& watched(ArrayStateId id);

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  UniqueItems unique_;
  ValueStore store_;
  NumberSets sets_;  ///< of values
  std::deque<ArrayPlan> plans_;
  InternTable<ArrayState, Hash> states_;
  FixedPoint::Answers feasible_;
  std::unordered_map<ArrayStateId, std::vector<Choice>> items_;
  std::unordered_map<ArrayStateId, std::vector<ValueId>> watched_;
};

}  // namespace specdec
