// Which states of RegexAutomaton still have texts.
#include <queue>

#include "core/error.h"
#include "grammar/regex/regex_automaton.h"

namespace specdec {

/// What is known without a search.
RegexAutomaton::Life RegexAutomaton::life(RegexId state) const {
  const RegexNodes::Node& node = nodes_[state];
  if (node.nullable) {
    return Life::kLive;
  }
  if (!node.extended) {
    return state == RegexStore::kNothing ? Life::kDead : Life::kLive;
  }
  const State* known = states_.find(state);
  return known == nullptr ? Life::kUnknown : known->life.load(std::memory_order_relaxed);
}

bool RegexAutomaton::is_live(RegexId state) {
  const Life known = life(state);
  return known == Life::kUnknown ? search_live(state) : known == Life::kLive;
}

/// Best first by the lower bound of what is still to read, until a state known to be live turns up.
/// All states from which it was reached are live then; when none turns up, all seen are dead.
/// Whatever other threads find out in the meantime is true here too.
bool RegexAutomaton::search_live(RegexId start) {
  check_length(start);
  using Entry = std::pair<uint64_t, size_t>;  // bound, then the latest first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  std::unordered_map<RegexId, std::vector<RegexId>> sources;  // of all states seen
  std::vector<RegexId> found;
  std::vector<RegexId> order = {start};
  sources[start];
  open.emplace(0, ~size_t{0});
  while (!open.empty() && found.empty()) {
    const RegexId state = order[~open.top().second];
    open.pop();
    const Table& reached = table(state);
    const size_t parts = partitions_.lasts(reached.partition).size();
    for (size_t i = 0; i < parts; ++i) {
      const RegexId target = reached.targets[i];
      const Life target_life = life(target);
      if (target_life == Life::kDead) {
        continue;
      }
      const auto [known, is_new] = sources.try_emplace(target);
      known->second.push_back(state);
      if (target_life == Life::kLive) {
        found.push_back(target);
      } else if (is_new) {
        open.emplace(nodes_[target].shortest, ~order.size());
        order.push_back(target);
      }
    }
  }
  const bool is_live = !found.empty();
  const auto mark = [&](RegexId state, Life life) {  // its table was built
    states_[state].life.store(life, std::memory_order_relaxed);
  };
  if (!is_live) {
    for (const RegexId state : order) {
      mark(state, Life::kDead);
    }
  }
  while (!found.empty()) {
    const std::vector<RegexId> reached_from = std::exchange(sources[found.back()], {});
    found.pop_back();
    for (const RegexId source : reached_from) {
      mark(source, Life::kLive);
      found.push_back(source);
    }
  }
  return is_live;
}

}  // namespace specdec
