#include "grammar/json/object_states.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

constexpr ObjectStateId kUnprepared = ~ObjectStateId{0};  ///< a plan asked about once

void set_bit(std::vector<uint64_t>& bits, size_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }

}  // namespace

ObjectPlanId ObjectStates::add(ObjectPlan plan) {
  plans_.push_back(std::move(plan));
  return static_cast<ObjectPlanId>(plans_.size() - 1);
}

ObjectStateId ObjectStates::start(ObjectPlanId id) {
  if (const auto found = starts_.find(id); found != starts_.end() && found->second != kUnprepared) {
    return found->second;
  }
  ObjectPlan& plan = plans_[id];
  if (plan.exists.size() > 64) {
    questions_.fail("an object needs more than 64 different properties whose names are not told");
  }
  prepare(plan);
  ObjectState state;
  state.plan = id;
  state.pending = plan.exists.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << plan.exists.size()) - 1;
  state.seen.resize((plan.names.size() + 63) / 64);
  state.clauses = ObjectClauses::all_open(plan);
  return starts_[id] = intern(std::move(state));
}

void ObjectStates::prepare(ObjectPlan& plan) {
  for (const ObjectClause& clause : plan.clauses) {
    for (const ClausePart& part : clause) {
      for (const ClauseLiteral& literal : part) {
        ObjectPlan::Named& named = plan.named[literal.name];
        named.rank = std::min(named.rank, literal.rank);
      }
    }
  }
  for (const auto* parts : {&plan.rules, &plan.exists}) {
    for (const auto& [set, formula] : *parts) {
      for (const NameId name : formulas_.key_set(set).excluded) {
        plan.named[name];
      }
    }
  }
  plan.min = plan.required >= plan.min ? 0 : plan.min;
  plan.names.clear();  // of a time that a limit ended
  plan.classes.clear();
  prepare_classes(plan);
  prepare_names(plan);
  ObjectClauses::prepare(plan);
}

/// What the value of that name must be.
FormulaId ObjectStates::goal_of(NameId name, const ObjectPlan& plan) {
  const ObjectPlan::Named* named = plan.named.find(name);
  const FormulaId own = named != nullptr ? named->goal : FormulaStore::kTrue;
  std::vector<FormulaId> goals;
  for (const auto& [set, formula] : plan.rules) {
    if (formulas_.in_key_set(set, name)) {
      goals.push_back(formula);
    }
  }
  if (goals.empty()) {
    return own;
  }
  goals.push_back(own);
  return formulas_.all_of(goals);
}

bool ObjectStates::feasible_plan(ObjectPlanId id) {
  const ObjectPlan& plan = plans_[id];
  const bool asked_before = !starts_.try_emplace(id, kUnprepared).second;
  if (asked_before || !plan.exists.empty() || !plan.clauses.empty() || plan.required < plan.min) {
    return feasible(start(id));  // keeps the answer
  }
  return plan.required <= plan.max &&
         std::all_of(plan.named.begin(), plan.named.end(), [&](const auto& entry) {
           return !entry.second.required || feasibility_.possible(goal_of(entry.first, plan));
         });
}

void ObjectStates::prepare_names(ObjectPlan& plan) {
  for (const auto& [name, named] : plan.named) {
    PropertyPlan property;
    property.name = name;
    property.required = named.required;
    property.rank = named.rank;
    property.goal = goal_of(name, plan);
    for (size_t i = 0; i < plan.exists.size(); ++i) {
      property.exists |= formulas_.in_key_set(plan.exists[i].first, name) ? uint64_t{1} << i : 0;
    }
    plan.names.push_back(property);
  }
  std::sort(plan.names.begin(), plan.names.end(),
            [&](const PropertyPlan& a, const PropertyPlan& b) {
              return formulas_.name_points(a.name) < formulas_.name_points(b.name);
            });
}

/// Splits the names that are not told by the languages that the rules tell apart.
void ObjectStates::prepare_classes(ObjectPlan& plan) {
  std::vector<NameClasses::Language> languages;
  const auto language_of = [&](KeySetId set) {
    const RegexId id = formulas_.key_set(set).base;
    const auto at = std::ranges::find(languages, id, &NameClasses::Language::id);
    const auto index = static_cast<size_t>(at - languages.begin());
    if (at == languages.end()) {
      languages.push_back({id, true});
    }
    return index;
  };
  std::vector<size_t> of_rules;
  std::vector<size_t> of_exists;
  for (const auto& [set, formula] : plan.rules) {
    of_rules.push_back(language_of(set));
    languages[of_rules.back()].allowed &= formula != FormulaStore::kFalse;
  }
  for (const auto& [set, formula] : plan.exists) {
    of_exists.push_back(language_of(set));
  }
  const std::vector<NameClass>* classes = name_classes_.split(languages);
  if (classes == nullptr) {
    questions_.fail(fmt::format("an object's patternProperties overlap in more than {} ways",
                                NameClasses::kMax));
  }
  for (const NameClass& names : *classes) {
    const auto lies_in = [&](size_t language) {
      return std::binary_search(names.inside.begin(), names.inside.end(), language);
    };
    PropertyPlan property;
    property.language = names.language;
    for (size_t i = 0; i < of_rules.size(); ++i) {
      property.goal =
          lies_in(of_rules[i]) ? all_of(property.goal, plan.rules[i].second) : property.goal;
    }
    for (size_t i = 0; i < of_exists.size(); ++i) {
      property.exists |= lies_in(of_exists[i]) ? uint64_t{1} << i : 0;
    }
    if (property.goal == FormulaStore::kFalse) {
      continue;
    }
    if (names.names.empty()) {
      plan.classes.push_back(property);
    }
    for (const NameId name : names.names) {
      plan.named[name];
    }
  }
}

ObjectStateId ObjectStates::intern(ObjectState state) {
  close_names(state);
  return states_.intern(std::move(state));
}

/// Forgets what makes no difference any more.
void ObjectStates::close_names(ObjectState& state) {
  const ObjectPlan& plan = plans_[state.plan];
  if (plan.max == kUnbounded) {
    state.count = std::min(state.count, plan.min);
  }
  const bool full = plan.max != kUnbounded && state.count >= plan.max;
  if (full) {  // no name may come, so it does not matter which ones came
    state.seen_others.clear();
  }
  for (size_t i = 0; i < plan.names.size(); ++i) {
    const bool over = questions_.options().schema_order && plan.names[i].rank < state.next_rank;
    if ((full || over) && !plan.names[i].required && !state.has_seen(i)) {
      set_bit(state.seen, i);
      if (!plan.clauses.empty()) {
        ObjectClauses::close(plan, i, state);
        ObjectClauses::settle(plan, i, state);
      }
    }
  }
}

bool ObjectStates::open_name(const ObjectState& state, const PropertyPlan& property,
                             size_t index) const {
  const bool over = questions_.options().schema_order && property.rank < state.next_rank;
  return !over && !state.has_seen(index);
}

/// `goal`: what the value must be if it fulfils none of the existences.
std::vector<Choice> ObjectStates::property_choices(const ObjectState& before,
                                                   const PropertyPlan& property, FormulaId goal,
                                                   ObjectState after) {
  const ObjectPlan& plan = plans_[before.plan];
  if (before.count >= plan.max && plan.max != kUnbounded) {
    return {};
  }
  after.count = before.count + 1;
  const uint64_t claimable = before.pending & property.exists;
  const uint64_t free = free_claims(before, property, goal);
  std::vector<Choice> choices;
  // Every subset of what this property could fulfil; all of them hold what costs nothing.
  const uint64_t costly = claimable & ~free;
  uint64_t claimed = costly;
  while (true) {
    std::vector<FormulaId> parts = {goal};
    for (size_t i = 0; i < plan.exists.size(); ++i) {
      if ((claimed >> i & 1) != 0) {
        parts.push_back(plan.exists[i].second);
      }
    }
    const FormulaId with = formulas_.all_of(parts);
    if (feasibility_.possible(with)) {
      ObjectState next = after;
      next.pending = before.pending & ~(claimed | free);
      const ObjectStateId id = intern(std::move(next));
      if (feasible(id)) {
        choices.push_back({with, id});
      }
    }
    questions_.count_step();
    if (claimed == 0) {
      return choices;
    }
    claimed = (claimed - 1) & costly;
  }
}

/// The state after a property whose value is of that kind; none when it cannot be finished.
std::optional<ObjectState> ObjectStates::after_split(const ObjectState& before, size_t name,
                                                     const ObjectClauses::Split& split) {
  questions_.count_step();
  ObjectState next = before;
  set_bit(next.seen, name);
  next.count = before.count + 1;
  if (questions_.options().schema_order) {
    const uint32_t rank = plans_[before.plan].names[name].rank;
    next.next_rank = std::max(rank == kNoRank ? kNoRank : rank + 1, before.next_rank);
  }
  if (!ObjectClauses::apply(split, next)) {
    return std::nullopt;
  }
  ObjectClauses::settle(plans_[before.plan], name, next);
  close_names(next);
  const ObjectPlan& plan = plans_[before.plan];
  const uint64_t wanted = plan.min - std::min(plan.min, next.count);
  const bool apart = !questions_.options().schema_order && plan.max == kUnbounded &&
                     capacity(next, wanted) >= wanted;
  const bool finishes =
      feasibility_.possible(split.goal) &&
      (apart ? clauses_.can_hold_after(before.plan, plan, next, name) : meets_clauses(next));
  return finishes ? std::optional(std::move(next)) : std::nullopt;
}

/// Whether the name may come next, where clauses tell values apart.
bool ObjectStates::may_come(const ObjectState& before, size_t name) {
  const ObjectPlan& plan = plans_[before.plan];
  return open_name(before, plan.names[name], name) && before.count < plan.max &&
         std::ranges::any_of(clauses_.splits(before.plan, plan, name),
                             [&](const ObjectClauses::Split& split) {
                               return after_split(before, name, split).has_value();
                             });
}

/// Choices of a property's value, together where that makes no difference.
std::vector<Choice> ObjectStates::split_choices(const ObjectState& before, size_t name) {
  const ObjectPlan& plan = plans_[before.plan];
  if (before.count >= plan.max && plan.max != kUnbounded) {
    return {};
  }
  std::vector<Choice> choices;
  const bool claims = (before.pending & plan.names[name].exists) != 0;
  bool same = !claims;
  for (const ObjectClauses::Split& split : clauses_.splits(before.plan, plan, name)) {
    auto next = after_split(before, name, split);
    if (!next) {
      same = false;
      continue;
    }
    if (claims) {
      const std::vector<Choice> more =
          property_choices(before, plan.names[name], split.goal, *std::move(next));
      choices.insert(choices.end(), more.begin(), more.end());
      continue;
    }
    const ObjectStateId id = states_.intern(*std::move(next));
    same &= choices.empty() || choices.back().next == id;
    choices.push_back({split.goal, id});
  }
  return same && !choices.empty()
             ? std::vector<Choice>{{plan.names[name].goal, choices.front().next}}
             : choices;
}

/// The existences that every value of the property fulfils.
uint64_t ObjectStates::free_claims(const ObjectState& before, const PropertyPlan& property,
                                   FormulaId goal) {
  const ObjectPlan& plan = plans_[before.plan];
  uint64_t free = 0;
  for (uint64_t left = before.pending & property.exists; left != 0; left &= left - 1) {
    const auto which = static_cast<size_t>(__builtin_ctzll(left));
    const FormulaId wanted = plan.exists[which].second;
    const bool always = all_of(goal, wanted) == goal ||
                        feasibility_.impossible(all_of(goal, formulas_.negate(wanted)));
    free |= always ? uint64_t{1} << which : 0;
  }
  return free;
}

const std::vector<Choice>& ObjectStates::property(ObjectStateId id, uint32_t name) {
  const uint64_t key = (static_cast<uint64_t>(id) << 32) | name;
  if (const auto found = properties_.find(key); found != properties_.end()) {
    return found->second;
  }
  questions_.begin_reading();
  const ObjectState& before = states_[id];
  const PropertyPlan& property = plans_[before.plan].names[name];
  std::vector<Choice> choices;
  const bool settled = questions_.settles([&] {
    if (open_name(before, property, name)) {
      ObjectState after = before;
      set_bit(after.seen, name);
      after.next_rank = property.rank == kNoRank ? kNoRank : property.rank + 1;
      after.next_rank =
          questions_.options().schema_order ? std::max(after.next_rank, before.next_rank) : 0;
      choices = plans_[before.plan].clauses.empty()
                    ? property_choices(before, property, property.goal, std::move(after))
                    : split_choices(before, name);
    }
  });
  return settled ? (properties_[key] = std::move(choices))
                 : unsettled_properties_.emplace_back(std::move(choices));
}

uint32_t ObjectStates::text_of(uint32_t beginning, std::u32string_view rest) {
  for (const char32_t c : rest) {
    beginning = name_texts_.add(beginning, c);
  }
  return beginning;
}

std::vector<Choice> ObjectStates::other_property(ObjectStateId id, uint32_t property_class,
                                                 uint32_t text) {
  questions_.begin_reading();
  const ObjectState& before = states_[id];
  ObjectState after = before;
  after.seen_others.insert(
      std::lower_bound(after.seen_others.begin(), after.seen_others.end(), text), text);
  after.next_rank = questions_.options().schema_order ? kNoRank : 0;
  const PropertyPlan& property = plans_[before.plan].classes[property_class];
  return property_choices(before, property, property.goal, std::move(after));
}

bool ObjectStates::names_matter(ObjectStateId id) const {
  const ObjectState& state = states_[id];
  const uint64_t max = plans_[state.plan].max;
  return !state.seen_others.empty() || max == kUnbounded || state.count + 1 < max;
}

const ObjectChoices& ObjectStates::choices(ObjectStateId id) {
  if (const auto found = choices_.find(id); found != choices_.end()) {
    return found->second;
  }
  if (questions_.is_idle()) {
    unsettled_choices_.clear();
    unsettled_properties_.clear();
  }
  ObjectChoices result;
  const bool settled = questions_.settles([&] { result = make_choices(id); });
  return settled ? (choices_[id] = std::move(result))
                 : unsettled_choices_.emplace_back(std::move(result));
}

}  // namespace specdec
