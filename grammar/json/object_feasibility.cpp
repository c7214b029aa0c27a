// Whether objects can be finished.
#include <algorithm>

#include "grammar/json/object_states.h"

namespace specdec {

/// How many further properties meet the `pending` existences, when the `used` ones (by index, with
/// what their values must be) are among them; nothing when an object has no room for such.
std::optional<uint64_t> ObjectStates::some_more(const ObjectState& state, uint64_t pending,
                                                std::vector<std::pair<size_t, FormulaId>>& used) {
  const ObjectPlan& plan = plans_[state.plan];
  if (state.count + used.size() > plan.max) {
    return std::nullopt;
  }
  if (pending == 0) {
    return used.size();
  }
  questions_.count_step();
  const auto which = static_cast<size_t>(__builtin_ctzll(pending));
  const FormulaId wanted = plan.exists[which].second;
  const uint64_t rest = pending & (pending - 1);
  const auto property = [&](size_t i) -> const PropertyPlan& {
    return i < plan.names.size() ? plan.names[i] : plan.classes[i - plan.names.size()];
  };
  for (size_t i = 0; i < used.size(); ++i) {
    const FormulaId before = used[i].second;
    const FormulaId both = all_of(before, wanted);
    if ((property(used[i].first).exists >> which & 1) != 0 && feasibility_.possible(both)) {
      used[i].second = both;
      const auto found = some_more(state, rest, used);
      used[i].second = before;
      if (found) {
        return found;
      }
    }
  }
  for (size_t i = 0; i < plan.names.size() + plan.classes.size(); ++i) {
    const bool name = i < plan.names.size();
    const bool taken = std::any_of(used.begin(), used.end(),
                                   [&](const auto& one) { return name && one.first == i; });
    if ((property(i).exists >> which & 1) == 0 || taken ||
        (name && !open_name(state, plan.names[i], i))) {
      continue;
    }
    const FormulaId goal = all_of(property(i).goal, wanted);
    if (feasibility_.possible(goal)) {
      used.emplace_back(i, goal);
      const auto found = some_more(state, rest, used);
      used.pop_back();
      if (found) {
        return found;
      }
    }
  }
  return std::nullopt;
}

/// How many more properties there can be, up to `wanted`; with clauses, only those that they do not
/// speak of, and that are not required.
uint64_t ObjectStates::capacity(const ObjectState& state, uint64_t wanted) {
  const ObjectPlan& plan = plans_[state.plan];
  uint64_t total = 0;
  for (size_t i = 0; i < plan.names.size() && total < wanted; ++i) {
    const bool apart =
        plan.clauses.empty() ||
        (plan.clause_group_of[i] == plan.clause_groups.size() && !plan.names[i].required);
    total +=
        apart && open_name(state, plan.names[i], i) && feasibility_.possible(plan.names[i].goal)
            ? 1
            : 0;
  }
  for (size_t i = 0; i < plan.classes.size() && total < wanted; ++i) {
    if (feasibility_.possible(plan.classes[i].goal)) {
      const uint64_t seen = state.seen_others.size();
      const uint64_t all = formulas_.regexes().count(plan.classes[i].language, wanted + seen);
      total += all - std::min(all, seen);
    }
  }
  return total;
}

/// Feasibility for plans with clauses, instead of the search below.
bool ObjectStates::meets_clauses(const ObjectState& state) {
  const ObjectPlan& plan = plans_[state.plan];
  std::vector<bool> can_come;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    const PropertyPlan& name = plan.names[i];
    can_come.push_back(open_name(state, name, i));
    if (name.required && !state.has_seen(i) &&
        (!can_come.back() || !feasibility_.possible(name.goal))) {
      return false;
    }
  }
  const uint64_t wanted = plan.min - std::min(plan.min, state.count);
  return clauses_.can_hold(state.plan, plan, state, can_come, capacity(state, wanted));
}

bool ObjectStates::feasible(ObjectStateId id) {
  return questions_.ask(feasible_, id, [&] {
    const ObjectState& state = states_[id];
    const ObjectPlan& plan = plans_[state.plan];
    if (!plan.clauses.empty()) {
      return meets_clauses(state);
    }
    std::vector<std::pair<size_t, FormulaId>> needed;
    for (size_t i = 0; i < plan.names.size(); ++i) {
      if (plan.names[i].required && !state.has_seen(i)) {
        if (!open_name(state, plan.names[i], i) || !feasibility_.possible(plan.names[i].goal)) {
          return false;
        }
        needed.emplace_back(i, plan.names[i].goal);
      }
    }
    const auto more = some_more(state, state.pending, needed);
    return more && (state.count + *more >= plan.min ||
                    state.count + capacity(state, plan.min - state.count) >= plan.min);
  });
}

}  // namespace specdec
