#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/json/alternatives.h"
#include "grammar/json/array_states.h"
#include "grammar/json/feasibility.h"
#include "grammar/json/object_states.h"
#include "grammar/json/value_lists.h"
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
  bool has_many(FormulaId goal, uint64_t many) override;
  bool has_many(const StringPlan& plan, uint64_t many);
  /// True only when there are so many different objects that go on with one of these names of the
  /// plan, or with one of which what follows is in one of the languages.
  bool has_many(const ValueLists::Names& names, uint64_t many);
  /// True only when there are so many different objects that go on with any property.
  bool has_many_after(ObjectStateId state, uint64_t many);
  const ValueList& values(FormulaId goal, uint64_t most) override { return lists_.of(goal, most); }
  ValueList shallow_values(FormulaId goal, uint64_t most, int depth) override {
    return lists_.shallow(goal, most, depth);
  }
  ValueLists& lists() { return lists_; }
  /// True only when there are so many different arrays that go on with any item.
  bool has_many_items_after(ArrayStateId state, uint64_t many);
  /// A string plan's language, its length included.
  RegexId bounded_language(const StringPlan& plan);
  const NumberPlan& number(uint32_t id) const { return numbers_[id]; }
  ArrayStates& arrays() { return arrays_; }
  const ArrayStates& arrays() const { return arrays_; }
  ObjectStates& objects() { return objects_; }

  /// Limits hold for what is asked from now on.
  void begin_reading() { questions_.begin_reading(); }
  void begin_call() { questions_.begin_call(); }
  /// Makes plans for all that can be reached, so that what is too large is known beforehand.
  void prepare_all(FormulaId root);

 private:
  bool impossible(FormulaId formula) override;
  uint64_t count(FormulaId goal, int depth);
  uint64_t count_anew(FormulaId goal, int depth);
  uint64_t count(const StringPlan& plan);
  uint64_t count(const ArrayPlan& plan, int depth);
  uint64_t count(const ObjectPlan& plan, int depth);
  uint64_t count_names(ObjectStateId state, std::span<const RegexId> others);
  uint64_t count_values(ObjectStateId state, size_t first_name, size_t last_name);
  bool search(FormulaId formula);
  std::vector<uint32_t> numbers_of(FormulaId goal);
  const std::vector<ArrayStateId>& arrays_of(FormulaId goal);
  const std::vector<ObjectPlanId>& objects_of(FormulaId goal);

  FormulaStore& formulas_;
  PlanQuestions questions_;
  Alternatives alternatives_;
  ArrayStates arrays_;
  ObjectStates objects_;
  ValueLists lists_;
  std::unordered_map<FormulaId, ValuePlan> values_;
  ValuePlan unsettled_;           ///< one that leaned on an open question: not kept
  FixedPoint::Answers possible_;  ///< by formula
  std::unordered_map<uint64_t, uint64_t> counts_;  ///< by formula and depth
  std::vector<NumberPlan> numbers_;
  std::unordered_map<FormulaId, std::vector<ArrayStateId>> arrays_of_;
  std::unordered_map<FormulaId, std::vector<ObjectPlanId>> objects_of_;
};

}  // namespace specdec
