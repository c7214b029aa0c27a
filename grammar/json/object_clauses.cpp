#include "grammar/json/object_clauses.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kMaxClauseParts = 63;       ///< of a clause
constexpr uint64_t kSettled = ~uint64_t{0};  ///< instead of the parts that are left
constexpr int kMaxClauseDepth = 32;          ///< of subschemas

uint64_t bit(size_t part) { return uint64_t{1} << part; }

}  // namespace

// ---- Formulas as clauses ------------------------------------------------------------------------

const ObjectClause* ClauseReader::read(FormulaId choice) {
  auto found = known_.find(choice);
  if (found == known_.end()) {
    auto clause = parts(choice, 0);
    if (clause) {  // what needs few properties first
      std::ranges::stable_sort(*clause, {}, [](const ClausePart& part) {
        return std::ranges::count(part, true, &ClauseLiteral::present);
      });
    }
    found = known_.emplace(choice, std::move(clause)).first;
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<ObjectClause> ClauseReader::parts(FormulaId formula, int depth) {
  const Truth truth = truths_.of(formula, JsonValue::Type::kObject);
  if (truth != Truth::kOpen) {
    return truth == Truth::kTrue ? ObjectClause{{}} : ObjectClause{};
  }
  if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
    return literal(formulas_.atom_of(formula), depth);
  }
  if (formulas_.kind(formula) == FormulaStore::Kind::kAll) {
    return product(formula, depth);
  }
  ObjectClause all;
  for (const FormulaId one : formulas_.parts(formula)) {
    const auto more = parts(one, depth);
    if (!more || all.size() + more->size() > kMaxClauseParts) {
      return std::nullopt;
    }
    all.insert(all.end(), more->begin(), more->end());
  }
  return all;
}

std::optional<ObjectClause> ClauseReader::product(FormulaId formula, int depth) {
  ObjectClause all = {{}};
  for (const FormulaId one : formulas_.parts(formula)) {
    const auto factor = parts(one, depth);
    if (!factor || all.size() * factor->size() > kMaxClauseParts) {
      return std::nullopt;
    }
    ObjectClause longer;
    for (const ClausePart& part : all) {
      for (const ClausePart& more : *factor) {
        longer.push_back(part);
        longer.back().insert(longer.back().end(), more.begin(), more.end());
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::optional<ObjectClause> ClauseReader::literal(const Atom& atom, int depth) {
  if (atom.is_schema()) {
    return depth < kMaxClauseDepth ? parts(schemas_.expand(atom), depth + 1) : std::nullopt;
  }
  ClauseLiteral literal;
  if (atom.kind == AtomKind::kRequired) {
    literal = {.name = atom.a, .present = true};
  } else if (atom.kind == AtomKind::kProperties || atom.kind == AtomKind::kExists) {
    const KeySet& set = formulas_.key_set(atom.a);
    if (set.name == 0) {
      return std::nullopt;
    }
    const bool present = atom.kind == AtomKind::kExists;
    literal = {.name = set.name - 1,
               .formula = atom.formula,
               .present = present,
               .rank = present ? kNoRank : atom.b};
  } else {
    return std::nullopt;
  }
  return ObjectClause{{literal}};
}

// ---- While properties come ----------------------------------------------------------------------

void ObjectClauses::find_places(ObjectPlan& plan) {
  std::unordered_map<NameId, size_t> places;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    places[plan.names[i].name] = i;
  }
  for (ObjectClause& clause : plan.clauses) {
    for (ClausePart& part : clause) {
      for (ClauseLiteral& literal : part) {
        literal.place = places.at(literal.name);
      }
    }
  }
}

std::vector<uint64_t> ObjectClauses::all_open(const ObjectPlan& plan) {
  std::vector<uint64_t> open;
  for (const ObjectClause& clause : plan.clauses) {
    open.push_back(bit(clause.size()) - 1);
  }
  return open;
}

void ObjectClauses::close(const ObjectPlan& plan, size_t name, ObjectState& state) {
  for (size_t i = 0; i < plan.clauses.size(); ++i) {
    for (size_t part = 0; part < plan.clauses[i].size() && state.clauses[i] != kSettled; ++part) {
      const bool dead = std::ranges::any_of(
          plan.clauses[i][part],
          [&](const ClauseLiteral& literal) { return literal.place == name && literal.present; });
      state.clauses[i] &= dead ? ~bit(part) : kSettled;
    }
  }
}

void ObjectClauses::settle(const ObjectPlan& plan, ObjectState& state) {
  for (size_t i = 0; i < plan.clauses.size(); ++i) {
    for (size_t part = 0; part < plan.clauses[i].size() && state.clauses[i] != kSettled; ++part) {
      const bool known = std::ranges::all_of(
          plan.clauses[i][part],
          [&](const ClauseLiteral& literal) { return state.has_seen(literal.place); });
      if ((state.clauses[i] & bit(part)) != 0 && known) {
        state.clauses[i] = kSettled;
      }
    }
  }
}

bool ObjectClauses::apply(const Split& split, ObjectState& state) {
  for (size_t i = 0; i < split.dead.size(); ++i) {
    if (state.clauses[i] != kSettled) {
      state.clauses[i] &= ~split.dead[i];
    }
  }
  return std::ranges::find(state.clauses, uint64_t{0}) == state.clauses.end();
}

uint64_t ObjectClauses::missing(const ObjectPlan& plan, const ObjectState& state) {
  uint64_t total = 0;
  for (size_t i = 0; i < plan.clauses.size(); ++i) {
    uint64_t least = state.clauses[i] == kSettled ? 0 : kUnbounded;
    for (size_t part = 0; part < plan.clauses[i].size() && least > 0; ++part) {
      const auto needed =
          std::ranges::count_if(plan.clauses[i][part], [&](const ClauseLiteral& literal) {
            return literal.present && !state.has_seen(literal.place);
          });
      const bool alive = (state.clauses[i] & bit(part)) != 0;
      least = alive ? std::min(least, static_cast<uint64_t>(needed)) : least;
    }
    total += least;
  }
  return total;
}

bool ObjectClauses::may_end(const ObjectPlan& plan, const ObjectState& state) {
  return plan.clauses.empty() || missing(plan, state) == 0;
}

// ---- What is told apart of a value --------------------------------------------------------------

const std::vector<ObjectClauses::Split>& ObjectClauses::splits(ObjectPlanId id,
                                                               const ObjectPlan& plan,
                                                               size_t name) {
  const uint64_t key = uint64_t{id} << 32 | name;
  if (const auto known = splits_.find(key); known != splits_.end()) {
    return known->second;
  }
  std::vector<FormulaId> told;  // of a formula and its contrary the smaller number
  for (const ObjectClause& clause : plan.clauses) {
    for (const ClausePart& part : clause) {
      for (const ClauseLiteral& literal : part) {
        const FormulaId formula = std::min(literal.formula, formulas_.negate(literal.formula));
        if (literal.place == name && formula > FormulaStore::kTrue &&
            std::ranges::find(told, formula) == told.end()) {
          told.push_back(formula);
        }
      }
    }
  }
  std::vector<Split> found;
  std::vector<bool> truths;
  add_splits(plan, name, told, plan.names[name].goal, truths, found);
  return splits_[key] = std::move(found);
}

void ObjectClauses::add_splits(const ObjectPlan& plan, size_t name,
                               const std::vector<FormulaId>& told, FormulaId goal,
                               std::vector<bool>& truths, std::vector<Split>& found) {
  questions_.count_step();
  if (found.size() > questions_.options().max_alternatives) {
    questions_.fail(
        fmt::format("a property has more than {} kinds of values; raise "
                    "max_alternatives, or use fewer if, anyOf and dependent schemas",
                    questions_.options().max_alternatives));
  }
  if (truths.size() < told.size()) {
    const FormulaId formula = told[truths.size()];
    for (const bool holds : {true, false}) {
      const FormulaId with = formulas_.all_of({goal, holds ? formula : formulas_.negate(formula)});
      if (!feasibility_.impossible(with)) {
        truths.push_back(holds);
        add_splits(plan, name, told, with, truths, found);
        truths.pop_back();
      }
    }
    return;
  }
  found.push_back(make_split(plan, name, told, goal, truths));
}

ObjectClauses::Split ObjectClauses::make_split(const ObjectPlan& plan, size_t name,
                                               const std::vector<FormulaId>& told, FormulaId goal,
                                               const std::vector<bool>& truths) {
  const auto holds = [&](FormulaId formula) {
    if (formula <= FormulaStore::kTrue) {
      return formula == FormulaStore::kTrue;
    }
    const FormulaId first = std::min(formula, formulas_.negate(formula));
    const auto at = std::ranges::find(told, first) - told.begin();
    return truths[static_cast<size_t>(at)] == (formula == first);
  };
  Split split{goal, {}};
  for (const ObjectClause& clause : plan.clauses) {
    uint64_t dead = 0;
    for (size_t part = 0; part < clause.size(); ++part) {
      for (const ClauseLiteral& literal : clause[part]) {
        dead |= literal.place == name && !holds(literal.formula) ? bit(part) : 0;
      }
    }
    split.dead.push_back(dead);
  }
  return split;
}

// ---- Whether an end exists ----------------------------------------------------------------------

bool ObjectClauses::find(const ObjectPlan& plan, const ObjectState& state,
                         const std::vector<bool>& can_come, size_t clause, Needs& needs) {
  questions_.count_step();
  while (clause < plan.clauses.size() && state.clauses[clause] == kSettled) {
    ++clause;
  }
  if (clause == plan.clauses.size()) {
    return plan.max == kUnbounded || state.count + needs.count <= plan.max;
  }
  for (size_t part = 0; part < plan.clauses[clause].size(); ++part) {
    if ((state.clauses[clause] & bit(part)) != 0) {
      Needs chosen = needs;
      if (choose(plan.clauses[clause][part], state, can_come, chosen) &&
          find(plan, state, can_come, clause + 1, chosen)) {
        return true;
      }
    }
  }
  return false;
}

bool ObjectClauses::choose(const ClausePart& part, const ObjectState& state,
                           const std::vector<bool>& can_come, Needs& needs) {
  for (const ClauseLiteral& literal : part) {
    const size_t name = literal.place;
    if (state.has_seen(name)) {
      continue;  // and holds: the part would be dead
    }
    needs.goals[name] = formulas_.all_of({needs.goals[name], literal.formula});
    if (literal.present && !needs.present[name]) {
      needs.present[name] = true;
      ++needs.count;
    }
    if (needs.present[name] && (!can_come[name] || !feasibility_.possible(needs.goals[name]))) {
      return false;
    }
  }
  return true;
}

}  // namespace specdec
