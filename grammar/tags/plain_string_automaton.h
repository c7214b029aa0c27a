#pragma once
#include <memory>

#include "grammar/automaton.h"

namespace specdec {

/// The values of JSON strings as texts, without quotes and escapes. `strings`: an automaton of JSON
/// texts that are strings, not pretty-printed.
std::unique_ptr<Automaton> make_plain_string_automaton(std::unique_ptr<Automaton> strings);

}  // namespace specdec
