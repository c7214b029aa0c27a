#pragma once
#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Reads a grammar in the notation of Lark (EBNF; 1.1); texts begin with the rule `start`. What
/// concerns trees only (`->`, `?rule`, `!rule`, `_rule`, priorities) is read and has no effect.
///
/// The language is that of Lark's Earley parser with the lexer `dynamic_complete`: a terminal may
/// end wherever it matches, not only at its longest match, and a name may read as a keyword does.
/// What `%ignore` names may stand before, between and after the terminals of rules, any number of
/// times. Regular expressions are those of parse_regex (so '.' excludes all line ends), with the
/// flags i, s and u. Templates, %declare, %override, %extend and imports from elsewhere than
/// `common` are refused. Throws GrammarError with line and column. Borrows `regexes`.
std::unique_ptr<Automaton> make_lark_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where,
                                               const GrammarLimits& limits = {},
                                               std::string_view start = "start");

}  // namespace specdec
