#include "grammar/json/json_plans.h"

#include <algorithm>

namespace specdec {

JsonPlans::JsonPlans(FormulaStore& formulas, SchemaFormulas& schemas, JsonPlanOptions options)
    : formulas_(formulas),
      questions_(formulas, schemas, options),
      alternatives_(formulas, schemas, questions_, *this),
      arrays_(formulas, questions_, *this),
      objects_(formulas, questions_, *this) {}

// ---- Alternatives, once for each formula --------------------------------------------------------

std::vector<uint32_t> JsonPlans::numbers_of(FormulaId goal) {
  std::vector<uint32_t> ids;
  for (NumberPlan& plan : alternatives_.numbers(goal)) {
    if (!plan.is_empty()) {
      ids.push_back(static_cast<uint32_t>(numbers_.size()));
      numbers_.push_back(std::move(plan));
    }
  }
  return ids;
}

const std::vector<ArrayStateId>& JsonPlans::arrays_of(FormulaId goal) {
  if (const auto known = arrays_of_.find(goal); known != arrays_of_.end()) {
    return known->second;
  }
  std::vector<ArrayStateId> ids;
  for (ArrayPlan& plan : alternatives_.arrays(goal)) {
    ids.push_back(arrays_.add(std::move(plan)));
  }
  return arrays_of_[goal] = std::move(ids);
}

const std::vector<ObjectPlanId>& JsonPlans::objects_of(FormulaId goal) {
  if (const auto known = objects_of_.find(goal); known != objects_of_.end()) {
    return known->second;
  }
  std::vector<ObjectPlanId> ids;
  for (ObjectPlan& plan : alternatives_.objects(goal)) {
    ids.push_back(objects_.add(std::move(plan)));
  }
  return objects_of_[goal] = std::move(ids);
}

// ---- Feasibility -------------------------------------------------------------------------------

bool JsonPlans::possible(FormulaId formula) {
  if (formula <= FormulaStore::kTrue) {
    return formula == FormulaStore::kTrue;
  }
  return questions_.ask(possible_, formula, [&] {
    const PlanQuestions::Planning planning(questions_, formula);
    return search(formula);
  });
}

bool JsonPlans::impossible(FormulaId formula) {
  return !possible(formula) && (formula == FormulaStore::kFalse || possible_.never(formula));
}

bool JsonPlans::search(FormulaId formula) {
  constexpr TypeMask kNames = type_bit(JsonValue::Type::kNull) | type_bit(JsonValue::Type::kFalse) |
                              type_bit(JsonValue::Type::kTrue);
  if ((alternatives_.always(formula, kNames) & kNames) != 0 ||
      alternatives_.always(formula, kAllTypes) != 0) {
    return true;
  }
  if (!alternatives_.strings(formula).empty() || !numbers_of(formula).empty()) {
    return true;
  }
  const std::vector<ArrayStateId> lists = arrays_of(formula);
  if (std::any_of(lists.begin(), lists.end(),
                  [&](ArrayStateId id) { return arrays_.feasible(id); })) {
    return true;
  }
  const std::vector<ObjectPlanId>& maps = objects_of(formula);
  return std::any_of(maps.begin(), maps.end(),
                     [&](ObjectPlanId id) { return objects_.feasible_plan(id); });
}

const ValuePlan& JsonPlans::value(FormulaId goal) {
  if (const auto found = values_.find(goal); found != values_.end()) {
    return found->second;
  }
  const PlanQuestions::Planning planning(questions_, goal);
  ValuePlan plan;
  const bool settled = questions_.settles([&] {
    const TypeMask always = alternatives_.always(goal, kAllTypes);
    plan.can_be_null = (always & type_bit(JsonValue::Type::kNull)) != 0;
    plan.can_be_false = (always & type_bit(JsonValue::Type::kFalse)) != 0;
    plan.can_be_true = (always & type_bit(JsonValue::Type::kTrue)) != 0;
    plan.strings = alternatives_.strings(goal);
    plan.numbers = numbers_of(goal);
    for (const ArrayStateId id : arrays_of(goal)) {
      if (arrays_.feasible(id)) {
        plan.arrays.push_back(id);
      }
    }
    for (const ObjectPlanId id : objects_of(goal)) {
      const ObjectStateId begin = objects_.start(id);
      if (objects_.feasible(begin)) {
        plan.objects.push_back(begin);
      }
    }
  });
  return (settled ? values_[goal] : unsettled_) = std::move(plan);
}

void JsonPlans::prepare_all(FormulaId root) {
  std::vector<bool> seen;  // by goal
  std::vector<FormulaId> waiting;
  const auto visit = [&](FormulaId goal) {
    seen.resize(std::max<size_t>(seen.size(), goal + 1));
    if (goal > FormulaStore::kTrue && !seen[goal]) {
      seen[goal] = true;
      waiting.push_back(goal);
    }
  };
  visit(root);
  while (!waiting.empty()) {
    const FormulaId goal = waiting.back();
    waiting.pop_back();
    const ValuePlan plan = value(goal);
    for (const ArrayStateId id : plan.arrays) {
      const ArrayPlan& array = arrays_.plan(id);
      std::for_each(array.prefix.begin(), array.prefix.end(), visit);
      visit(array.rest);
      for (const ArrayPlan::Contains& contains : array.contains) {
        visit(formulas_.all_of({array.rest, contains.formula}));
        if (contains.max != kUnbounded) {
          visit(formulas_.all_of({array.rest, formulas_.negate(contains.formula)}));
        }
      }
    }
    for (const ObjectStateId id : plan.objects) {
      const ObjectPlan& object = objects_.plan(id);
      for (const auto* properties : {&object.names, &object.classes}) {
        for (const PropertyPlan& property : *properties) {
          visit(property.goal);
        }
      }
    }
  }
}

// ---- How many values ---------------------------------------------------------------------------

namespace {

uint64_t times(uint64_t a, uint64_t b, uint64_t cap) { return b != 0 && a > cap / b ? cap : a * b; }

}  // namespace

/// Lists and objects count as endless unless they are bounded; alternatives that overlap count
/// twice.
uint64_t JsonPlans::distinct(FormulaId goal, uint64_t cap, int depth) {
  constexpr int kMaxDepth = 8;
  if (goal <= FormulaStore::kTrue || depth > kMaxDepth) {
    return goal == FormulaStore::kTrue || (depth > kMaxDepth && possible(goal)) ? cap : 0;
  }
  const ValuePlan plan = value(goal);
  uint64_t total = static_cast<uint64_t>(plan.can_be_null) +
                   static_cast<uint64_t>(plan.can_be_false) +
                   static_cast<uint64_t>(plan.can_be_true);
  for (const StringPlan& text : plan.strings) {
    total += distinct_strings(text, cap);
  }
  for (const uint32_t id : plan.numbers) {
    total += numbers_[id].count(cap);
  }
  for (const ArrayStateId id : plan.arrays) {
    total = std::min(cap, total + distinct_arrays(arrays_.plan(id), cap, depth));
  }
  for (const ObjectStateId id : plan.objects) {
    total = std::min(cap, total + distinct_objects(objects_.plan(id), cap, depth));
  }
  return std::min(total, cap);
}

uint64_t JsonPlans::distinct_strings(const StringPlan& plan, uint64_t cap) {
  RegexStore& regexes = formulas_.regexes();
  const auto points = regexes.star_of(plan.language);
  if (plan.max == kUnbounded && points && !points->empty()) {
    return cap;
  }
  const RegexId bounded =
      points ? regexes.repeat(regexes.one_of(*points), plan.min, plan.max) : plan.language;
  return regexes.count(bounded, cap);
}

uint64_t JsonPlans::distinct_arrays(const ArrayPlan& plan, uint64_t cap, int depth) {
  constexpr uint64_t kMostItems = 64;
  if (plan.max > kMostItems) {
    return cap;
  }
  uint64_t total = 0;
  uint64_t ways = 1;
  for (uint64_t i = 0; i <= plan.max && ways > 0; ++i) {
    total += i >= plan.min ? ways : 0;
    ways = i < plan.max ? times(ways, distinct(plan.item(i), cap, depth + 1), cap) : 0;
  }
  return total;
}

uint64_t JsonPlans::distinct_objects(const ObjectPlan& plan, uint64_t cap, int depth) {
  if (!plan.classes.empty() && plan.max > plan.required) {
    return cap;
  }
  uint64_t ways = 1;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    const PropertyPlan property = plan.names[i];
    const uint64_t values = distinct(property.goal, cap, depth + 1);
    ways = times(ways, std::min(cap, values + (property.required ? 0 : 1)), cap);
  }
  return ways;
}

// ---- Whether there are many
// -----------------------------------------------------------------------

bool JsonPlans::has_plenty(FormulaId goal, int depth) {
  constexpr int kMaxDepth = 3;
  if (goal <= FormulaStore::kTrue || depth > kMaxDepth) {
    return goal == FormulaStore::kTrue;
  }
  if (const auto known = plenty_.find(goal); known != plenty_.end()) {
    return known->second;
  }
  const ValuePlan plan = value(goal);
  const bool found =
      std::ranges::any_of(plan.strings, [&](const StringPlan& text) { return has_plenty(text); }) ||
      std::ranges::any_of(plan.numbers,
                          [&](uint32_t id) { return numbers_[id].count(kPlenty) >= kPlenty; }) ||
      std::ranges::any_of(plan.objects,
                          [&](ObjectStateId id) { return has_plenty_after(id, depth); });
  if (depth == 0) {  // further down it may be told too early
    plenty_[goal] = found;
  }
  return found;
}

bool JsonPlans::has_plenty_after(ObjectStateId state, int depth) {
  const ObjectChoices& choices = objects_.choices(state);
  const std::vector<PropertyPlan>& classes = objects_.plan(state).classes;
  std::vector<RegexId> others;
  for (size_t i = 0; i < classes.size(); ++i) {
    others.push_back(choices.classes[i] ? classes[i].language : RegexStore::kNothing);
  }
  return has_plenty_names(state, others) ||
         has_plenty_values(state, 0, objects_.plan(state).names.size(), depth);
}

bool JsonPlans::has_plenty_names(ObjectStateId state, std::span<const RegexId> others) {
  const size_t known = objects_.plan(state).names.size() + objects_[state].seen_others.size();
  return std::ranges::any_of(others, [&](RegexId language) {
    return language != RegexStore::kNothing &&
           formulas_.regexes().count(language, kPlenty + known) >= kPlenty + known;
  });
}

bool JsonPlans::has_plenty_values(ObjectStateId state, size_t first_name, size_t last_name,
                                  int depth) {
  for (size_t i = first_name; i < last_name; ++i) {
    const bool may_come = objects_.choices(state).names[i];
    const std::vector<Choice> ways =
        may_come ? objects_.property(state, static_cast<uint32_t>(i)) : std::vector<Choice>();
    if (std::ranges::any_of(ways,
                            [&](const Choice& way) { return has_plenty(way.goal, depth + 1); })) {
      return true;
    }
  }
  return false;
}

}  // namespace specdec
