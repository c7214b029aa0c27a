#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/json/name_classes.h"
#include "grammar/json/object_clauses.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/tables/growing_trie.h"
#include "grammar/tables/hash.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// Objects of plans, after some properties: how they may go on, each found out when asked for, and
/// once.
class ObjectStates {
 public:
  /// Borrows all three.
  ObjectStates(FormulaStore& formulas, PlanQuestions& questions, Feasibility& feasibility)
      : formulas_(formulas),
        questions_(questions),
        feasibility_(feasibility),
        name_classes_(formulas),
        clauses_(formulas, questions, feasibility) {}

  ObjectPlanId add(ObjectPlan plan);
  /// True when an object of the plan exists; prepares the plan only if that makes a difference.
  bool feasible_plan(ObjectPlanId id);
  /// The state before the first property; prepares the plan.
  ObjectStateId start(ObjectPlanId id);

  const ObjectState& operator[](ObjectStateId id) const { return states_[id]; }
  const ObjectPlan& plan(ObjectStateId id) const { return plans_[states_[id].plan]; }
  /// True when the object can be finished.
  bool feasible(ObjectStateId id);
  const ObjectChoices& choices(ObjectStateId id);
  /// False when it makes no difference which of a class's names comes next: none came before, and
  /// none may come after it.
  bool names_matter(ObjectStateId id) const;
  /// How the value of that name may be; empty when the name may not come next.
  const std::vector<Choice>& property(ObjectStateId id, uint32_t name);
  /// How the value of a name outside the plan may be: a name of that class, never seen in this
  /// object.
  std::vector<Choice> other_property(ObjectStateId id, uint32_t property_class, uint32_t text);
  /// The texts of names outside the plans', as `other_property` takes them.
  GrowingTrie& name_texts() { return name_texts_; }
  uint32_t text_of(uint32_t beginning, std::u32string_view rest);

 private:
  struct Hash {
    uint64_t operator()(const ObjectState& state) const {
      return WordHash()
          .add(uint64_t{state.plan} << 32 | state.next_rank)
          .add(state.count)
          .add(state.pending)
          .add_all(state.seen)
          .add_all(state.clauses)
          .add_all(state.seen_others)
          .value();
    }
  };

  void prepare(ObjectPlan& plan);
  void prepare_names(ObjectPlan& plan);
  void prepare_classes(ObjectPlan& plan);
  FormulaId goal_of(NameId name, const ObjectPlan& plan);
  FormulaId all_of(FormulaId a, FormulaId b) { return a == b ? a : formulas_.all_of({a, b}); }
  ObjectStateId intern(ObjectState state);
  void close_names(ObjectState& state);
  bool open_name(const ObjectState& state, const PropertyPlan& property, size_t index) const;
  std::optional<uint64_t> some_more(const ObjectState& state, uint64_t pending,
                                    std::vector<std::pair<size_t, FormulaId>>& used);
  uint64_t capacity(const ObjectState& state, uint64_t wanted);
  ObjectChoices make_choices(ObjectStateId id);
  ObjectChoices counted_choices(const ObjectState& state, const ObjectPlan& plan);
  bool stays_enough(const ObjectState& state, const ObjectPlan& plan);
  uint64_t free_claims(const ObjectState& before, const PropertyPlan& property, FormulaId goal);
  bool meets_clauses(const ObjectState& state);
  std::optional<ObjectState> after_split(const ObjectState& before, size_t name,
                                         const ObjectClauses::Split& split);
  bool may_come(const ObjectState& before, size_t name);
  std::vector<Choice> split_choices(const ObjectState& before, size_t name);
  std::vector<Choice> property_choices(const ObjectState& before, const PropertyPlan& property,
                                       FormulaId goal, ObjectState after);

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  Feasibility& feasibility_;
  NameClasses name_classes_;
  ObjectClauses clauses_;
  std::deque<ObjectPlan> plans_;
  std::unordered_map<ObjectPlanId, ObjectStateId> starts_;
  InternTable<ObjectState, Hash> states_;
  FixedPoint::Answers feasible_;
  std::unordered_map<ObjectStateId, ObjectChoices> choices_;
  std::unordered_map<uint64_t, std::vector<Choice>> properties_;
  // What leaned on open questions: not kept for longer than these.
  std::deque<ObjectChoices> unsettled_choices_;
  std::deque<std::vector<Choice>> unsettled_properties_;
  GrowingTrie name_texts_;
};

}  // namespace specdec
