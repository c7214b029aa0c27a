#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/json/clause_reader.h"
#include "grammar/json/feasibility.h"
#include "grammar/json/formula_truths.h"
#include "grammar/json/property_cases.h"
#include "grammar/json/value_plan.h"
#include "grammar/numbers/number_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// Normal forms of formulas: for each type of values the alternatives that a formula leaves,
/// without disjunctions. Whether arrays and objects can be finished is not looked at here.
class Alternatives {
 public:
  /// Borrows all four.
  Alternatives(FormulaStore& formulas, SchemaFormulas& schemas, PlanQuestions& questions,
               Feasibility& feasibility)
      : formulas_(formulas),
        schemas_(schemas),
        questions_(questions),
        feasibility_(feasibility),
        truths_(formulas, schemas, questions),
        clauses_(formulas, schemas, truths_),
        cases_(formulas, schemas, questions, truths_, feasibility, clauses_) {}

  /// Types all of whose values satisfy the formula, among those that are asked for.
  TypeMask always(FormulaId formula, TypeMask asked) { return truths_.always(formula, asked); }
  std::vector<StringPlan> strings(FormulaId goal);
  std::vector<NumberPlan> numbers(FormulaId goal);
  std::vector<ArrayPlan> arrays(FormulaId goal);
  std::vector<ObjectPlan> objects(FormulaId goal);

 private:
  using Choices = std::vector<FormulaId>;
  /// What is left to do for one alternative.
  struct Task {
    std::vector<FormulaId> pending;
    Choices choices;  ///< disjunctions
  };

  template <class Plan>
  std::vector<Plan> alternatives(FormulaId goal);
  /// Cases that decide many choices at once, instead of making one of these.
  std::optional<std::vector<PropertyCases::Case>> cases(const Task& task, const ObjectPlan& plan);
  template <class Plan>
  std::optional<std::vector<PropertyCases::Case>> cases(const Task& /*task*/,
                                                        const Plan& /*plan*/) {
    return std::nullopt;
  }
  bool exist_apart(const ObjectPlan& plan);
  bool fit_clauses(const Choices& choices, const ObjectPlan& plan);
  /// The choice that is to be made next; none when they were kept as the plan's clauses.
  Choices::iterator next_choice(Task& task, ObjectPlan& plan);
  template <class Plan>
  Choices::iterator next_choice(Task& task, Plan& /*plan*/) {
    return smallest(task.choices.begin(), task.choices.end());
  }
  Choices::iterator smallest(Choices::iterator begin, Choices::iterator end);
  template <class Size>
  static uint64_t count_ways(const Choices& choices, const Size& size);
  template <class Plan>
  void expand(Task task, Plan plan, std::vector<Plan>& found);
  template <class Plan>
  bool add_all(Task& task, Plan& plan);
  template <class Plan>
  bool settle_choices(Task& task, Plan& plan);
  static void drop_repeated(Choices& choices);
  bool add(const Atom& atom, StringPlan& plan);
  bool add(const Atom& atom, NumberPlan& plan);
  bool add(const Atom& atom, ArrayPlan& plan);
  bool add(const Atom& atom, ObjectPlan& plan);
  bool implied(FormulaId formula, const ObjectPlan& plan, int depth);
  template <class Plan>
  bool implied(FormulaId, const Plan&, int) {
    return false;
  }
  FormulaId goal_of(NameId name, const ObjectPlan& plan);
  /// True only when no object of the plan satisfies the formula.
  bool contradicts(FormulaId formula, const ObjectPlan& plan, int depth);
  template <class Plan>
  bool contradicts(FormulaId, const Plan&, int) {
    return false;
  }
  /// A formula that holds for the same objects of the plan, told by the names that these may have:
  /// formulas that differ elsewhere only become one.
  FormulaId narrowed(FormulaId formula, const ObjectPlan& plan);
  FormulaId narrowed_existence(FormulaId formula, const ObjectPlan& plan);
  template <class Plan>
  FormulaId narrowed(FormulaId formula, const Plan& /*plan*/) {
    return formula;
  }
  bool narrow_existences(Task& task, ObjectPlan& plan);
  template <class Plan>
  bool narrow_existences(Task& /*task*/, Plan& /*plan*/) {
    return true;
  }
  bool plausible(const ObjectPlan& plan);
  template <class Plan>
  bool plausible(const Plan&) {
    return true;
  }
  FormulaId all_of(FormulaId a, FormulaId b) { return a == b ? a : formulas_.all_of({a, b}); }

  FormulaStore& formulas_;
  SchemaFormulas& schemas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  FormulaTruths truths_;
  ClauseReader clauses_;
  PropertyCases cases_;
};

}  // namespace specdec
