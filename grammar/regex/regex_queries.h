#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regex/regex_automaton.h"
#include "grammar/tables/flat_map.h"

namespace specdec {

/// Questions about whole languages, answered by walks through their automata.
class RegexQueries {
 public:
  RegexQueries(const RegexNodes& nodes, RegexAutomaton& automaton)
      : nodes_(nodes), automaton_(automaton) {}

  bool is_finite(RegexId regex);
  uint64_t count(RegexId regex, uint64_t cap);
  std::vector<std::u32string> list(RegexId regex, uint64_t max);
  std::optional<std::u32string> shortest(RegexId regex);
  uint64_t bytes() const { return finite_.bytes(); }

 private:
  using Layers = std::vector<std::vector<RegexId>>;

  bool has_cycle(RegexId start);
  std::vector<RegexId> successors(const std::vector<RegexId>& states);
  void list_layer(const Layers& layers, uint64_t max, std::vector<std::u32string>& out);

  const RegexNodes& nodes_;
  RegexAutomaton& automaton_;
  FlatMap finite_;  ///< 1 where an intersection or complement is
};

}  // namespace specdec
