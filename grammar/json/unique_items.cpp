#include "grammar/json/unique_items.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxItems = 1'000;          ///< that are looked ahead at, of different kinds
constexpr uint64_t kMaxListedValues = 20'000;  ///< values of one kind
constexpr size_t kMaxCounted = 6;              ///< `contains` at once

uint64_t saturated_sum(uint64_t a, uint64_t b) { return a > kUnbounded - b ? kUnbounded : a + b; }

/// The largest flow through a network from its first node to its second.
class MaxFlow {
 public:
  explicit MaxFlow(size_t nodes) : edges_of_(nodes) {}

  size_t add_node() {
    edges_of_.emplace_back();
    return edges_of_.size() - 1;
  }
  void add(size_t from, size_t to, uint64_t capacity) {
    edges_of_[from].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[to].push_back(edges_.size());
    edges_.push_back({from, 0});
  }
  uint64_t run() {
    uint64_t total = 0;
    while (true) {
      visited_.assign(edges_of_.size(), false);
      const uint64_t more = push(0, std::numeric_limits<uint64_t>::max());
      if (more == 0) {
        return total;
      }
      total += more;
    }
  }

 private:
  struct Edge {
    size_t to;
    uint64_t capacity;
  };

  uint64_t push(size_t node, uint64_t amount) {
    if (node == 1) {
      return amount;
    }
    visited_[node] = true;
    for (const size_t edge : edges_of_[node]) {
      if (edges_[edge].capacity == 0 || visited_[edges_[edge].to]) {
        continue;
      }
      const uint64_t sent = push(edges_[edge].to, std::min(amount, edges_[edge].capacity));
      if (sent > 0) {
        edges_[edge].capacity -= sent;
        edges_[edge ^ 1].capacity += sent;
        return sent;
      }
    }
    return 0;
  }

  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<bool> visited_;
};

}  // namespace

UniqueItems::Answer UniqueItems::find(const ArrayPlan& plan, const ArrayState& state,
                                      uint64_t least, int depth) {
  Answer answer;
  Task task{plan, state, depth};
  uint64_t lower = std::max(least, plan.min > state.count ? plan.min - state.count : 0);
  uint64_t missing_in_all = 0;
  for (size_t i = 0; i < plan.contains.size(); ++i) {
    const ArrayPlan::Contains& contains = plan.contains[i];
    const uint64_t missing =
        contains.min > state.contained[i] ? contains.min - state.contained[i] : 0;
    lower = std::max(lower, missing);
    missing_in_all = saturated_sum(missing_in_all, missing);
    if (missing > 0 || contains.max != kUnbounded) {
      task.contains.push_back(i);
    }
  }
  add_contains(task);
  // More would not help: items of the rest that no `contains` needs can be left out.
  uint64_t upper = lower;
  if (missing_in_all > 0) {
    const uint64_t before_rest =
        std::max(plan.prefix.size() - std::min(plan.prefix.size(), state.count), task.uncounted);
    upper = std::max(lower, saturated_sum(before_rest, missing_in_all));
  }
  upper = std::min(upper, plan.max - std::min(plan.max, state.count));
  for (task.items = lower; task.items <= upper && !answer.possible; ++task.items) {
    answer.possible = fits(task, answer);
  }
  std::ranges::sort(answer.watched);
  answer.watched.erase(std::unique(answer.watched.begin(), answer.watched.end()),
                       answer.watched.end());
  return answer;
}

bool UniqueItems::is_possible(const ArrayPlan& plan, const ArrayState& state) {
  for (const int depth : {0, 1}) {
    const Answer answer = find(plan, state, 0, depth);
    if (answer.possible || answer.complete) {
      return answer.possible;
    }
  }
  return find(plan, state, 0).possible;
}

/// Adds the `contains`, all of which count from the same item on.
void UniqueItems::add_contains(Task& task) {
  if (task.contains.size() > kMaxCounted) {
    questions_.fail(fmt::format("`uniqueItems` with more than {} `contains` at once", kMaxCounted));
  }
  const auto from = [&](size_t i) { return task.plan.contains[i].from; };
  uint64_t first = 0;
  for (const size_t i : task.contains) {
    first = std::max(first, from(i));
  }
  if (first <= task.state.count) {
    return;
  }
  const bool alike = std::ranges::all_of(task.contains, [&](size_t i) { return from(i) == first; });
  if (!alike || task.plan.prefix.size() > first) {
    questions_.fail(
        "`uniqueItems` together with a `not` over the `items` after others, and with `contains` or "
        "further `prefixItems`; leave out one of them");
  }
  task.uncounted = first - task.state.count;
}

bool UniqueItems::fits(Task task, Answer& answer) {
  questions_.count_step();
  task.counts.assign(size_t{1} << task.contains.size(), 0);
  task.uncounted = std::min(task.uncounted, task.items);
  if (task.items == 0) {
    return may_be_enough(task, 0, 0, contained(task, 0));
  }
  add_slots(task);
  if ((task.slots.size() > 1 || !task.contains.empty()) &&
      task.items > kMaxItems + task.plan.prefix.size()) {
    questions_.fail(fmt::format(
        "an array with `uniqueItems` needs {} more items of several kinds; at most {} can be told",
        task.items, kMaxItems));
  }
  for (Slot& slot : task.slots) {
    if (!slot.counted) {
      slot.classes.push_back(values(task, slot.goal, answer));
    }
    for (size_t which = 0; which < task.counts.size() && slot.counted; ++which) {
      slot.classes.push_back(values(task, class_goal(task, slot.goal, which), answer));
    }
  }
  if (task.slots.size() == 1 && task.contains.empty()) {
    const Slot::Values& only = task.slots.front().classes.front();
    return only.plenty || only.ids.size() >= task.items;
  }
  find_most(task);
  return choose_counts(task, task.counts.size(), task.items - task.uncounted);
}

void UniqueItems::add_slots(Task& task) {
  uint64_t left = task.items;
  for (uint64_t i = task.state.count; i < task.plan.prefix.size() && left > 0; ++i, --left) {
    task.slots.push_back({task.plan.prefix[i], 1, task.items - left >= task.uncounted});
  }
  const uint64_t come = task.items - left;
  if (const uint64_t more = task.uncounted - std::min(task.uncounted, come); more > 0) {
    task.slots.push_back({task.plan.rest, more, false});
    left -= more;
  }
  if (left > 0) {
    task.slots.push_back({task.plan.rest, left});
  }
}

/// What an item is that counts towards just those `contains` whose bits are set.
FormulaId UniqueItems::class_goal(const Task& task, FormulaId goal, size_t which) {
  std::vector<FormulaId> parts = {goal};
  for (size_t i = 0; i < task.contains.size(); ++i) {
    const FormulaId formula = task.plan.contains[task.contains[i]].formula;
    parts.push_back((which >> i & 1) != 0 ? formula : formulas_.negate(formula));
  }
  return formulas_.all_of(parts);
}

UniqueItems::Slot::Values UniqueItems::values(const Task& task, FormulaId goal, Answer& answer) {
  const NumberSets::Id seen = task.state.seen;
  const uint64_t enough = task.items + sets_.size(seen) + 1;
  if (feasibility_.has_many(goal, enough)) {
    return {true};
  }
  if (enough > kMaxListedValues) {
    questions_.fail(fmt::format(
        "an array with `uniqueItems` may need {} different values, more than the {} that can be "
        "told apart",
        enough, kMaxListedValues));
  }
  const bool any_depth = task.depth == kAnyDepth;
  const ValueList shallow =
      any_depth ? ValueList() : feasibility_.shallow_values(goal, enough, task.depth);
  const ValueList& list = any_depth ? feasibility_.values(goal, enough) : shallow;
  if (list.entries.size() >= enough) {
    return {true};
  }
  answer.complete &= list.all;
  Slot::Values values;
  for (const ValueEntry& entry : list.entries) {
    if (!sets_.contains(seen, entry.id)) {
      values.ids.push_back(entry.id);
    }
  }
  answer.watched.insert(answer.watched.end(), values.ids.begin(), values.ids.end());
  return values;
}

void UniqueItems::find_most(Task& task) {
  task.most.assign(task.counts.size(), 0);
  for (const Slot& slot : task.slots) {
    for (size_t which = 0; which < task.most.size() && slot.counted; ++which) {
      const Slot::Values& values = slot.classes[which];
      task.most[which] +=
          values.plenty ? slot.items : std::min<uint64_t>(slot.items, values.ids.size());
    }
  }
}

/// Items that count towards each `contains`: those that are there, and those of the classes from
/// `classes` on.
std::vector<uint64_t> UniqueItems::contained(const Task& task, size_t classes) {
  std::vector<uint64_t> counts;
  for (size_t i = 0; i < task.contains.size(); ++i) {
    uint64_t count = task.state.contained[task.contains[i]];
    for (size_t which = classes; which < task.counts.size(); ++which) {
      count += (which >> i & 1) != 0 ? task.counts[which] : 0;
    }
    counts.push_back(count);
  }
  return counts;
}

/// False when the classes below `classes` cannot give what is left, or what a `contains` misses.
bool UniqueItems::may_be_enough(const Task& task, size_t classes, uint64_t left,
                                const std::vector<uint64_t>& contained) {
  uint64_t all = 0;
  for (size_t which = 0; which < classes; ++which) {
    all += task.most[which];
  }
  bool enough = all >= left;
  for (size_t i = 0; i < task.contains.size() && enough; ++i) {
    const ArrayPlan::Contains& contains = task.plan.contains[task.contains[i]];
    uint64_t more = 0;
    for (size_t which = 0; which < classes; ++which) {
      more += (which >> i & 1) != 0 ? task.most[which] : 0;
    }
    enough = contained[i] <= contains.max && contained[i] + std::min(more, left) >= contains.min;
  }
  return enough;
}

/// Tries how many of the items that are left are of each class below `classes`. Those come first
/// that count towards most `contains`, with as many items as these miss. Without a prefix nothing
/// else matters of the classes that were chosen before: what failed then fails again.
bool UniqueItems::choose_counts(Task& task, size_t classes, uint64_t left) {
  questions_.count_step();
  std::vector<uint64_t> key = contained(task, classes);
  if (!may_be_enough(task, classes, left, key)) {
    return false;
  }
  if (classes == 0) {
    const bool alone = task.slots.size() == 1 && task.uncounted == 0;
    return left == 0 &&
           (alone || (task.uncounted > 0 ? matches_behind_uncounted(task) : matches(task)));
  }
  const size_t which = classes - 1;
  uint64_t missing = 0;
  for (size_t i = 0; i < task.contains.size(); ++i) {
    const ArrayPlan::Contains& contains = task.plan.contains[task.contains[i]];
    const uint64_t here = contains.min > key[i] ? contains.min - key[i] : 0;
    missing = (which >> i & 1) != 0 ? std::max(missing, here) : missing;
    key[i] = contains.max == kUnbounded ? std::min(key[i], contains.min) : key[i];
  }
  key.insert(key.end(), {classes, left});
  if (task.failed.contains(key)) {
    return false;
  }
  const uint64_t most = std::min(left, task.most[which]);
  const uint64_t first = std::min(missing, most);
  for (uint64_t tried = 0; tried <= most; ++tried) {
    const uint64_t count = tried <= first ? first - tried : tried;
    task.counts[which] = count;
    if (choose_counts(task, which, left - count)) {
      return true;
    }
  }
  if (task.slots.size() == 1 && task.uncounted == 0) {
    task.failed.insert(std::move(key));
  }
  return false;
}

/// Items get different values, each of its slot and so many of each class: a flow from the slots
/// through the values to the classes.
bool UniqueItems::matches(const Task& task) {
  MaxFlow flow(2);
  std::vector<size_t> classes;
  for (const uint64_t count : task.counts) {
    classes.push_back(flow.add_node());
    flow.add(classes.back(), 1, count);
  }
  std::unordered_map<ValueId, size_t> nodes;
  for (const Slot& slot : task.slots) {
    const size_t node = flow.add_node();
    flow.add(0, node, slot.items);
    for (size_t which = 0; which < classes.size(); ++which) {
      if (slot.classes[which].plenty) {
        flow.add(node, classes[which], slot.items);
      }
      for (const ValueId id : slot.classes[which].ids) {
        const auto [entry, fresh] = nodes.try_emplace(id, 0);
        if (fresh) {
          entry->second = flow.add_node();
          flow.add(entry->second, classes[which], 1);
        }
        flow.add(node, entry->second, 1);
      }
    }
  }
  return flow.run() == task.items;
}

/// Finds what matches() does when items come first whose classes make no difference: a flow from
/// these and, with so many items of each class, from the last slot to the values.
bool UniqueItems::matches_behind_uncounted(const Task& task) {
  MaxFlow flow(2);
  std::unordered_map<ValueId, size_t> nodes;
  const auto add = [&](const Slot::Values& values, uint64_t items) {
    const size_t node = flow.add_node();
    flow.add(0, node, items);
    if (values.plenty) {
      flow.add(node, 1, items);
    }
    for (const ValueId id : values.ids) {
      const auto [entry, fresh] = nodes.try_emplace(id, 0);
      if (fresh) {
        entry->second = flow.add_node();
        flow.add(entry->second, 1, 1);
      }
      flow.add(node, entry->second, 1);
    }
  };
  for (const Slot& slot : task.slots) {
    for (size_t which = 0; which < slot.classes.size(); ++which) {
      add(slot.classes[which], slot.counted ? task.counts[which] : slot.items);
    }
  }
  return flow.run() == task.items;
}

}  // namespace specdec
