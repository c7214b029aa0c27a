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

/// True when formulas may speak of its numbers.
bool is_moderate(const JsonValue& value) {
  constexpr size_t kMaxDigits = 3;  // of an exponent: up to 499
  const size_t exponent = value.text.find('e');
  if (value.is(JsonValue::Type::kNumber) && exponent != std::string::npos) {
    const std::string digits = value.text.substr(exponent + 1);
    const size_t sign = digits.starts_with('-') ? 1 : 0;
    return digits.size() < kMaxDigits + sign ||
           (digits.size() == kMaxDigits + sign && digits[sign] < '5');
  }
  return std::ranges::all_of(value.items, is_moderate) &&
         std::ranges::all_of(value.members,
                             [](const JsonMember& member) { return is_moderate(member.value); });
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

bool ArrayStates::may_end(ArrayStateId id) const {
  return missing(plan(id), states_[id]) == 0 && (!plan(id).repeated || states_[id].repeated);
}

/// Whether enough items exist where all items from here on are alike.
bool ArrayStates::enough_alike(const ArrayState& state) {
  const ArrayPlan& plan = plans_[state.plan];
  std::vector<FormulaId> parts = {plan.rest};
  for (const ArrayPlan::Contains& contains : plan.contains) {
    if (contains.max != kUnbounded) {
      parts.push_back(formulas_.negate(contains.formula));
    }
  }
  return feasibility_.possible(formulas_.all_of(parts));
}

bool ArrayStates::feasible(ArrayStateId id) {
  return questions_.ask(feasible_, id, [&] { return search(id); });
}

bool ArrayStates::search(ArrayStateId id) {
  const ArrayState& state = states_[id];
  const ArrayPlan& plan = plans_[state.plan];
  if (plan.unique && plan.repeated) {
    return false;
  }
  if (plan.unique) {
    return unique_.is_possible(plan, state);
  }
  if (plan.repeated && !state.repeated) {
    return leads_to_twins(id);
  }
  if (may_end(id)) {
    return true;
  }
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
    questions_.fail(
        fmt::format("an array needs {} more items together with `contains`; at most {} can be told",
                    missing(plan, state), kMaxMissingItems));
  }
  return feasible_further_on(state) && !choices(id, Wanted::kWayOn).empty();
}

/// Without `contains` there is one way on, through all the items that are missing. Those further on
/// come first, since each question about the next item nests in the one before it.
bool ArrayStates::feasible_further_on(const ArrayState& state) {
  constexpr uint64_t kStride = 100;
  const ArrayPlan& plan = plans_[state.plan];
  const uint64_t there = state.count + kStride;
  if (!plan.contains.empty() || there >= std::min(plan.min, regular_from(plan))) {
    return true;
  }
  ArrayState ahead = state;
  ahead.count = there;
  return feasible(intern(std::move(ahead)));
}

std::vector<ArrayStates::Way> ArrayStates::all_ways(ArrayStateId id) {
  const ArrayState& state = states_[id];
  const ArrayPlan& plan = plans_[state.plan];
  if (state.count >= plan.max) {
    return {};
  }
  std::vector<Way> ways = {{{plan.item(state.count)}, state}};
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
      if (bounded || plan.unique) {
        without.parts.push_back(formulas_.negate(contains.formula));
      }
      more.push_back(std::move(without));
    }
    ways = std::move(more);
    if (ways.size() > questions_.options().max_alternatives) {
      questions_.fail("an array has too many `contains` at once");
    }
  }
  return ways;
}

/// The ways that the next item may count towards each `contains`: all, a way back to the same state
/// among them, though it alone makes nothing feasible; or one that leads on, when there is one.
std::vector<Choice> ArrayStates::choices(ArrayStateId id, Wanted wanted) {
  std::vector<Choice> found;
  for (Way& way : all_ways(id)) {
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
  std::vector<Choice> found = plan(id).unique    ? unique_items(id)
                              : tells_values(id) ? repeated_items(id)
                                                 : choices(id, Wanted::kAll);
  return items_[id] = std::move(found);
}

std::vector<Choice> ArrayStates::ways(ArrayStateId id) {
  std::vector<Choice> found;
  if (tells_values(id) && !plan(id).unique) {
    return repeated_items(id);
  }
  for (Way& way : all_ways(id)) {
    const FormulaId goal = formulas_.all_of(std::move(way.parts));
    const ArrayStateId next = intern(std::move(way.next));
    if (feasibility_.possible(goal) && (next == id || feasible(next))) {
      found.push_back({goal, next});
    }
  }
  return found;
}

// ---- Items that differ --------------------------------------------------------------------------

std::vector<Choice> ArrayStates::unique_items(ArrayStateId id) {
  std::vector<Choice> found = ways(id);
  std::erase_if(found, [&](const Choice& choice) { return !has_value_for(choice); });
  return found;
}

/// True when the choice has a value that is new, and leaves enough for the other items.
bool ArrayStates::has_value_for(const Choice& choice) {
  if (!feasible(choice.next)) {
    return false;
  }
  const uint64_t enough = count_excluded_values(choice.next) + 1;
  if (feasibility_.has_many(choice.goal, enough)) {
    return true;
  }
  const ValueList values = feasibility_.values(choice.goal, enough);
  return std::ranges::any_of(values.entries,
                             [&](const ValueEntry& entry) { return takes(choice.next, entry.id); });
}

const std::vector<ValueId>& ArrayStates::watched(ArrayStateId id) {
  if (const auto known = watched_.find(id); known != watched_.end()) {
    return known->second;
  }
  const ArrayState& state = states_[id];
  const ArrayPlan& plan = plans_[state.plan];
  std::vector<ValueId> all = unique_.find(plan, state, 0).watched;
  const UniqueItems::Answer more = unique_.find(plan, state, 1);
  all.insert(all.end(), more.watched.begin(), more.watched.end());
  return watched_[id] = std::move(all);
}

std::vector<ValueId> ArrayStates::excluded_values(ArrayStateId id) {
  std::vector<ValueId> values = sets_.numbers(states_[id].seen);
  if (plan(id).unique) {
    const std::vector<ValueId>& more = watched(id);
    values.insert(values.end(), more.begin(), more.end());
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  return values;
}

uint64_t ArrayStates::count_excluded_values(ArrayStateId id) {
  return count_seen(id) + (plan(id).unique ? watched(id).size() : 0);
}

bool ArrayStates::takes(ArrayStateId id, ValueId value) {
  if (!tells_values(id)) {
    return true;
  }
  const bool known = sets_.contains(states_[id].seen, value);
  return !(plan(id).unique && known) && feasible(with_item(id, value));
}

ArrayStateId ArrayStates::with_item(ArrayStateId id, ValueId value) {
  if (!tells_values(id)) {
    return id;
  }
  ArrayState state = states_[id];
  const NumberSets::Id seen = sets_.with(state.seen, value);
  state.repeated |= seen == state.seen;
  state.seen = state.repeated ? NumberSets::kEmpty : seen;
  return intern(std::move(state));
}

ArrayStateId ArrayStates::with_other_item(ArrayStateId id) {
  if (plan(id).unique || !tells_values(id)) {
    return id;
  }
  ArrayState state = states_[id];
  state.any_seen = true;
  return intern(std::move(state));
}

// ---- Items two of which are equal ---------------------------------------------------------------

/// The item is equal to one before it.
FormulaId ArrayStates::any_seen(const ArrayState& state) {
  if (state.any_seen) {
    return FormulaStore::kTrue;
  }
  std::vector<FormulaId> values;
  for (const ValueId id : sets_.numbers(state.seen)) {
    if (is_moderate(store_[id])) {
      values.push_back(formulas_.equals(store_[id]));
    }
  }
  return formulas_.any_of(values);
}

/// Looks ahead for an item that is equal to one before it, or two that are equal.
bool ArrayStates::leads_to_twins(ArrayStateId id) {
  const FormulaId before = any_seen(states_[id]);
  const FormulaId twin = states_[id].twin;
  const bool open = twin != FormulaStore::kFalse;
  for (Way& way : all_ways(id)) {
    const FormulaId goal = formulas_.all_of(std::move(way.parts));
    if (!feasibility_.possible(goal)) {
      continue;
    }
    ArrayState done = way.next;
    done.repeated = true;
    done.seen = NumberSets::kEmpty;
    done.twin = FormulaStore::kFalse;
    const FormulaId equal = formulas_.all_of({goal, open ? twin : before});
    if (feasibility_.possible(equal) && feasible(intern(std::move(done)))) {
      return true;
    }
    ArrayState first = way.next;
    first.seen = NumberSets::kEmpty;
    first.twin = goal;
    const ArrayStateId next = intern(std::move(way.next));
    if ((!open && feasible(intern(std::move(first)))) || (next != id && feasible(next))) {
      return true;
    }
  }
  return false;
}

std::vector<Choice> ArrayStates::repeated_items(ArrayStateId id) {
  const FormulaId before = any_seen(states_[id]);
  std::vector<Choice> found;
  const auto add = [&](FormulaId goal, ArrayStateId next) {
    if (feasibility_.possible(goal) && feasible(next)) {
      found.push_back({goal, next});
    }
  };
  for (Way& way : all_ways(id)) {
    const FormulaId goal = formulas_.all_of(std::move(way.parts));
    ArrayState done = way.next;
    done.repeated = true;
    done.seen = NumberSets::kEmpty;
    done.any_seen = false;
    add(formulas_.all_of({goal, before}), intern(std::move(done)));
    const ArrayStateId next = intern(std::move(way.next));
    if (feasible(next)) {
      add(goal, next);
    } else {  // the item must be one of those that come again
      const FormulaId twin = formulas_.all_of({goal, later_items(next)});
      if (feasibility_.possible(twin)) {
        found.push_back({twin, next});
      }
    }
  }
  return found;
}

/// What items that follow may be.
FormulaId ArrayStates::later_items(ArrayStateId id) {
  std::vector<FormulaId> goals;
  std::vector<ArrayStateId> open = {id};
  for (size_t at = 0; at < open.size(); ++at) {  // grows meanwhile
    questions_.count_step();
    for (Way& way : all_ways(open[at])) {
      const FormulaId goal = formulas_.all_of(std::move(way.parts));
      ArrayState done = way.next;
      done.repeated = true;
      done.seen = NumberSets::kEmpty;
      if (feasibility_.possible(goal) && feasible(intern(std::move(done)))) {
        goals.push_back(goal);
      }
      const ArrayStateId next = intern(std::move(way.next));
      if (feasibility_.possible(goal) && std::ranges::find(open, next) == open.end()) {
        open.push_back(next);
      }
    }
  }
  return formulas_.any_of(goals);
}

}  // namespace specdec
