#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/json/alternatives.h"
#include "grammar/json/array_states.h"
#include "grammar/json/feasibility.h"
#include "grammar/json/object_states.h"
#include "grammar/json/value_plan.h"
#include "grammar/numbers/number_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// What the values of formulas may be, and whether they exist. All of it is computed when asked
/// for, and once.
class JsonPlans final : private Feasibility {
 public:
  /// Borrows both.
  JsonPlans(FormulaStore& formulas, SchemaFormulas& schemas, JsonPlanOptions options);
  JsonPlans(const JsonPlans&) = delete;
  JsonPlans& operator=(const JsonPlans&) = delete;

  const ValuePlan& value(FormulaId goal);
  bool possible(FormulaId formula) override;
  /// True only when there are Feasibility::kPlenty such values; told by a part of them that is
  /// quickly counted.
  bool has_plenty(FormulaId goal) override { return has_plenty(goal, 0); }
  bool has_plenty(const StringPlan& plan) { return distinct_strings(plan, kPlenty) >= kPlenty; }
  /// The same of objects that go on with one of these names of the plan, or with one of which what
  /// follows is in one of the languages.
  bool has_plenty(ObjectStateId state, size_t first_name, size_t last_name,
                  std::span<const RegexId> others) {
    return has_plenty_names(state, others) || has_plenty_values(state, first_name, last_name, 0);
  }
  /// The same of objects that go on with any property.
  bool has_plenty_after(ObjectStateId state) { return has_plenty_after(state, 0); }
  const NumberPlan& number(uint32_t id) const { return numbers_[id]; }
  ArrayStates& arrays() { return arrays_; }
  const ArrayStates& arrays() const { return arrays_; }
  ObjectStates& objects() { return objects_; }

  /// Makes plans for all that can be reached, so that what is too large is known beforehand.
  void prepare_all(FormulaId root);

 private:
  bool impossible(FormulaId formula) override;
  uint64_t distinct(FormulaId goal, uint64_t cap) override { return distinct(goal, cap, 0); }
  uint64_t distinct(FormulaId goal, uint64_t cap, int depth);
  uint64_t distinct_strings(const StringPlan& plan, uint64_t cap);
  uint64_t distinct_arrays(const ArrayPlan& plan, uint64_t cap, int depth);
  uint64_t distinct_objects(const ObjectPlan& plan, uint64_t cap, int depth);
  bool has_plenty(FormulaId goal, int depth);
  bool has_plenty_after(ObjectStateId state, int depth);
  bool has_plenty_names(ObjectStateId state, std::span<const RegexId> others);
  bool has_plenty_values(ObjectStateId state, size_t first_name, size_t last_name, int depth);
  bool search(FormulaId formula);
  std::vector<uint32_t> numbers_of(FormulaId goal);
  const std::vector<ArrayStateId>& arrays_of(FormulaId goal);
  const std::vector<ObjectPlanId>& objects_of(FormulaId goal);

  FormulaStore& formulas_;
  PlanQuestions questions_;
  Alternatives alternatives_;
  ArrayStates arrays_;
  ObjectStates objects_;
  std::unordered_map<FormulaId, ValuePlan> values_;
  ValuePlan unsettled_;           ///< one that leaned on an open question: not kept
  FixedPoint::Answers possible_;  ///< by formula
  std::unordered_map<FormulaId, bool> plenty_;
  std::vector<NumberPlan> numbers_;
  std::unordered_map<FormulaId, std::vector<ArrayStateId>> arrays_of_;
  std::unordered_map<FormulaId, std::vector<ObjectPlanId>> objects_of_;
};

}  // namespace specdec
