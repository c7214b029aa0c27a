#pragma once
#include "grammar/numbers/number_automaton.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// The languages of strings and numbers that the grammars of a vocabulary met, with their automata:
/// each built once. Not safe for use by several threads at once.
struct SharedLanguages {
  RegexStore regexes;
  NumberAutomata numbers = {};

  uint64_t bytes() const { return regexes.bytes() + numbers.bytes(); }
};

}  // namespace specdec
