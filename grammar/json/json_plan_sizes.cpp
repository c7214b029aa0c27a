// How many values formulas have at least, as far as it is quickly told.
#include <algorithm>

#include "grammar/json/json_plans.h"

namespace specdec {
namespace {

constexpr uint64_t kManyValues = uint64_t{1} << 20;  ///< counting stops there
constexpr uint64_t kManyTried = 1'000;               ///< of numbers that are tried one by one

uint64_t product(uint64_t a, uint64_t b) {
  return b != 0 && a > kManyValues / b ? kManyValues : std::min(a * b, kManyValues);
}

/// Lists of different values, of `least` to `most`: each choice of some of the values, in each
/// order. There is one at least.
uint64_t count_orders(uint64_t least, uint64_t most, uint64_t values) {
  uint64_t total = 0;
  uint64_t ways = 1;
  for (uint64_t size = 0; size <= std::min(most, values) && total < kManyValues; ++size) {
    total = std::min(kManyValues, total + (size >= least ? ways : 0));
    ways = product(ways, values - size);
  }
  return std::max<uint64_t>(1, total);
}

}  // namespace

bool JsonPlans::has_many(FormulaId goal, uint64_t many) {
  return many <= kManyValues && count(goal, 0) >= many;
}

bool JsonPlans::has_many(const StringPlan& plan, uint64_t many) {
  return many <= kManyValues && count(plan) >= many;
}

bool JsonPlans::has_many(const ValueLists::Names& names, uint64_t many) {
  return many <= kManyValues && (count_names(names.object, *names.classes) >= many ||
                                 count_values(names.object, names.first, names.last) >= many);
}

bool JsonPlans::has_many_after(ObjectStateId state, uint64_t many) {
  const std::vector<bool> open = objects_.choices(state).classes;
  const std::vector<PropertyPlan>& classes = objects_.plan(state).classes;
  std::vector<RegexId> others;
  for (size_t i = 0; i < classes.size(); ++i) {
    others.push_back(open[i] ? classes[i].language : RegexStore::kNothing);
  }
  const auto last = static_cast<uint32_t>(objects_.plan(state).names.size());
  return has_many({state, 0, last, 0, &others, 0}, many);
}

/// False where `contains`, or items that must differ or be equal, make it hard to tell.
bool JsonPlans::has_many_items_after(ArrayStateId state, uint64_t many) {
  const ArrayPlan& plan = arrays_.plan(state);
  const uint64_t items = arrays_[state].count;
  if (!plan.contains.empty() || plan.unique || plan.repeated || items >= plan.max) {
    return false;
  }
  const FormulaId next = plan.item(items);
  const bool endless = plan.max == kUnbounded && items >= plan.prefix.size();
  return endless ? possible(next) : has_many(next, many);
}

uint64_t JsonPlans::count(FormulaId goal, int depth) {
  constexpr int kMaxDepth = 3;
  if (goal <= FormulaStore::kTrue) {
    return goal == FormulaStore::kTrue ? kManyValues : 0;
  }
  if (depth > kMaxDepth) {
    return possible(goal) ? 1 : 0;
  }
  const uint64_t key = uint64_t{goal} << 8 | static_cast<uint64_t>(depth);
  if (const auto known = counts_.find(key); known != counts_.end()) {
    return known->second;
  }
  uint64_t total = 0;
  const bool settled = questions_.settles([&] { total = count_anew(goal, depth); });
  if (settled) {
    counts_[key] = total;
  }
  return total;
}

/// Alternatives of one type may overlap: the largest counts.
uint64_t JsonPlans::count_anew(FormulaId goal, int depth) {
  const ValuePlan plan = value(goal);
  uint64_t total = static_cast<uint64_t>(plan.can_be_null) +
                   static_cast<uint64_t>(plan.can_be_false) +
                   static_cast<uint64_t>(plan.can_be_true);
  const auto add_largest = [&](const auto& alternatives, const auto& count) {
    uint64_t most = 0;
    for (const auto& one : alternatives) {
      most = total + most < kManyValues ? std::max(most, count(one)) : most;
    }
    total = std::min(total + most, kManyValues);
  };
  add_largest(plan.strings, [&](const StringPlan& text) { return count(text); });
  add_largest(plan.numbers, [&](uint32_t id) {
    const bool quick = numbers_[id].not_multiples.empty();
    return numbers_[id].count(quick ? kManyValues : kManyTried);
  });
  add_largest(plan.objects, [&](ObjectStateId id) { return count(objects_.plan(id), depth); });
  add_largest(plan.arrays, [&](ArrayStateId id) { return count(arrays_.plan(id), depth); });
  return total;
}

RegexId JsonPlans::bounded_language(const StringPlan& plan) {
  RegexStore& regexes = formulas_.regexes();
  if (plan.min == 0 && plan.max == kUnbounded) {
    return plan.language;
  }
  const auto points = regexes.star_of(plan.language);
  const auto max = plan.max == kUnbounded ? std::nullopt : std::optional(plan.max);
  return points ? regexes.repeat(regexes.one_of(*points), plan.min, max) : plan.language;
}

uint64_t JsonPlans::count(const StringPlan& plan) {
  RegexStore& regexes = formulas_.regexes();
  const auto points = regexes.star_of(plan.language);
  if (plan.max == kUnbounded && points && !points->empty()) {
    return kManyValues;
  }
  return regexes.count(bounded_language(plan), kManyValues);
}

/// Number of arrays of any values; 1 when `contains` or equal items make it hard to tell.
uint64_t JsonPlans::count(const ArrayPlan& plan, int depth) {
  constexpr uint64_t kMaxItems = 64;
  if (!plan.contains.empty() || plan.repeated || (plan.unique && !plan.prefix.empty())) {
    return 1;
  }
  if (plan.unique) {
    const FormulaId rest = plan.rest;  // plans grow
    return count_orders(plan.min, plan.max, count(rest, depth + 1));
  }
  uint64_t total = 0;
  uint64_t ways = 1;
  for (uint64_t i = 0; i <= plan.max && ways > 0; ++i) {
    if (i >= kMaxItems && i > plan.min) {
      return plan.max == kUnbounded ? kManyValues : total;
    }
    total = std::min(kManyValues, total + (i >= plan.min ? ways : 0));
    if (total == kManyValues) {
      return total;
    }
    ways = i < plan.max ? product(ways, count(plan.item(i), depth + 1)) : 0;
  }
  return total;
}

uint64_t JsonPlans::count(const ObjectPlan& plan, int depth) {
  if (!plan.exists.empty() || !plan.clauses.empty() || plan.min > plan.required) {
    return 1;
  }
  const bool room = plan.max > plan.required;
  for (const PropertyPlan& others : plan.classes) {
    if (room && possible(others.goal) &&
        formulas_.regexes().count(others.language, kManyValues) == kManyValues) {
      return kManyValues;
    }
  }
  uint64_t ways = 1;
  for (const PropertyPlan property : plan.names) {
    const bool may_come = property.required || plan.max == kUnbounded;
    const uint64_t values = may_come ? count(property.goal, depth + 1) : 0;
    ways = product(ways, std::min(kManyValues, values + (property.required ? 0 : 1)));
  }
  return ways;
}

uint64_t JsonPlans::count_names(ObjectStateId state, std::span<const RegexId> others) {
  const size_t known = objects_.plan(state).names.size() + objects_[state].seen_others.size();
  uint64_t most = 0;
  for (const RegexId language : others) {
    if (language != RegexStore::kNothing) {
      const uint64_t all = formulas_.regexes().count(language, kManyValues + known);
      most = std::max(most, all - std::min<uint64_t>(all, known));
    }
  }
  return most;
}

uint64_t JsonPlans::count_values(ObjectStateId state, size_t first_name, size_t last_name) {
  uint64_t most = 0;
  for (size_t i = first_name; i < last_name; ++i) {
    const bool may_come = objects_.choices(state).names[i];
    const std::vector<Choice> ways =
        may_come ? objects_.property(state, static_cast<uint32_t>(i)) : std::vector<Choice>();
    for (const Choice& way : ways) {
      most = std::max(most, count(way.goal, 1));
    }
  }
  return most;
}

}  // namespace specdec
