// What the alternatives of objects say of further formulas, and which of these they keep.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "grammar/json/alternatives.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr uint64_t kFewAlternatives = 64;  ///< more of an object become clauses

}  // namespace

bool Alternatives::implied(FormulaId formula, const ObjectPlan& plan, int depth) {
  const FormulaStore::Kind kind = formulas_.kind(formula);
  if (kind == FormulaStore::Kind::kConstant) {
    return formula == FormulaStore::kTrue;
  }
  if (kind != FormulaStore::Kind::kAtom) {
    const std::vector<FormulaId>& parts = formulas_.parts(formula);
    const auto one = [&](FormulaId part) { return implied(part, plan, depth); };
    return kind == FormulaStore::Kind::kAll ? std::all_of(parts.begin(), parts.end(), one)
                                            : std::any_of(parts.begin(), parts.end(), one);
  }
  const Atom& atom = formulas_.atom_of(formula);
  const auto is_required = [&](NameId name) {
    const ObjectPlan::Named* found = plan.named.find(name);
    return found != nullptr && found->required;
  };
  const auto satisfied = [&](NameId name) {
    const FormulaId goal = goal_of(name, plan);
    return goal == atom.formula || goal == FormulaStore::kFalse ||
           feasibility_.impossible(all_of(goal, formulas_.negate(atom.formula)));
  };
  switch (atom.kind) {
    case AtomKind::kTypes:
      return (atom.a & type_bit(Type::kObject)) != 0;
    case AtomKind::kRequired:
      return is_required(atom.a);
    case AtomKind::kExists:
      return std::any_of(plan.named.begin(), plan.named.end(), [&](const auto& entry) {
        return entry.second.required && formulas_.in_key_set(atom.a, entry.first) &&
               satisfied(entry.first);
      });
    case AtomKind::kProperties: {
      const KeySet& set = formulas_.key_set(atom.a);
      return set.name != 0 && satisfied(set.name - 1);
    }
    case AtomKind::kPropertyCount:
      return plan.min >= atom.min && plan.max <= atom.max;
    case AtomKind::kSchema:
    case AtomKind::kNotSchema:
      return depth < 4 && implied(schemas_.expand(atom), plan, depth + 1);
    default:
      return true;  // speaks of another type
  }
}

/// What the plan says of a property of that name.
FormulaId Alternatives::goal_of(NameId name, const ObjectPlan& plan) {
  const ObjectPlan::Named* named = plan.named.find(name);
  FormulaId goal = named == nullptr ? FormulaStore::kTrue : named->goal;
  for (const auto& [set, formula] : plan.rules) {
    goal = formulas_.in_key_set(set, name) ? all_of(goal, formula) : goal;
  }
  return goal;
}

bool Alternatives::contradicts(FormulaId formula, const ObjectPlan& plan, int depth) {
  const FormulaStore::Kind kind = formulas_.kind(formula);
  if (kind == FormulaStore::Kind::kConstant) {
    return formula == FormulaStore::kFalse;
  }
  if (kind != FormulaStore::Kind::kAtom) {
    const auto one = [&](FormulaId part) { return contradicts(part, plan, depth); };
    const std::vector<FormulaId>& parts = formulas_.parts(formula);
    return kind == FormulaStore::Kind::kAll ? std::any_of(parts.begin(), parts.end(), one)
                                            : std::all_of(parts.begin(), parts.end(), one);
  }
  const Atom& atom = formulas_.atom_of(formula);
  const auto cannot_be = [&](NameId name, FormulaId value) {
    const FormulaId goal = goal_of(name, plan);
    const FormulaId both = all_of(goal, value);
    return both == FormulaStore::kFalse ||
           (goal != FormulaStore::kTrue && feasibility_.impossible(both));
  };
  switch (atom.kind) {
    case AtomKind::kTypes:
      return (atom.a & type_bit(Type::kObject)) == 0;
    case AtomKind::kRequired:
      return cannot_be(atom.a, FormulaStore::kTrue);
    case AtomKind::kExists: {
      const KeySet& set = formulas_.key_set(atom.a);
      return set.name != 0 && cannot_be(set.name - 1, atom.formula);
    }
    case AtomKind::kProperties: {
      const KeySet& set = formulas_.key_set(atom.a);
      const ObjectPlan::Named* named = set.name == 0 ? nullptr : plan.named.find(set.name - 1);
      return named != nullptr && named->required && cannot_be(set.name - 1, atom.formula);
    }
    case AtomKind::kPropertyCount:
      return atom.min > plan.max || atom.max < std::max(plan.min, plan.required);
    case AtomKind::kSchema:
    case AtomKind::kNotSchema:
      return depth < 4 && contradicts(schemas_.expand(atom), plan, depth + 1);
    default:
      return false;
  }
}

bool Alternatives::plausible(const ObjectPlan& plan) {
  return plan.required <= plan.max &&
         std::none_of(plan.named.begin(), plan.named.end(), [&](const auto& entry) {
           return entry.second.required && feasibility_.impossible(entry.second.goal);
         });
}

// ---- Existences in closed objects ---------------------------------------------------------------

FormulaId Alternatives::narrowed(FormulaId formula, const ObjectPlan& plan) {
  const FormulaStore::Kind kind = formulas_.kind(formula);
  if (kind == FormulaStore::Kind::kAtom) {
    return narrowed_existence(formula, plan);
  }
  if (kind == FormulaStore::Kind::kConstant) {
    return formula;
  }
  std::vector<FormulaId> parts = formulas_.parts(formula);
  for (FormulaId& part : parts) {
    part = narrowed(part, plan);
  }
  return kind == FormulaStore::Kind::kAll ? formulas_.all_of(parts) : formulas_.any_of(parts);
}

FormulaId Alternatives::narrowed_existence(FormulaId formula, const ObjectPlan& plan) {
  const Atom& atom = formulas_.atom_of(formula);
  if (atom.kind != AtomKind::kExists) {
    return formula;
  }
  const KeySet set = formulas_.key_set(atom.a);
  const FormulaId value = atom.formula;
  if (set.name != 0) {
    const FormulaId goal = goal_of(set.name - 1, plan);
    const bool any = goal != FormulaStore::kTrue && value != FormulaStore::kTrue &&
                     feasibility_.impossible(all_of(goal, formulas_.negate(value)));
    return any ? formulas_.required(set.name - 1) : formula;
  }
  const auto closing = std::ranges::find_if(plan.rules, [&](const auto& rule) {
    return rule.second == FormulaStore::kFalse && formulas_.key_set(rule.first).name == 0;
  });
  if (closing == plan.rules.end()) {
    return formula;
  }
  // The names that may come: those of a language, and those the rule excludes.
  RegexStore& regexes = formulas_.regexes();
  const KeySet closed = formulas_.key_set(closing->first);
  const RegexId allowed = regexes.complement(closed.base);
  const bool no_others = regexes.are_apart(allowed, set.base);
  if (!no_others && !regexes.are_apart(allowed, regexes.complement(set.base))) {
    return formula;
  }
  std::vector<NameId> names;
  for (const NameId name : closed.excluded) {
    questions_.count_step();
    if (formulas_.in_key_set(atom.a, name) && goal_of(name, plan) != FormulaStore::kFalse) {
      names.push_back(name);
    }
  }
  if (no_others && names.size() < 2) {
    return names.empty()
               ? FormulaStore::kFalse
               : narrowed_existence(formulas_.exists(formulas_.one_name(names[0]), value), plan);
  }
  std::vector<std::u32string> texts;
  for (const NameId name : names) {
    texts.push_back(formulas_.name_points(name));
  }
  KeySet left{regexes.words(std::move(texts)), {}, 0};
  if (!no_others) {
    left.base = regexes.any_of(allowed, left.base);
    left.excluded = set.excluded;
  }
  return formulas_.exists(std::move(left), value);
}

/// Narrows the existences that the plan has become too narrow for; false when no object is left.
bool Alternatives::narrow_existences(Task& task, ObjectPlan& plan) {
  std::vector<std::pair<KeySetId, FormulaId>> kept;
  for (const auto& [set, value] : plan.exists) {
    const FormulaId before =
        formulas_.atom({.kind = AtomKind::kExists, .a = set, .formula = value});
    const FormulaId after = narrowed(before, plan);
    if (after == before) {
      kept.emplace_back(set, value);
    } else {
      task.pending.push_back(after);
    }
  }
  plan.exists = std::move(kept);
  return task.pending.empty() || (add_all(task, plan) && plausible(plan));
}

// ---- Choices ------------------------------------------------------------------------------------

Alternatives::Choices::iterator Alternatives::smallest(Choices::iterator begin,
                                                       Choices::iterator end) {
  return std::min_element(begin, end, [&](FormulaId a, FormulaId b) {
    return formulas_.parts(a).size() < formulas_.parts(b).size();
  });
}

/// How many alternatives the choices lead to, when `size` tells it of each; no more than matters.
template <class Size>
uint64_t Alternatives::count_ways(const Choices& choices, const Size& size) {
  uint64_t ways = 1;
  for (const FormulaId choice : choices) {
    ways *= ways <= kFewAlternatives ? std::max<uint64_t>(1, size(choice)) : 1;
  }
  return ways;
}

/// True when names that no rule or clause tells from others can fulfil the existences, however many
/// these are.
bool Alternatives::exist_apart(const ObjectPlan& plan) {
  RegexStore& regexes = formulas_.regexes();
  const auto by_others = [&](const std::pair<KeySetId, FormulaId>& existence) {
    RegexId outside = formulas_.key_set(existence.first).base;  // of all rules
    RegexId inside = outside;
    std::vector<FormulaId> goals = {existence.second};
    for (const auto& [set, formula] : plan.rules) {
      const RegexId names = formulas_.key_set(set).base;
      outside = regexes.all_of(outside, regexes.complement(names));
      inside = regexes.all_of(inside, names);
      goals.push_back(formula);
    }
    return (!regexes.is_finite(outside) && feasibility_.possible(existence.second)) ||
           (!regexes.is_finite(inside) && feasibility_.possible(formulas_.all_of(goals)));
  };
  return plan.exists.empty() ||
         (plan.max == kUnbounded && std::ranges::all_of(plan.exists, by_others));
}

/// True when they can all be kept as clauses, of which each property tells few kinds of its values
/// apart that are no constants.
bool Alternatives::fit_clauses(const Choices& choices, const ObjectPlan& plan) {
  constexpr size_t kFewKinds = 6;
  if (!exist_apart(plan)) {
    return false;
  }
  std::unordered_map<NameId, std::unordered_set<FormulaId>> told;
  for (const FormulaId choice : choices) {
    const ObjectClause* clause = clauses_.read(choice);
    if (clause == nullptr) {
      return false;
    }
    for (const ClausePart& part : *clause) {
      for (const ClauseLiteral& literal : part) {
        if (literal.listing == FormulaStore::kFalse && literal.meaning > FormulaStore::kTrue) {
          std::unordered_set<FormulaId>& kinds = told[literal.name];
          kinds.insert(std::min(literal.meaning, formulas_.negate(literal.meaning)));
          if (kinds.size() > kFewKinds) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

std::optional<std::vector<PropertyCases::Case>> Alternatives::cases(const Task& task,
                                                                    const ObjectPlan& plan) {
  return cases_.count_ways(task.choices) <= kFewAlternatives || fit_clauses(task.choices, plan)
             ? std::nullopt
             : cases_.split(task.choices);
}

Alternatives::Choices::iterator Alternatives::next_choice(Task& task, ObjectPlan& plan) {
  Choices& choices = task.choices;
  const auto size = [&](FormulaId choice) { return formulas_.parts(choice).size(); };
  const auto clause_size = [&](FormulaId choice) {
    const ObjectClause* clause = clauses_.read(choice);
    return clause == nullptr ? 1 : clause->size();
  };
  if (count_ways(choices, size) <= kFewAlternatives ||
      count_ways(choices, clause_size) <= kFewAlternatives || !exist_apart(plan)) {
    return smallest(choices.begin(), choices.end());
  }
  const auto clauses = std::stable_partition(choices.begin(), choices.end(), [&](FormulaId choice) {
    return clauses_.read(choice) == nullptr;
  });
  if (clauses != choices.begin()) {
    return smallest(choices.begin(), clauses);
  }
  for (const FormulaId choice : choices) {
    plan.clauses.push_back(*clauses_.read(choice));
  }
  choices.clear();
  return choices.end();
}

}  // namespace specdec
