#pragma once
#include "grammar/numbers/number_automaton.h"
#include "grammar/regex/code_points.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// The languages of strings and numbers that the grammars of a vocabulary met, with their automata:
/// each built once. For any number of threads.
struct SharedLanguages {
  RegexStore regexes;
  NumberAutomata numbers = {};
  /// Characters that the vocabulary's tokens do not spell by their bytes. Borrowed; nullptr = none.
  const CodePoints* unspelled = nullptr;

  uint64_t bytes() const { return regexes.bytes() + numbers.bytes(); }
};

}  // namespace specdec
