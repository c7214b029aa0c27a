#pragma once
#include <cstddef>
#include <cstdint>

namespace specdec {

/// What a grammar may cost. A notation reads those that concern it.
struct GrammarLimits {
  /// States that a grammar may add to the automata of its vocabulary's regular expressions.
  uint64_t max_regex_states = 250'000;
  /// Bytes of the cached masks; others are made again.
  uint64_t max_mask_bytes = uint64_t{64} << 20;

  // JSON Schema:
  uint64_t max_alternatives = 10'000;  ///< alternatives of one value and type
  uint64_t max_steps = 3'000'000;  ///< steps of the schema's work on alternatives and feasibility
  uint64_t max_seconds = 30;  ///< duration of the same, for the schema, and for one call later on
  uint64_t max_states = 1'000'000;  ///< states of the automaton, for one text; see is_used_up

  // Rules (GBNF, Lark):
  size_t max_bytes = 4 << 20;          ///< bytes of the text
  int max_nesting = 200;               ///< depth of groups
  uint64_t max_unrolled = 10'000;      ///< copies made by repetitions of what is not regular
  uint64_t max_symbols = 1'000'000;    ///< symbols of all productions together
  uint64_t max_state_items = 200'000;  ///< open alternatives at one state
};

}  // namespace specdec
