// Which properties objects may go on with.
#include <algorithm>

#include "grammar/json/object_states.h"

namespace specdec {

/// Choices without existences to fulfil, where counting tells what may come: the state is feasible,
/// and stays so after any open name that leaves room for, and does not skip, what is required.
ObjectChoices ObjectStates::counted_choices(const ObjectState& state, const ObjectPlan& plan) {
  uint64_t missing = 0;
  uint32_t first_missing = kNoRank;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    if (plan.names[i].required && !state.has_seen(i)) {
      ++missing;
      first_missing = std::min(first_missing, plan.names[i].rank);
    }
  }
  const bool room = plan.max == kUnbounded || state.count + missing < plan.max;
  const auto in_order = [&](uint32_t rank) {
    return !questions_.options().schema_order || rank <= first_missing;
  };
  ObjectChoices result;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    const PropertyPlan& name = plan.names[i];
    result.names.push_back((room || name.required) && open_name(state, name, i) &&
                           in_order(name.rank) && feasibility_.possible(name.goal));
  }
  for (const PropertyPlan& others : plan.classes) {
    result.classes.push_back(room && in_order(kNoRank) && feasibility_.possible(others.goal));
  }
  result.may_end = missing == 0 && state.count >= plan.min;
  return result;
}

/// True only when an object that can be finished, so that it has enough properties, can be finished
/// after any property that leaves room for those that are required.
bool ObjectStates::stays_enough(const ObjectState& state, const ObjectPlan& plan) {
  if (state.count >= plan.min) {
    return true;
  }
  if (plan.classes.empty()) {
    return !questions_.options().schema_order;  // else names before it cannot come any more
  }
  const uint64_t names = plan.min + state.seen_others.size() + plan.names.size() + 1;
  return std::ranges::any_of(plan.classes, [&](const PropertyPlan& others) {
    return formulas_.regexes().count(others.language, names) >= names &&
           feasibility_.possible(others.goal);
  });
}

ObjectChoices ObjectStates::make_choices(ObjectStateId id) {
  const ObjectState& state = states_[id];
  const ObjectPlan& plan = plans_[state.plan];
  if (plan.exists.empty() && plan.clauses.empty() && stays_enough(state, plan)) {
    return counted_choices(state, plan);
  }
  ObjectChoices result;
  bool all_seen = true;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    all_seen &= !plan.names[i].required || state.has_seen(i);
    result.names.push_back(plan.clauses.empty() ? !property(id, static_cast<uint32_t>(i)).empty()
                                                : may_come(state, i));
  }
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    result.classes.push_back(!other_property(id, static_cast<uint32_t>(i), 0).empty());
  }
  result.may_end = all_seen && state.pending == 0 && state.count >= plan.min &&
                   ObjectClauses::may_end(plan, state);
  return result;
}

}  // namespace specdec
