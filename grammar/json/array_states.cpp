#include "grammar/json/array_states.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxMissingItems =
    1'000;  ///< items that a search for an array's end looks ahead

/// The item from which on all are alike.
uint64_t regular_from(const ArrayPlan& plan) {
  uint64_t from = plan.prefix.size();
  for (const ArrayPlan::Contains& contains : plan.contains) {
    from = std::max(from, contains.from);
  }
  return from;
}

uint64_t missing(const ArrayPlan& plan, const ArrayState& state) {
  uint64_t most = plan.min > state.count ? plan.min - state.count : 0;
  for (size_t i = 0; i < plan.contains.size(); ++i) {
    const uint64_t min = plan.contains[i].min;
    most = std::max(most, min > state.contained[i] ? min - state.contained[i] : 0);
  }
  return most;
}

}  // namespace

ArrayStateId ArrayStates::add(ArrayPlan plan) {
  ArrayState state;
  state.plan = static_cast<uint32_t>(plans_.size());
  state.contained.resize(plan.contains.size());
  plans_.push_back(std::move(plan));
  return intern(std::move(state));
}

ArrayStateId ArrayStates::intern(ArrayState state) {
  const ArrayPlan& plan = plans_[state.plan];
  if (plan.max == kUnbounded) {
    state.count = std::min(state.count, std::max(plan.min, regular_from(plan)));
  }
  return states_.intern(std::move(state));
}

bool ArrayStates::may_end(ArrayStateId id) const { return missing(plan(id), states_[id]) == 0; }

/// When all items from here on are alike: enough of them exist.
bool ArrayStates::enough_alike(const ArrayState& state) {
  const ArrayPlan& plan = plans_[state.plan];
  std::vector<FormulaId> parts = {plan.rest, state.unseen};
  for (const ArrayPlan::Contains& contains : plan.contains) {
    if (contains.max != kUnbounded) {
      parts.push_back(formulas_.negate(contains.formula));
    }
  }
  const FormulaId item = formulas_.all_of(parts);
  const uint64_t wanted = plan.min - state.count;
  return plan.unique ? feasibility_.distinct(item, wanted) >= wanted : feasibility_.possible(item);
}

bool ArrayStates::feasible(ArrayStateId id) {
  return questions_.ask(feasible_, id, [&] {
    if (may_end(id)) {
      return true;
    }
    const ArrayState& state = states_[id];
    const ArrayPlan& plan = plans_[state.plan];
    if (state.count >= plan.max) {
      return false;
    }
    const bool pending = [&] {
      for (size_t i = 0; i < plan.contains.size(); ++i) {
        if (state.contained[i] < plan.contains[i].min) {
          return true;
        }
      }
      return false;
    }();
    if (!pending && state.count >= regular_from(plan) && enough_alike(state)) {
      return true;
    }
    const bool plain = plan.contains.empty() && state.count >= regular_from(plan);
    if (plain) {
      return false;
    }
    if (missing(plan, state) > kMaxMissingItems + plan.prefix.size()) {
      questions_.fail(fmt::format(
          "an array needs {} more items together with `contains`; at most {} can be told",
          missing(plan, state), kMaxMissingItems));
    }
    return !choices(id, Wanted::kWayOn).empty();
  });
}

/// The ways that the next item may count towards each `contains`: all, a way back to the same state
/// among them, though it alone makes nothing feasible; or one that leads on, when there is one.
std::vector<Choice> ArrayStates::choices(ArrayStateId id, Wanted wanted) {
  const ArrayState& state = states_[id];
  const ArrayPlan& plan = plans_[state.plan];
  if (state.count >= plan.max) {
    return {};
  }
  struct Way {
    std::vector<FormulaId> parts;
    ArrayState next;
  };
  std::vector<Way> ways = {{{plan.item(state.count), state.unseen}, state}};
  ways.front().next.count = state.count + 1;
  for (size_t i = 0; i < plan.contains.size(); ++i) {
    const ArrayPlan::Contains& contains = plan.contains[i];
    const bool bounded = contains.max != kUnbounded;
    if (state.count < contains.from || (!bounded && state.contained[i] >= contains.min)) {
      continue;
    }
    std::vector<Way> more;
    for (const Way& way : ways) {
      Way with = way;
      with.parts.push_back(contains.formula);
      if (++with.next.contained[i] <= contains.max) {
        more.push_back(with);
      }
      Way without = way;
      if (bounded) {
        without.parts.push_back(formulas_.negate(contains.formula));
      }
      more.push_back(std::move(without));
    }
    ways = std::move(more);
    if (ways.size() > questions_.options().max_alternatives) {
      questions_.fail("an array has too many `contains` at once");
    }
  }
  std::vector<Choice> found;
  for (Way& way : ways) {
    const FormulaId goal = formulas_.all_of(std::move(way.parts));
    if (feasibility_.possible(goal)) {
      const ArrayStateId next = intern(std::move(way.next));
      if (next == id ? wanted == Wanted::kAll : feasible(next)) {
        found.push_back({goal, next});
        if (wanted == Wanted::kWayOn) {
          break;
        }
      }
    }
  }
  return found;
}

const std::vector<Choice>& ArrayStates::items(ArrayStateId id) {
  if (const auto known = items_.find(id); known != items_.end()) {
    return known->second;
  }
  questions_.begin_reading();
  std::vector<Choice> found = choices(id, Wanted::kAll);
  return items_[id] = std::move(found);
}

bool ArrayStates::can_spare_a_value(ArrayStateId id) {
  const ArrayState& state = states_[id];
  const ArrayPlan& plan = plans_[state.plan];
  if (!plan.contains.empty() || state.count < plan.prefix.size()) {
    return false;
  }
  return state.count >= plan.max ||
         (missing(plan, state) + 1 < Feasibility::kPlenty &&
          feasibility_.has_plenty(formulas_.all_of({plan.rest, state.unseen})));
}

ArrayStateId ArrayStates::with_item(ArrayStateId id, const JsonValue& value) {
  ArrayState state = states_[id];
  state.unseen = formulas_.all_of({state.unseen, formulas_.negate(formulas_.equals(value))});
  return intern(std::move(state));
}

}  // namespace specdec
