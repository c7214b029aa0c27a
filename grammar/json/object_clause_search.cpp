// Whether an end exists with which all clauses of an object hold.
#include <algorithm>
#include <bit>
#include <optional>

#include "grammar/json/object_clauses.h"

namespace specdec {

/// Chooses, for one group of clauses after another, which names come and how their values are. Only
/// names that are required, or that a clause needs, are looked at: all others stay away.
class ObjectClauses::Search {
 public:
  Search(ObjectClauses& clauses, ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
         const std::vector<bool>& can_come)
      : all_(clauses), id_(id), plan_(plan), can_come_(can_come), open_(state.clauses) {
    for (size_t i = 0; i < plan.names.size(); ++i) {
      present_.push_back(state.has_seen(i));
    }
  }

  /// True when the group's clauses can hold with at most so many names that are not required.
  bool run(const ClauseGroup& group, uint64_t most) {
    group_ = &group;
    next_ = 0;
    left_ = most;
    waiting_.clear();
    for (const uint32_t name : group.names) {
      if (plan_.names[name].required && !present_[name]) {
        waiting_.push_back(name);
      }
    }
    for (const uint32_t name : waiting_) {
      present_[name] = true;
    }
    const size_t required = waiting_.size();
    const bool found = decide(0);
    for (size_t i = 0; i < required; ++i) {
      present_[waiting_[i]] = false;
    }
    return found;
  }

 private:
  /// Chooses the values of the names that wait from this one on.
  bool decide(size_t at) {
    all_.questions_.count_step();
    if (at == waiting_.size()) {
      return meet();
    }
    for (const Split& split : all_.splits(id_, plan_, waiting_[at])) {
      const std::vector<std::pair<uint32_t, uint64_t>> before = kill(split);
      const bool alive =
          std::ranges::all_of(before, [&](const auto& clause) { return open_[clause.first] != 0; });
      const bool found = alive && all_.feasibility_.possible(split.goal) && decide(at + 1);
      for (const auto& [clause, parts] : before) {
        open_[clause] = parts;
      }
      if (found) {
        return true;
      }
    }
    return false;
  }

  std::vector<std::pair<uint32_t, uint64_t>> kill(const Split& split) {
    std::vector<std::pair<uint32_t, uint64_t>> before;
    for (const auto& [clause, dead] : split.dead) {
      if (open_[clause] != ObjectState::kSettled) {
        before.emplace_back(clause, open_[clause]);
        open_[clause] &= ~dead;
      }
    }
    return before;
  }

  /// All values are chosen: lets more names come where a clause does not hold without.
  bool meet() {
    const std::optional<uint32_t> clause = find_unmet();
    if (!clause) {
      return true;
    }
    const uint64_t before = open_[*clause];
    bool found = false;
    for (uint64_t left = before; left != 0 && !found; left &= left - 1) {
      open_[*clause] = left & ~(left - 1);  // this part holds, from now on
      found = add(plan_.clauses[*clause][static_cast<size_t>(std::countr_zero(left))]);
    }
    open_[*clause] = before;
    return found;
  }

  /// The one with the fewest parts that may still hold; of many the next one that has few.
  std::optional<uint32_t> find_unmet() {
    constexpr int kFew = 2;
    const std::vector<uint32_t>& clauses = group_->clauses;
    std::optional<uint32_t> best;
    int fewest = 0;
    for (size_t i = 0; i < clauses.size() && (!best || fewest > kFew); ++i) {
      const size_t at = (next_ + i) % clauses.size();
      const bool met = is_met(clauses[at]);
      const int parts = met ? 0 : std::popcount(open_[clauses[at]]);
      if (!met && (!best || parts < fewest)) {
        best = clauses[at];
        fewest = parts;
        next_ = at;
      }
    }
    return best;
  }

  /// True when it holds without more names.
  bool is_met(uint32_t clause) const {
    const ObjectClause& parts = plan_.clauses[clause];
    bool met = open_[clause] == ObjectState::kSettled;
    for (size_t part = 0; part < parts.size() && !met; ++part) {
      met = is_open(clause, part) &&
            std::ranges::all_of(parts[part], [&](const ClauseLiteral& literal) {
              return !literal.present || present_[literal.place];
            });
    }
    return met;
  }

  bool is_open(uint32_t clause, size_t part) const { return (open_[clause] >> part & 1) != 0; }

  /// Goes on with the names that the part needs.
  bool add(const ClausePart& part) {
    const size_t before = waiting_.size();
    bool possible = true;
    for (const ClauseLiteral& literal : part) {
      if (literal.present && !present_[literal.place]) {
        possible &= can_come_[literal.place];
        present_[literal.place] = true;
        waiting_.push_back(static_cast<uint32_t>(literal.place));
      }
    }
    const uint64_t more = waiting_.size() - before;
    const uint64_t left = left_;
    left_ -= std::min(left, more);
    const bool found = possible && more <= left && decide(before);
    left_ = left;
    for (size_t i = before; i < before + more; ++i) {
      present_[waiting_[i]] = false;
    }
    waiting_.resize(before);
    return found;
  }

  ObjectClauses& all_;
  ObjectPlanId id_;
  const ObjectPlan& plan_;
  const std::vector<bool>& can_come_;
  const ClauseGroup* group_ = nullptr;
  size_t next_ = 0;                ///< of the group's clauses: where to look on
  uint64_t left_ = 0;              ///< names that may still be added
  std::vector<uint64_t> open_;     ///< parts, by clause
  std::vector<bool> present_;      ///< names that came, or will
  std::vector<uint32_t> waiting_;  ///< names that will come
};

bool ObjectClauses::can_hold_after(ObjectPlanId id, const ObjectPlan& plan,
                                   const ObjectState& state, size_t name) {
  const uint32_t group = plan.clause_group_of[name];
  if (group == plan.clause_groups.size()) {
    return true;
  }
  const std::vector<bool> can_come(plan.names.size(), true);
  return Search(*this, id, plan, state, can_come).run(plan.clause_groups[group], kUnbounded);
}

bool ObjectClauses::can_hold(ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
                             const std::vector<bool>& can_come) {
  Search search(*this, id, plan, state, can_come);
  if (plan.max == kUnbounded) {
    return std::ranges::all_of(plan.clause_groups, [&](const ClauseGroup& group) {
      return search.run(group, kUnbounded);
    });
  }
  uint64_t used = state.count;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    used += plan.names[i].required && !state.has_seen(i) ? 1 : 0;
  }
  for (const ClauseGroup& group : plan.clause_groups) {
    uint64_t more = 0;
    while (used + more <= plan.max && !search.run(group, more)) {
      ++more;
    }
    used += more;
  }
  return used <= plan.max;
}

}  // namespace specdec
