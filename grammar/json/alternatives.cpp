#include "grammar/json/alternatives.h"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <unordered_set>

#include "core/error.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr size_t kMaxPrefix = 100'000;

template <class Plan>
constexpr Type type_of() {
  if constexpr (std::is_same_v<Plan, StringPlan>) {
    return Type::kString;
  } else if constexpr (std::is_same_v<Plan, NumberPlan>) {
    return Type::kNumber;
  } else if constexpr (std::is_same_v<Plan, ArrayPlan>) {
    return Type::kArray;
  } else {
    return Type::kObject;
  }
}

bool narrow(uint64_t& min, uint64_t& max, const Atom& atom) {
  min = std::max(min, atom.min);
  max = std::min(max, atom.max);
  return min <= max;
}

}  // namespace

bool Alternatives::add(const Atom& atom, StringPlan& plan) {
  if (atom.kind == AtomKind::kLength) {
    return narrow(plan.min, plan.max, atom);
  }
  plan.language = formulas_.regexes().all_of(plan.language, atom.a);
  return plan.language != RegexStore::kNothing;
}

bool Alternatives::add(const Atom& atom, NumberPlan& plan) {
  if (atom.kind == AtomKind::kRange) {
    if (atom.a != 0) {
      plan.raise_lower(formulas_.decimal(atom.a - 1), (atom.min & 1) != 0);
    }
    if (atom.b != 0) {
      plan.reduce_upper(formulas_.decimal(atom.b - 1), (atom.min & 2) != 0);
    }
    return !plan.lower || !plan.upper || compare(*plan.lower, *plan.upper) <= 0;
  }
  if (atom.kind == AtomKind::kWrittenWhole || atom.kind == AtomKind::kNotWrittenWhole) {
    return plan.restrict_to(atom.kind == AtomKind::kWrittenWhole ? NumberPlan::Written::kWhole
                                                                 : NumberPlan::Written::kNotWhole);
  }
  if (atom.kind == AtomKind::kNumbers) {
    return plan.restrict_to(formulas_.number_set(atom.a));
  }
  if (atom.kind == AtomKind::kNotNumbers) {
    plan.exclude(formulas_.number_set(atom.a));
    return true;
  }
  auto& units = atom.kind == AtomKind::kMultiple ? plan.multiples : plan.not_multiples;
  const Decimal& unit = formulas_.decimal(atom.a);
  if (std::find(units.begin(), units.end(), unit) == units.end()) {
    units.push_back(unit);
  }
  return true;
}

bool Alternatives::add(const Atom& atom, ArrayPlan& plan) {
  const auto extend = [&](uint64_t size) {
    if (size > kMaxPrefix) {
      questions_.fail(
          fmt::format("item {} of an array is told apart; at most {} can be", size, kMaxPrefix));
    }
    if (plan.prefix.size() < size) {
      plan.prefix.resize(size, plan.rest);
    }
  };
  switch (atom.kind) {
    case AtomKind::kItem:
      extend(atom.min + 1);
      plan.prefix[atom.min] = all_of(plan.prefix[atom.min], atom.formula);
      return true;
    case AtomKind::kItems:
      extend(atom.min);
      for (size_t i = atom.min; i < plan.prefix.size(); ++i) {
        plan.prefix[i] = all_of(plan.prefix[i], atom.formula);
      }
      plan.rest = all_of(plan.rest, atom.formula);
      return true;
    case AtomKind::kContains:
      plan.contains.push_back({atom.a, atom.formula, atom.min, atom.max});
      return atom.min <= atom.max;
    case AtomKind::kItemCount:
      return narrow(plan.min, plan.max, atom);
    case AtomKind::kUnique:
      plan.unique = true;
      return true;
    default:
      plan.repeated = true;
      return true;
  }
}

bool Alternatives::add(const Atom& atom, ObjectPlan& plan) {
  switch (atom.kind) {
    case AtomKind::kProperties: {
      const KeySet& set = formulas_.key_set(atom.a);
      if (set.name == 0) {
        plan.rules.emplace_back(atom.a, atom.formula);
        return true;
      }
      ObjectPlan::Named& named = plan.named[set.name - 1];
      named.goal = all_of(named.goal, atom.formula);
      named.rank = std::min(named.rank, atom.b);
      return named.goal != FormulaStore::kFalse || !named.required;
    }
    case AtomKind::kExists: {
      const KeySet& set = formulas_.key_set(atom.a);
      if (set.name == 0) {
        const std::pair one(atom.a, atom.formula);
        if (std::ranges::find(plan.exists, one) == plan.exists.end()) {
          plan.exists.push_back(one);
        }
        return true;
      }
      ObjectPlan::Named& named = plan.require(set.name - 1);
      named.goal = all_of(named.goal, atom.formula);
      return named.goal != FormulaStore::kFalse;
    }
    case AtomKind::kRequired:
      return plan.require(atom.a).goal != FormulaStore::kFalse;
    default:
      return narrow(plan.min, plan.max, atom);
  }
}

template <class Plan>
bool Alternatives::add_all(Task& task, Plan& plan) {
  constexpr size_t kFew = 32;
  std::unordered_set<FormulaId> done;                 // of many: references often lead to the same
  for (size_t i = 0; i < task.pending.size(); ++i) {  // grows meanwhile
    questions_.count_step();
    const FormulaId formula = task.pending[i];
    if (i >= kFew && !done.insert(formula).second) {
      continue;
    }
    const Truth now = truths_.of(formula, type_of<Plan>());
    if (now == Truth::kFalse) {
      return false;
    }
    if (now == Truth::kTrue) {
      continue;
    }
    const FormulaStore::Kind kind = formulas_.kind(formula);
    if (kind == FormulaStore::Kind::kAny) {
      task.choices.push_back(formula);
      continue;
    }
    if (kind == FormulaStore::Kind::kAll) {
      const std::vector<FormulaId>& parts = formulas_.parts(formula);
      task.pending.insert(task.pending.end(), parts.begin(), parts.end());
      continue;
    }
    const Atom& atom = formulas_.atom_of(formula);
    if (atom.is_schema()) {
      task.pending.push_back(schemas_.expand(atom));
    } else if (!add(atom, plan)) {
      return false;
    }
  }
  task.pending.clear();
  return true;
}

void Alternatives::drop_repeated(Choices& choices) {
  std::unordered_set<FormulaId> met;
  std::erase_if(choices, [&](FormulaId choice) { return !met.insert(choice).second; });
}

/// Takes out the choices that are made already, and what cannot be chosen any more. False when one
/// has nothing left.
template <class Plan>
bool Alternatives::settle_choices(Task& task, Plan& plan) {
  if (!narrow_existences(task, plan)) {
    return false;
  }
  for (size_t i = 0; i < task.choices.size();) {
    questions_.count_step();
    std::vector<FormulaId> live;
    bool made = false;
    const std::vector<FormulaId>& parts = formulas_.parts(task.choices[i]);
    for (const FormulaId part : parts) {
      const Truth now = truths_.of(part, type_of<Plan>());
      if (now == Truth::kTrue || (now == Truth::kOpen && implied(part, plan, 0))) {
        made = true;
        break;
      }
      if (now == Truth::kOpen && !contradicts(part, plan, 0)) {
        live.push_back(narrowed(part, plan));
      }
    }
    const FormulaId left = made ? FormulaStore::kTrue : formulas_.any_of(live);
    if (left == FormulaStore::kFalse) {
      return false;
    }
    if (formulas_.kind(left) == FormulaStore::Kind::kAny) {
      task.choices[i++] = left;
      continue;
    }
    task.choices.erase(task.choices.begin() + static_cast<int64_t>(i));
    if (left != FormulaStore::kTrue) {
      task.pending = {left};
      if (!add_all(task, plan) || !plausible(plan)) {
        return false;
      }
      i = 0;
    }
  }
  drop_repeated(task.choices);
  return true;
}

template <class Plan>
void Alternatives::expand(Task task, Plan plan, std::vector<Plan>& found) {
  questions_.count_step();
  if (!add_all(task, plan) || !plausible(plan) || !settle_choices(task, plan)) {
    return;
  }
  if (const auto cases = task.choices.empty() ? std::nullopt : this->cases(task, plan)) {
    for (const PropertyCases::Case& one : *cases) {
      Task next{one.left, {}};
      next.pending.push_back(one.when);
      expand(std::move(next), plan, found);
    }
    return;
  }
  const auto chosen = task.choices.empty() ? task.choices.end() : next_choice(task, plan);
  if (task.choices.empty()) {
    found.push_back(std::move(plan));
    if (found.size() > questions_.options().max_alternatives) {
      questions_.fail(
          fmt::format("a value has more than {} alternatives; raise max_alternatives, or use fewer "
                      "anyOf, oneOf and not",
                      questions_.options().max_alternatives));
    }
    return;
  }
  const std::vector<FormulaId>& parts = formulas_.parts(*chosen);
  task.choices.erase(chosen);
  for (const FormulaId part : std::span(parts).first(parts.size() - 1)) {
    Task next = task;
    next.pending = {part};
    expand(std::move(next), plan, found);
  }
  task.pending = {parts.back()};
  expand(std::move(task), std::move(plan), found);
}

template <class Plan>
std::vector<Plan> Alternatives::alternatives(FormulaId goal) {
  std::vector<Plan> found;
  if (truths_.of(goal, type_of<Plan>()) != Truth::kFalse) {
    expand<Plan>({{goal}, {}}, {}, found);
  }
  return found;
}

// ---- Of each type ------------------------------------------------------------------------------

std::vector<StringPlan> Alternatives::strings(FormulaId goal) {
  if (truths_.of(goal, Type::kString) == Truth::kFalse) {
    return {};
  }
  RegexStore& regexes = formulas_.regexes();
  StringPlan plan;
  Task task{{goal}, {}};
  if (!add_all(task, plan) || !settle_choices(task, plan)) {
    return {};
  }
  plan = task.choices.empty() ? plan : StringPlan{schemas_.text_language(goal), 0, kUnbounded};
  const bool bounded = plan.min > 0 || plan.max != kUnbounded;
  if (bounded && !regexes.star_of(plan.language)) {
    const auto max = plan.max == kUnbounded ? std::nullopt : std::optional(plan.max);
    plan.language = regexes.all_of(
        plan.language, regexes.repeat(regexes.one_of(CodePoints::all()), plan.min, max));
    plan.min = 0;
    plan.max = kUnbounded;
  }
  const auto points = regexes.star_of(plan.language);
  const bool empty =
      regexes.is_nothing(plan.language) || (points && points->empty() && plan.min > 0);
  return empty ? std::vector<StringPlan>() : std::vector<StringPlan>{plan};
}

std::vector<NumberPlan> Alternatives::numbers(FormulaId goal) {
  return alternatives<NumberPlan>(goal);
}

std::vector<ArrayPlan> Alternatives::arrays(FormulaId goal) {
  return alternatives<ArrayPlan>(goal);
}

std::vector<ObjectPlan> Alternatives::objects(FormulaId goal) {
  return alternatives<ObjectPlan>(goal);
}

}  // namespace specdec
