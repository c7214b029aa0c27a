// Whether an end exists with which all clauses of an object hold.
#include <algorithm>
#include <bit>
#include <optional>

#include "grammar/json/object_clauses.h"

namespace specdec {

/// Chooses, for one group of clauses after another, which names come and how their values are. Only
/// names that are required, that a clause needs, or that are asked for are looked at: all others
/// stay away.
class ObjectClauses::Search {
 public:
  Search(ObjectClauses& clauses, ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
         const std::vector<bool>& can_come)
      : all_(clauses), id_(id), plan_(plan), can_come_(can_come), open_(state.clauses) {
    for (size_t i = 0; i < plan.names.size(); ++i) {
      present_.push_back(state.has_seen(i));
    }
  }

  /// True when the group's clauses can hold with so many names that are not required.
  bool run(const ClauseGroup& group, uint64_t least, uint64_t most) {
    group_ = &group;
    next_ = 0;
    next_name_ = 0;
    used_ = 0;
    least_ = least;
    most_ = most;
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
      return add_more();
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

  /// All clauses hold: lets names come that none of them needs, until there are enough.
  bool add_more() {
    const size_t first = next_name_;
    bool found = used_ >= least_;
    for (size_t i = first; i < group_->names.size() && !found && used_ < most_; ++i) {
      const uint32_t name = group_->names[i];
      if (can_come_[name] && !present_[name]) {
        next_name_ = i + 1;
        found = come({name});
      }
    }
    next_name_ = first;
    return found;
  }

  /// The unmet clause with the fewest parts that may still hold; of many the next one that has few.
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
    std::vector<uint32_t> names;
    for (const ClauseLiteral& literal : part) {
      if (literal.present && !present_[literal.place]) {
        if (!can_come_[literal.place]) {
          return false;
        }
        names.push_back(static_cast<uint32_t>(literal.place));
      }
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return used_ + names.size() <= most_ && come(names);
  }

  /// Goes on with these names.
  bool come(const std::vector<uint32_t>& names) {
    const size_t before = waiting_.size();
    for (const uint32_t name : names) {
      present_[name] = true;
      waiting_.push_back(name);
    }
    used_ += names.size();
    const bool found = decide(before);
    used_ -= names.size();
    for (const uint32_t name : names) {
      present_[name] = false;
    }
    waiting_.resize(before);
    return found;
  }

  ObjectClauses& all_;
  ObjectPlanId id_;
  const ObjectPlan& plan_;
  const std::vector<bool>& can_come_;
  const ClauseGroup* group_ = nullptr;
  size_t next_ = 0;       ///< of the group's clauses: where to look on
  size_t next_name_ = 0;  ///< of the group's: those before it need not be added
  uint64_t used_ = 0;     ///< names that were added
  uint64_t least_ = 0;
  uint64_t most_ = 0;
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
  return Search(*this, id, plan, state, can_come).run(plan.clause_groups[group], 0, kUnbounded);
}

bool ObjectClauses::can_hold(ObjectPlanId id, const ObjectPlan& plan, const ObjectState& state,
                             const std::vector<bool>& can_come, uint64_t others) {
  Search search(*this, id, plan, state, can_come);
  uint64_t required = 0;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    required += plan.names[i].required && !state.has_seen(i) ? 1 : 0;
  }
  const bool bounded = plan.max != kUnbounded;
  const uint64_t room = bounded ? plan.max - std::min(plan.max, state.count) : kUnbounded;
  uint64_t used = required;
  for (const ClauseGroup& group : plan.clause_groups) {
    uint64_t more = 0;
    while (bounded && used + more <= room && !search.run(group, 0, more)) {
      ++more;
    }
    used += more;
    if (used > room || (!bounded && !search.run(group, 0, kUnbounded))) {
      return false;
    }
  }
  const uint64_t wanted = plan.min - std::min(plan.min, state.count);
  return used <= room &&
         (used + others >= wanted || can_reach(search, plan, required, {wanted - others, room}));
}

/// Whether the groups' and the required names can be that many, when their clauses can hold.
bool ObjectClauses::can_reach(Search& search, const ObjectPlan& plan, uint64_t required,
                              std::pair<uint64_t, uint64_t> bounds) {
  const auto [least, most] = bounds;
  const bool bounded = most != kUnbounded;
  const uint64_t last = bounded ? std::min<uint64_t>(most, plan.names.size()) : least;
  if (least > plan.names.size()) {
    return false;
  }
  std::vector<bool> totals(last + 1);  // numbers of names; the last one stands for more, too
  totals[std::min(required, last)] = true;
  for (const ClauseGroup& group : plan.clause_groups) {
    if (!bounded && totals[last]) {
      break;
    }
    std::vector<bool> next(last + 1);
    for (uint64_t more = 0; more <= std::min<uint64_t>(last, group.names.size()); ++more) {
      if (search.run(group, more, !bounded && more == last ? kUnbounded : more)) {
        for (uint64_t total = 0; total <= (bounded ? last - more : last); ++total) {
          next[std::min(total + more, last)] = next[std::min(total + more, last)] || totals[total];
        }
      }
    }
    totals = std::move(next);
  }
  return std::find(totals.begin() + static_cast<int64_t>(least), totals.end(), true) !=
         totals.end();
}

}  // namespace specdec
