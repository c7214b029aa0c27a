#pragma once
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"

namespace specdec {

/// What becomes of the clauses of objects while their properties come.
class ObjectClauses {
 public:
  /// One of the ways that a property's value may be, and what it makes false.
  struct Split {
    FormulaId goal = FormulaStore::kTrue;
    std::vector<std::pair<uint32_t, uint64_t>> dead;  ///< parts of clauses
  };

  /// Borrows all three.
  ObjectClauses(FormulaStore& formulas, PlanQuestions& questions, Feasibility& feasibility)
      : formulas_(formulas), questions_(questions), feasibility_(feasibility) {}

  /// Notes where the names of the clauses stand among the plan's, and which clauses hang together.
  static void prepare(ObjectPlan& plan);
  static std::vector<uint64_t> all_open(const ObjectPlan& plan);
  /// The property, by its place among the plan's names, will not come any more.
  static void close(const ObjectPlan& plan, size_t name, ObjectState& state);
  /// Notes which of the name's clauses hold whatever comes.
  static void settle(const ObjectPlan& plan, size_t name, ObjectState& state);
  /// False when one cannot hold any more.
  static bool apply(const Split& split, ObjectState& state);
  /// True when all hold if nothing more comes.
  static bool may_end(const ObjectPlan& plan, const ObjectState& state);
  /// How many properties they need at least.
  static uint64_t missing(const ObjectPlan& plan, const ObjectState& state);
  /// The ways that a property's value may be, as far as clauses tell them apart.
  const std::vector<Split>& splits(ObjectPlanId id, const ObjectPlan& plan, size_t name);

  /// True when properties may follow with which all hold; `can_come` tells which names still may,
  /// `others` how many properties that no clause speaks of, required ones left out.
  bool can_hold(ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
                const std::vector<bool>& can_come, uint64_t others);
  /// True when can_hold is true after a name, given that it was so before the name came: properties
  /// may follow in any order and number.
  bool can_hold_after(ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
                      size_t name);

 private:
  class Search;
  /// Formulas that a property's values are told apart by, first those that list theirs.
  struct Told {
    std::vector<FormulaId> formulas;
    size_t listing = 0;
    std::unordered_map<FormulaId, size_t> places;  ///< of what they mean, among them
  };

  static bool can_reach(Search& search, const ObjectPlan& plan, uint64_t required,
                        std::pair<uint64_t, uint64_t> bounds);
  Told told_apart(const ObjectPlan& plan, size_t name);
  void add_splits(const ObjectPlan& plan, size_t name, const Told& told, FormulaId goal,
                  std::vector<bool>& truths, std::vector<Split>& found);
  Split make_split(const ObjectPlan& plan, size_t name, const Told& told, FormulaId goal,
                   const std::vector<bool>& truths);

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  std::unordered_map<uint64_t, std::vector<Split>> splits_;  ///< by plan and name
};

}  // namespace specdec
