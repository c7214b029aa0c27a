#pragma once
#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Reads a grammar in GBNF, the notation of llama.cpp; texts begin with the rule `start`. All its
/// files are taken as they are, and left recursion too. Line breaks are white space: a rule ends
/// where the next name with '::=' stands. References to tokens (`<think>`) are refused: this
/// grammar is about text. Throws GrammarError with line and column. Borrows `regexes`.
std::unique_ptr<Automaton> make_gbnf_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where,
                                               const GrammarLimits& limits = {},
                                               std::string_view start = "root");

}  // namespace specdec
