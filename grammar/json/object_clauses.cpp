#include "grammar/json/object_clauses.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "core/error.h"
#include "grammar/json/value_class.h"

namespace specdec {
namespace {

uint64_t bit(size_t part) { return uint64_t{1} << part; }

}  // namespace

// ---- While properties come ----------------------------------------------------------------------

void ObjectClauses::prepare(ObjectPlan& plan) {
  std::unordered_map<NameId, size_t> places;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    places[plan.names[i].name] = i;
  }
  plan.clauses_of.assign(plan.clauses.empty() ? 0 : plan.names.size(), {});
  for (uint32_t i = 0; i < plan.clauses.size(); ++i) {
    for (ClausePart& part : plan.clauses[i]) {
      for (ClauseLiteral& literal : part) {
        literal.place = places.at(literal.name);
        std::vector<uint32_t>& all = plan.clauses_of[literal.place];
        if (all.empty() || all.back() != i) {
          all.push_back(i);
        }
      }
    }
  }
  plan.clause_groups.clear();
  std::vector<bool> met(plan.names.size());
  std::vector<bool> grouped(plan.clauses.size());
  for (uint32_t first = 0; first < plan.clauses.size(); ++first) {
    if (grouped[first]) {
      continue;
    }
    grouped[first] = true;
    ClauseGroup group{{first}, {}};
    for (size_t at = 0; at < group.clauses.size(); ++at) {  // grows meanwhile
      for (const ClausePart& part : plan.clauses[group.clauses[at]]) {
        for (const ClauseLiteral& literal : part) {
          if (met[literal.place]) {
            continue;
          }
          met[literal.place] = true;
          group.names.push_back(static_cast<uint32_t>(literal.place));
          for (const uint32_t clause : plan.clauses_of[literal.place]) {
            if (!grouped[clause]) {
              grouped[clause] = true;
              group.clauses.push_back(clause);
            }
          }
        }
      }
    }
    plan.clause_groups.push_back(std::move(group));
  }
  plan.clause_group_of.assign(plan.names.size(), static_cast<uint32_t>(plan.clause_groups.size()));
  for (uint32_t i = 0; i < plan.clause_groups.size(); ++i) {
    for (const uint32_t name : plan.clause_groups[i].names) {
      plan.clause_group_of[name] = i;
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
  for (const uint32_t i : plan.clauses_of[name]) {
    for (size_t part = 0;
         part < plan.clauses[i].size() && state.clauses[i] != ObjectState::kSettled; ++part) {
      const bool dead = std::ranges::any_of(
          plan.clauses[i][part],
          [&](const ClauseLiteral& literal) { return literal.place == name && literal.present; });
      state.clauses[i] &= dead ? ~bit(part) : ObjectState::kSettled;
    }
  }
}

void ObjectClauses::settle(const ObjectPlan& plan, size_t name, ObjectState& state) {
  for (const uint32_t i : plan.clauses_of[name]) {
    for (size_t part = 0;
         part < plan.clauses[i].size() && state.clauses[i] != ObjectState::kSettled; ++part) {
      const bool known =
          (state.clauses[i] & bit(part)) != 0 &&
          std::ranges::all_of(plan.clauses[i][part], [&](const ClauseLiteral& literal) {
            return state.has_seen(literal.place);
          });
      state.clauses[i] = known ? ObjectState::kSettled : state.clauses[i];
    }
  }
}

bool ObjectClauses::apply(const Split& split, ObjectState& state) {
  bool alive = true;
  for (const auto& [clause, dead] : split.dead) {
    uint64_t& left = state.clauses[clause];
    left &= left != ObjectState::kSettled ? ~dead : left;
    alive &= left != 0;
  }
  return alive;
}

uint64_t ObjectClauses::missing(const ObjectPlan& plan, const ObjectState& state) {
  uint64_t total = 0;
  for (size_t i = 0; i < plan.clauses.size(); ++i) {
    uint64_t least = state.clauses[i] == ObjectState::kSettled ? 0 : kUnbounded;
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

/// What the clauses say of the property's value; of formulas that mean the same, or the contrary,
/// one.
ObjectClauses::Told ObjectClauses::told_apart(const ObjectPlan& plan, size_t name) {
  std::vector<const ClauseLiteral*> listing;
  std::vector<const ClauseLiteral*> others;
  std::unordered_set<FormulaId> met;
  for (const uint32_t clause : plan.clauses_of[name]) {
    for (const ClausePart& part : plan.clauses[clause]) {
      for (const ClauseLiteral& literal : part) {
        if (literal.place == name && literal.meaning > FormulaStore::kTrue &&
            met.insert(std::min(literal.meaning, formulas_.negate(literal.meaning))).second) {
          (literal.listing != FormulaStore::kFalse ? listing : others).push_back(&literal);
        }
      }
    }
  }
  Told told;
  told.listing = listing.size();
  listing.insert(listing.end(), others.begin(), others.end());
  for (const ClauseLiteral* literal : listing) {
    const bool contrary =
        literal->listing != FormulaStore::kFalse && literal->listing != literal->formula;
    const FormulaId meaning = contrary ? formulas_.negate(literal->meaning) : literal->meaning;
    told.places[meaning] = told.formulas.size();
    told.formulas.push_back(contrary ? literal->listing : literal->formula);
  }
  return told;
}

const std::vector<ObjectClauses::Split>& ObjectClauses::splits(ObjectPlanId id,
                                                               const ObjectPlan& plan,
                                                               size_t name) {
  const uint64_t key = uint64_t{id} << 32 | name;
  if (const auto known = splits_.find(key); known != splits_.end()) {
    return known->second;
  }
  const FormulaId goal = plan.names[name].goal;
  const Told told = told_apart(plan, name);
  std::vector<Split> found;
  const std::span listing = std::span(told.formulas).first(told.listing);
  for (ValueClass& values : find_value_classes(feasibility_, listing)) {
    const FormulaId with = formulas_.all_of({goal, values.formula(formulas_)});
    if (!feasibility_.impossible(with)) {
      add_splits(plan, name, told, with, values.truths, found);
    }
  }
  return splits_[key] = std::move(found);
}

void ObjectClauses::add_splits(const ObjectPlan& plan, size_t name, const Told& told,
                               FormulaId goal, std::vector<bool>& truths,
                               std::vector<Split>& found) {
  questions_.count_step();
  if (found.size() > questions_.options().max_alternatives) {
    questions_.fail(
        fmt::format("a property has more than {} kinds of values; raise "
                    "max_alternatives, or use fewer if, anyOf and dependent schemas",
                    questions_.options().max_alternatives));
  }
  if (truths.size() < told.formulas.size()) {
    const FormulaId formula = told.formulas[truths.size()];
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
                                               const Told& told, FormulaId goal,
                                               const std::vector<bool>& truths) {
  const auto holds = [&](FormulaId meaning) {
    if (meaning <= FormulaStore::kTrue) {
      return meaning == FormulaStore::kTrue;
    }
    const auto place = told.places.find(meaning);
    return place != told.places.end() ? truths[place->second]
                                      : !truths[told.places.at(formulas_.negate(meaning))];
  };
  Split split{goal, {}};
  for (const uint32_t clause : plan.clauses_of[name]) {
    uint64_t dead = 0;
    for (size_t part = 0; part < plan.clauses[clause].size(); ++part) {
      for (const ClauseLiteral& literal : plan.clauses[clause][part]) {
        dead |= literal.place == name && !holds(literal.meaning) ? bit(part) : 0;
      }
    }
    if (dead != 0) {
      split.dead.emplace_back(clause, dead);
    }
  }
  return split;
}

}  // namespace specdec
