#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_plan.h"

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

ArrayStateId JsonPlans::add_array(ArrayPlan plan) {
  ArrayState state;
  state.plan = static_cast<uint32_t>(arrays_.size());
  state.contained.resize(plan.contains.size());
  arrays_.push_back(std::move(plan));
  return intern(std::move(state));
}

ArrayStateId JsonPlans::intern(ArrayState state) {
  const ArrayPlan& plan = arrays_[state.plan];
  if (plan.max == kUnbounded) {
    state.count = std::min(state.count, std::max(plan.min, regular_from(plan)));
  }
  return array_states_.intern(std::move(state));
}

bool JsonPlans::array_may_end(ArrayStateId id) const {
  return missing(array_plan(id), array_states_[id]) == 0;
}

/// When all items from here on are alike: enough of them exist.
bool JsonPlans::enough_alike(const ArrayState& state) {
  const ArrayPlan& plan = arrays_[state.plan];
  std::vector<FormulaId> parts = {plan.rest, state.unseen};
  for (const ArrayPlan::Contains& contains : plan.contains) {
    if (contains.max != kUnbounded) {
      parts.push_back(formulas_.negate(contains.formula));
    }
  }
  const FormulaId item = formulas_.all_of(parts);
  const uint64_t wanted = plan.min - state.count;
  return plan.unique ? distinct(item, wanted) >= wanted : possible(item);
}

bool JsonPlans::feasible_array(ArrayStateId id) {
  return ask(array_feasible_, id, [&] {
    if (array_may_end(id)) {
      return true;
    }
    const ArrayState& state = array_states_[id];
    const ArrayPlan& plan = arrays_[state.plan];
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
      fail(fmt::format(
          "an array needs {} more items together with `contains`; at most {} can be told",
          missing(plan, state), kMaxMissingItems));
    }
    return !array_choices(id, Wanted::kWayOn).empty();
  });
}

/// The ways that the next item may count towards each `contains`: all, a way back to the same state
/// among them, though it alone makes nothing feasible; or one that leads on, when there is one.
std::vector<Choice> JsonPlans::array_choices(ArrayStateId id, Wanted wanted) {
  const ArrayState& state = array_states_[id];
  const ArrayPlan& plan = arrays_[state.plan];
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
    if (ways.size() > options_.max_alternatives) {
      fail("an array has too many `contains` at once");
    }
  }
  std::vector<Choice> choices;
  for (Way& way : ways) {
    const FormulaId goal = formulas_.all_of(std::move(way.parts));
    if (possible(goal)) {
      const ArrayStateId next = intern(std::move(way.next));
      if (next == id ? wanted == Wanted::kAll : feasible_array(next)) {
        choices.push_back({goal, next});
        if (wanted == Wanted::kWayOn) {
          break;
        }
      }
    }
  }
  return choices;
}

const std::vector<Choice>& JsonPlans::items(ArrayStateId id) {
  if (const auto found = items_.find(id); found != items_.end()) {
    return found->second;
  }
  begin_reading();
  std::vector<Choice> choices = array_choices(id, Wanted::kAll);
  return items_[id] = std::move(choices);
}

ArrayStateId JsonPlans::with_item(ArrayStateId id, const JsonValue& value) {
  ArrayState state = array_states_[id];
  state.unseen = all_of(state.unseen, formulas_.negate(formulas_.equals(value)));
  return intern(std::move(state));
}

/// At least so many different values, up to `cap`. Lists and objects count as endless unless they
/// are bounded; alternatives that overlap count twice.
uint64_t JsonPlans::distinct(FormulaId goal, uint64_t cap, int depth) {
  if (goal <= FormulaStore::kTrue || depth > 8) {
    return goal == FormulaStore::kTrue || (depth > 8 && possible(goal)) ? cap : 0;
  }
  const ValuePlan plan = value(goal);
  uint64_t total = static_cast<uint64_t>(plan.can_be_null) +
                   static_cast<uint64_t>(plan.can_be_false) +
                   static_cast<uint64_t>(plan.can_be_true);
  for (const StringPlan& text : plan.strings) {
    const auto points = formulas_.regexes().star_of(text.language);
    const bool endless = text.max == kUnbounded && points && !points->empty();
    const RegexId bounded =
        points && !endless
            ? formulas_.regexes().repeat(formulas_.regexes().one_of(*points), text.min, text.max)
            : text.language;
    total += endless ? cap : formulas_.regexes().count(bounded, cap);
  }
  for (const uint32_t id : plan.numbers) {
    total += numbers_[id].count(cap);
  }
  const auto times = [&](uint64_t a, uint64_t b) { return b != 0 && a > cap / b ? cap : a * b; };
  for (const ArrayStateId id : plan.arrays) {
    const ArrayPlan& list = array_plan(id);
    if (list.max > 64) {
      return cap;
    }
    uint64_t ways = 1;
    for (uint64_t i = 0; i <= list.max && ways > 0; ++i) {
      total += i >= list.min ? ways : 0;
      ways = i < list.max ? times(ways, distinct(list.item(i), cap, depth + 1)) : 0;
    }
  }
  for (const ObjectStateId id : plan.objects) {
    const ObjectPlan& map = object_plan(id);
    if (!map.classes.empty() && map.max > map.required) {
      return cap;
    }
    uint64_t ways = 1;
    for (size_t i = 0; i < map.names.size(); ++i) {
      const PropertyPlan property = map.names[i];
      const uint64_t values = distinct(property.goal, cap, depth + 1);
      ways = times(ways, std::min(cap, values + (property.required ? 0 : 1)));
    }
    total += ways;
  }
  return std::min(total, cap);
}

}  // namespace specdec
