#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regex/regex_automaton.h"
#include "grammar/tables/flat_map.h"

namespace specdec {

/// Questions about whole languages, answered by walks through their automata. For any number of
/// threads.
class RegexQueries {
 public:
  /// `mutex`: that of the nodes.
  RegexQueries(const RegexNodes& nodes, std::mutex& mutex, RegexAutomaton& automaton)
      : nodes_(nodes), mutex_(mutex), automaton_(automaton) {}

  bool are_apart(RegexId a, RegexId b, uint64_t& most);
  bool is_finite(RegexId regex);
  uint64_t count(RegexId regex, uint64_t cap);
  std::vector<std::u32string> list(RegexId regex, uint64_t max);
  std::optional<std::u32string> shortest(RegexId regex);
  uint64_t bytes() const;

 private:
  using Layers = std::vector<std::vector<RegexId>>;

  bool has_cycle(RegexId start);
  std::vector<RegexId> successors(const std::vector<RegexId>& states);
  void list_layer(const Layers& layers, uint64_t max, std::vector<std::u32string>& out);

  const RegexNodes& nodes_;
  std::mutex& mutex_;
  RegexAutomaton& automaton_;
  FlatMap finite_;  ///< 1 where an intersection or complement is; under the lock
};

}  // namespace specdec
