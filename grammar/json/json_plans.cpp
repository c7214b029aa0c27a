#include "grammar/json/json_plans.h"

#include <algorithm>

namespace specdec {

JsonPlans::JsonPlans(FormulaStore& formulas, SchemaFormulas& schemas, JsonPlanOptions options)
    : formulas_(formulas),
      questions_(formulas, schemas, options),
      alternatives_(formulas, schemas, questions_, *this),
      arrays_(formulas, questions_, *this),
      objects_(formulas, questions_, *this),
      lists_(formulas, questions_, *this) {}

// ---- Alternatives, once for each formula --------------------------------------------------------

std::vector<uint32_t> JsonPlans::numbers_of(FormulaId goal) {
  std::vector<uint32_t> ids;
  const auto add = [&](NumberPlan plan) {
    if (!plan.is_empty()) {
      ids.push_back(static_cast<uint32_t>(numbers_.size()));
      numbers_.push_back(std::move(plan));
    }
  };
  for (NumberPlan& plan : alternatives_.numbers(goal)) {
    if (questions_.options().schema_order) {  // then whole numbers have no point
      std::ranges::for_each(plan.split_whole(), add);
    } else {
      add(std::move(plan));
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
      std::vector<FormulaId> items = array.prefix;
      items.push_back(array.rest);
      for (const ArrayPlan::Contains& contains : std::vector(array.contains)) {  // plans grow
        for (const FormulaId item : items) {
          visit(formulas_.all_of({item, contains.formula}));
          if (contains.max != kUnbounded) {
            visit(formulas_.all_of({item, formulas_.negate(contains.formula)}));
          }
        }
      }
    }
    for (const ObjectStateId id : plan.objects) {
      const ObjectPlan& object = objects_.plan(id);
      for (uint32_t i = 0; i < object.names.size() && !object.clauses.empty(); ++i) {
        const std::vector<Choice> choices = objects_.property(id, i);
        std::ranges::for_each(choices, visit, &Choice::goal);
      }
      for (const auto* properties : {&object.names, &object.classes}) {
        for (const PropertyPlan& property : *properties) {
          visit(property.goal);
          for (size_t i = 0; i < object.exists.size(); ++i) {
            if ((property.exists >> i & 1) != 0) {
              visit(formulas_.all_of({property.goal, object.exists[i].second}));
            }
          }
        }
      }
    }
  }
}

}  // namespace specdec
