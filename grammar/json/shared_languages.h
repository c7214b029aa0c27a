#pragma once
#include "grammar/numbers/number_automaton.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// The languages of strings and numbers that the grammars of a vocabulary met, with their automata:
/// each built once. For any number of threads.
struct SharedLanguages {
  RegexStore regexes;
  NumberAutomata numbers = {};

  uint64_t bytes() const { return regexes.bytes() + numbers.bytes(); }
};

}  // namespace specdec
