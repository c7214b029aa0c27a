#include "grammar/json/json_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "core/error.h"

namespace specdec {

JsonPlans::JsonPlans(FormulaStore& formulas, SchemaFormulas& schemas, JsonPlanOptions options)
    : formulas_(formulas), schemas_(schemas), options_(options), name_classes_(formulas) {}

JsonPlans::~JsonPlans() = default;

std::string JsonPlans::locations(FormulaId goal) const {
  constexpr size_t kShown = 3;
  std::vector<std::string> found;
  const auto visit = [&](const auto& self, FormulaId formula) -> void {
    if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
      const Atom& atom = formulas_.atom_of(formula);
      const std::string place = atom.is_schema() ? schemas_.location(atom) : "";
      if (!place.empty() && std::find(found.begin(), found.end(), place) == found.end()) {
        found.push_back(place);
      }
    } else if (formula > FormulaStore::kTrue) {
      for (const FormulaId part : formulas_.parts(formula)) {
        self(self, part);
      }
    }
  };
  visit(visit, goal);
  const size_t shown = std::min(found.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(std::span(found).first(shown), ", "));
  return found.size() > shown ? text + fmt::format(" and {} more", found.size() - shown) : text;
}

void JsonPlans::fail(const std::string& what) const {
  for (auto goal = goals_.rbegin(); goal != goals_.rend(); ++goal) {
    if (const std::string places = locations(*goal); !places.empty()) {
      throw GrammarError(fmt::format("{}: {}", places, what));
    }
  }
  throw GrammarError(what);
}

void JsonPlans::count_step() {
  if (++steps_ > options_.max_steps) {
    fail(fmt::format(
        "the schema's combinations of anyOf, oneOf, not and allOf are too many: more than {} steps "
        "to tell its alternatives apart; raise max_steps, or make the subschemas of a oneOf differ "
        "in one required property with a const",
        options_.max_steps));
  }
}

void JsonPlans::begin_question() {
  constexpr uint32_t kMaxOpen = 2'000;  // bounds the stack
  count_step();
  if (questions_.open() > kMaxOpen) {
    fail(fmt::format("the schema nests deeper than {} values and alternatives", kMaxOpen));
  }
}

void JsonPlans::begin_reading() { steps_ = questions_.open() == 0 && goals_.empty() ? 0 : steps_; }

bool JsonPlans::possible(FormulaId formula) {
  if (formula <= FormulaStore::kTrue) {
    return formula == FormulaStore::kTrue;
  }
  return ask(possible_, formula, [&] {
    const Planning planning(goals_, formula);
    return search(formula);
  });
}

bool JsonPlans::impossible(FormulaId formula) {
  return !possible(formula) && (formula == FormulaStore::kFalse || possible_.never(formula));
}

bool JsonPlans::search(FormulaId formula) {
  constexpr TypeMask kNames = type_bit(JsonValue::Type::kNull) | type_bit(JsonValue::Type::kFalse) |
                              type_bit(JsonValue::Type::kTrue);
  if ((truths(formula, kNames).always & kNames) != 0 || truths(formula, kAllTypes).always != 0) {
    return true;
  }
  if (!strings(formula).empty() || !numbers(formula).empty()) {
    return true;
  }
  const std::vector<ArrayStateId> lists = arrays(formula);
  if (std::any_of(lists.begin(), lists.end(),
                  [&](ArrayStateId id) { return feasible_array(id); })) {
    return true;
  }
  const std::vector<ObjectPlanId>& maps = object_plans(formula);
  return std::any_of(maps.begin(), maps.end(), [&](ObjectPlanId id) { return feasible_plan(id); });
}

const ValuePlan& JsonPlans::value(FormulaId goal) {
  if (const auto found = values_.find(goal); found != values_.end()) {
    return found->second;
  }
  const Planning planning(goals_, goal);
  ValuePlan plan;
  const bool settled = questions_.settles([&] {
    const TypeMask always = truths(goal, kAllTypes).always;
    plan.can_be_null = (always & type_bit(JsonValue::Type::kNull)) != 0;
    plan.can_be_false = (always & type_bit(JsonValue::Type::kFalse)) != 0;
    plan.can_be_true = (always & type_bit(JsonValue::Type::kTrue)) != 0;
    plan.strings = strings(goal);
    plan.numbers = numbers(goal);
    for (const ArrayStateId id : arrays(goal)) {
      if (feasible_array(id)) {
        plan.arrays.push_back(id);
      }
    }
    for (const ObjectPlanId id : object_plans(goal)) {
      const ObjectStateId begin = start(id);
      if (feasible_object(begin)) {
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
      const ArrayPlan& array = array_plan(id);
      std::for_each(array.prefix.begin(), array.prefix.end(), visit);
      visit(array.rest);
      for (const ArrayPlan::Contains& contains : array.contains) {
        visit(all_of(array.rest, contains.formula));
        if (contains.max != kUnbounded) {
          visit(all_of(array.rest, formulas_.negate(contains.formula)));
        }
      }
    }
    for (const ObjectStateId id : plan.objects) {
      const ObjectPlan& object = object_plan(id);
      for (const auto* properties : {&object.names, &object.classes}) {
        for (const PropertyPlan& property : *properties) {
          visit(property.goal);
        }
      }
    }
  }
}

}  // namespace specdec
