#include "grammar/regex/regex_queries.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"

namespace specdec {
namespace {

using Transition = RegexStore::Transition;

constexpr size_t kMaxExact = 1'000;  ///< states of a search for the shortest text

uint64_t saturating_add(uint64_t a, uint64_t b, uint64_t cap) { return a > cap - b ? cap : a + b; }

uint64_t saturating_multiply(uint64_t a, uint64_t b, uint64_t cap) {
  return b != 0 && a > cap / b ? cap : std::min(a * b, cap);
}

}  // namespace

bool RegexQueries::are_apart(RegexId a, RegexId b, uint64_t& most) {
  if (a == RegexStore::kAll || b == RegexStore::kAll) {
    return !automaton_.is_live(a == RegexStore::kAll ? b : a);
  }
  std::vector<std::pair<RegexId, RegexId>> open = {{a, b}};
  std::unordered_set<uint64_t> met;
  while (!open.empty()) {
    const auto [first, second] = open.back();
    open.pop_back();
    if ((nodes_[first].nullable && nodes_[second].nullable) || most == 0) {
      return false;
    }
    const std::vector<Transition> others = automaton_.transitions(second);
    auto other = others.begin();
    for (const Transition& transition : automaton_.transitions(first)) {
      for (;; ++other) {
        most -= std::min<uint64_t>(most, 1);
        const uint64_t both = uint64_t{transition.target} << 32 | other->target;
        if (transition.target != RegexStore::kNothing && other->target != RegexStore::kNothing &&
            met.insert(both).second) {
          open.emplace_back(transition.target, other->target);
        }
        if (other->last >= transition.last) {
          break;
        }
      }
      other += other->last == transition.last ? 1 : 0;
    }
  }
  return true;
}

bool RegexQueries::is_finite(RegexId regex) {
  const RegexNodes::Node& node = nodes_[regex];
  if (regex == RegexStore::kNothing || node.longest != RegexNodes::kInfinite) {
    return true;
  }
  if (!node.extended) {
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    if (const uint32_t known = finite_.find(regex); known != FlatMap::kNone) {
      return known == 1;
    }
  }
  const bool finite = !has_cycle(regex);
  const std::lock_guard lock(mutex_);
  if (finite_.find(regex) == FlatMap::kNone) {
    finite_.add(regex, finite ? 1 : 0);
  }
  return finite;
}

uint64_t RegexQueries::bytes() const {
  const std::lock_guard lock(mutex_);
  return finite_.bytes();
}

/// True when the live states that can be reached go round in a circle; depth first.
bool RegexQueries::has_cycle(RegexId start) {
  struct Visit {
    RegexId state;
    std::vector<RegexId> targets;
  };
  std::unordered_map<RegexId, bool> on_path;
  std::vector<Visit> path;
  const auto enter = [&](RegexId state) {
    on_path[state] = true;
    path.push_back({state, successors({state})});
  };
  enter(start);
  while (!path.empty()) {
    if (path.back().targets.empty()) {
      on_path[path.back().state] = false;
      path.pop_back();
      continue;
    }
    const RegexId target = path.back().targets.back();
    path.back().targets.pop_back();
    const auto seen = on_path.find(target);
    if (seen == on_path.end()) {
      if (!nodes_[target].extended && nodes_[target].longest == RegexNodes::kInfinite) {
        return true;
      }
      enter(target);
    } else if (seen->second) {
      return true;
    }
  }
  return false;
}

/// The states that can follow, each once.
std::vector<RegexId> RegexQueries::successors(const std::vector<RegexId>& states) {
  std::vector<RegexId> targets;
  for (const RegexId state : states) {
    for (const Transition& transition : automaton_.transitions(state)) {
      if (transition.target != RegexStore::kNothing) {
        targets.push_back(transition.target);
      }
    }
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

/// Counts prefixes length by length: each can be completed, and those of one length differ, so
/// there are at least as many texts as prefixes of a length.
uint64_t RegexQueries::count(RegexId regex, uint64_t cap) {
  if (!is_finite(regex)) {
    return cap;
  }
  uint64_t texts = 0;
  std::unordered_map<RegexId, uint64_t> prefixes;
  if (automaton_.is_live(regex)) {
    prefixes[regex] = std::min<uint64_t>(1, cap);
  }
  while (!prefixes.empty()) {
    uint64_t total = 0;
    std::unordered_map<RegexId, uint64_t> longer;
    for (const auto& [state, number] : prefixes) {
      total = saturating_add(total, number, cap);
      texts = saturating_add(texts, nodes_[state].nullable ? number : 0, cap);
      uint64_t begin = 0;
      for (const auto& [last, target] : automaton_.transitions(state)) {
        if (target != RegexStore::kNothing) {
          uint64_t& sum = longer[target];
          sum = saturating_add(sum, saturating_multiply(number, last + 1 - begin, cap), cap);
        }
        begin = last + uint64_t{1};
      }
    }
    if (total >= cap || texts >= cap) {
      return cap;
    }
    prefixes = std::move(longer);
  }
  return texts;
}

std::vector<std::u32string> RegexQueries::list(RegexId regex, uint64_t max) {
  std::vector<std::u32string> texts;
  if (!automaton_.is_live(regex)) {
    return texts;
  }
  automaton_.check_length(regex);
  Layers layers = {{regex}};
  while (texts.size() < max && !layers.back().empty()) {
    list_layer(layers, max, texts);
    layers.push_back(successors(layers.back()));
  }
  return texts;
}

/// Appends the texts as long as the layers are deep: walks depth first through the states from
/// which the last layer's nullable ones are reached in time.
void RegexQueries::list_layer(const Layers& layers, uint64_t max,
                              std::vector<std::u32string>& out) {
  const size_t length = layers.size() - 1;
  std::vector<std::unordered_set<RegexId>> useful(layers.size());
  for (const RegexId state : layers.back()) {
    if (nodes_[state].nullable) {
      useful[length].insert(state);
    }
  }
  for (size_t i = length; i > 0 && !useful[i].empty(); --i) {
    for (const RegexId state : layers[i - 1]) {
      const auto transitions = automaton_.transitions(state);
      if (std::ranges::any_of(transitions,
                              [&](const Transition& t) { return useful[i].contains(t.target); })) {
        useful[i - 1].insert(state);
      }
    }
  }
  std::u32string text;
  std::vector<RegexId> path = {layers[0][0]};
  char32_t from = 0;  // the next code point to try after `text`
  while (out.size() < max && !useful[0].empty()) {
    bool deeper = false;
    if (text.size() == length) {
      out.push_back(text);
    } else {
      char32_t begin = 0;
      for (const auto& [last, target] : automaton_.transitions(path.back())) {
        if (last >= from && useful[path.size()].contains(target)) {
          text.push_back(std::max(begin, from));
          path.push_back(target);
          deeper = true;
          break;
        }
        begin = last + 1;
      }
    }
    from = 0;
    if (!deeper) {
      if (text.empty()) {
        return;
      }
      from = text.back() + 1;
      text.pop_back();
      path.pop_back();
    }
  }
}

/// A* search: the expressions' lower bounds lead straight to the end where they are exact. Those of
/// intersections may be far too low, so that after many states the nearest end will do.
std::optional<std::u32string> RegexQueries::shortest(RegexId regex) {
  struct Reached {
    uint64_t length = 0;
    RegexId source = 0;
    char32_t by = 0;
  };
  struct Entry {
    uint64_t bound = 0;
    uint64_t length = 0;
    RegexId state = 0;
    bool operator<(const Entry& other) const {
      return bound != other.bound ? bound > other.bound : length < other.length;
    }
  };
  if (!automaton_.is_live(regex)) {
    return std::nullopt;
  }
  automaton_.check_length(regex);
  std::unordered_map<RegexId, Reached> reached = {{regex, {}}};
  std::priority_queue<Entry> open;
  open.push({nodes_[regex].shortest, 0, regex});
  while (!nodes_[open.top().state].nullable) {
    const Entry entry = open.top();
    open.pop();
    if (reached[entry.state].length < entry.length) {
      continue;
    }
    const uint64_t length = entry.length + 1;
    char32_t begin = 0;
    for (const auto& [last, target] : automaton_.transitions(entry.state)) {
      const auto [known, is_new] = reached.try_emplace(target);
      if (target != RegexStore::kNothing && (is_new || length < known->second.length)) {
        known->second = {length, entry.state, begin};
        const uint64_t bound =
            reached.size() < kMaxExact ? length + nodes_[target].shortest : nodes_[target].shortest;
        open.push({bound, length, target});
      }
      begin = last + 1;
    }
  }
  std::u32string text;
  for (RegexId state = open.top().state; state != regex; state = reached[state].source) {
    text.push_back(reached[state].by);
  }
  std::reverse(text.begin(), text.end());
  return text;
}

}  // namespace specdec
