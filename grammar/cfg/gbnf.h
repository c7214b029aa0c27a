#pragma once
#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/cfg/rule_parts.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Reads a grammar in GBNF, the notation of llama.cpp; texts begin with the rule `root`. All its
/// files are taken as they are, and left recursion too. Line breaks are white space: a rule ends
/// where the next name with '::=' stands. Tokens are written as `<think>` or `<[1234]>`; `!<think>`
/// is refused. Throws GrammarError with line and column. Borrows `regexes`.
std::unique_ptr<Automaton> make_gbnf_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where, const RuleParts& parts = {});

}  // namespace specdec
