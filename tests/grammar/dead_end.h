#pragma once
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/compiled_grammar.h"

namespace specdec {

/// A text that begins a text of the grammar but is none, and cannot become one; found among the
/// first so many states.
inline std::optional<std::string> find_dead_end(const CompiledGrammar& grammar, size_t most) {
  std::vector<std::pair<StateId, std::string>> states = {{grammar.start(), ""}};
  std::map<StateId, size_t> known = {{grammar.start(), 0}};
  std::vector<std::vector<size_t>> before(1);
  std::vector<size_t> ending;
  for (size_t at = 0; at < states.size(); ++at) {  // grows meanwhile
    if (at >= most || grammar.is_complete(states[at].first)) {
      ending.push_back(at);
    }
    for (const char byte : std::string(at < most ? R"({}[],:"-.0123456789abcdefpqxynultrs)" : "")) {
      const StateId next = grammar.next(states[at].first, std::string_view(&byte, 1));
      if (next == Automaton::kDead) {
        continue;
      }
      const auto [place, fresh] = known.try_emplace(next, states.size());
      if (fresh) {
        states.emplace_back(next, states[at].second + byte);
        before.emplace_back();
      }
      before[place->second].push_back(at);
    }
  }
  std::vector<bool> ends(states.size());
  while (!ending.empty()) {
    const size_t at = ending.back();
    ending.pop_back();
    if (!ends[at]) {
      ends[at] = true;
      ending.insert(ending.end(), before[at].begin(), before[at].end());
    }
  }
  const auto dead = std::ranges::find(ends, false);
  return dead == ends.end() ? std::nullopt : std::optional(states[dead - ends.begin()].second);
}

}  // namespace specdec
