#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/tables/hash.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// Arrays of plans, after some items: how they may go on, each found out when asked for, and once.
class ArrayStates {
 public:
  /// Borrows all three.
  ArrayStates(FormulaStore& formulas, PlanQuestions& questions, Feasibility& feasibility)
      : formulas_(formulas), questions_(questions), feasibility_(feasibility) {}

  /// Before the first item of a plan's arrays.
  ArrayStateId add(ArrayPlan plan);
  const ArrayState& operator[](ArrayStateId id) const { return states_[id]; }
  const ArrayPlan& plan(ArrayStateId id) const { return plans_[states_[id].plan]; }
  bool may_end(ArrayStateId id) const;
  /// True when the array can be finished.
  bool feasible(ArrayStateId id);
  /// How the next item may be; the states after it do not know its value yet.
  const std::vector<Choice>& items(ArrayStateId id);
  /// The state of a `unique` array once the item's value is known.
  ArrayStateId with_item(ArrayStateId id, const JsonValue& value);
  /// True when it goes on in the same ways whatever one value it had as another item.
  bool can_spare_a_value(ArrayStateId id);

 private:
  struct Hash {
    uint64_t operator()(const ArrayState& state) const {
      return WordHash()
          .add(uint64_t{state.plan} << 32 | state.unseen)
          .add(state.count)
          .add_all(state.contained)
          .value();
    }
  };
  ArrayStateId intern(ArrayState state);
  bool enough_alike(const ArrayState& state);
  enum class Wanted : uint8_t { kAll, kWayOn };
  std::vector<Choice> choices(ArrayStateId id, Wanted wanted);

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  std::deque<ArrayPlan> plans_;
  InternTable<ArrayState, Hash> states_;
  FixedPoint::Answers feasible_;
  std::unordered_map<ArrayStateId, std::vector<Choice>> items_;
};

}  // namespace specdec
