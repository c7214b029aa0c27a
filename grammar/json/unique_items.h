#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/tables/number_sets.h"

namespace specdec {

/// Different values for the items that an array with `uniqueItems` still needs: whether there are
/// enough of them, at each place and for each `contains`.
class UniqueItems {
 public:
  /// Borrows all four.
  UniqueItems(FormulaStore& formulas, PlanQuestions& questions, Feasibility& feasibility,
              const NumberSets& sets)
      : formulas_(formulas), questions_(questions), feasibility_(feasibility), sets_(sets) {}

  struct Answer {
    bool possible = false;
    /// Values, sorted, of which one more item may make a difference to the answer; others do not.
    std::vector<ValueId> watched;
    bool complete = true;  ///< no values were left out that nest too deep
  };
  /// Whether the array can be completed with `least` items or more.
  Answer find(const ArrayPlan& plan, const ArrayState& state, uint64_t least) {
    return find(plan, state, least, kAnyDepth);
  }
  /// Whether the array can be completed: asked of values that nest little before others are looked
  /// at, since those may be arrays of which the same is asked.
  bool is_possible(const ArrayPlan& plan, const ArrayState& state);

 private:
  static constexpr int kAnyDepth = -1;
  /// Items that may be the same values, and those values by class: by the `contains` that count
  /// them.
  struct Slot {
    FormulaId goal = FormulaStore::kTrue;
    uint64_t items = 0;
    bool counted = true;  ///< by `contains`; else all values are of one class
    struct Values {
      bool plenty = false;  ///< more than all items together need
      std::vector<ValueId> ids = {};
    };
    std::vector<Values> classes = {};
  };
  struct Task {
    const ArrayPlan& plan;
    const ArrayState& state;
    int depth = kAnyDepth;              ///< of the values that are looked at
    uint64_t items = 0;                 ///< that come
    uint64_t uncounted = 0;             ///< the first of them, which no `contains` counts
    std::vector<size_t> contains = {};  ///< those that still matter
    std::vector<Slot> slots = {};
    std::vector<uint64_t> counts = {};            ///< of items by class
    std::vector<uint64_t> most = {};              ///< the same, as many as there may be
    std::set<std::vector<uint64_t>> failed = {};  ///< see choose_counts
  };

  Answer find(const ArrayPlan& plan, const ArrayState& state, uint64_t least, int depth);
  void add_contains(Task& task);
  bool fits(Task task, Answer& answer);
  void add_slots(Task& task);
  FormulaId class_goal(const Task& task, FormulaId goal, size_t which);
  Slot::Values values(const Task& task, FormulaId goal, Answer& answer);
  bool choose_counts(Task& task, size_t classes, uint64_t left);
  static void find_most(Task& task);
  static std::vector<uint64_t> contained(const Task& task, size_t classes);
  static bool may_be_enough(const Task& task, size_t classes, uint64_t left,
                            const std::vector<uint64_t>& contained);
  static bool matches(const Task& task);
  static bool matches_behind_uncounted(const Task& task);

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  const NumberSets& sets_;  ///< that the states' `seen` are in
};

}  // namespace specdec
