#pragma once
#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/cfg/rule_parts.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Reads a grammar in the notation of Lark (EBNF; 1.1); texts begin with the rule `start`. What
/// concerns trees only (`->`, `?rule`, `!rule`, `_rule`, priorities) is read and has no effect.
///
/// The language is that of Lark's Earley parser with the lexer `dynamic_complete`: a terminal may
/// end wherever it matches, not only at its longest match, and a name may read as a keyword does.
/// What `%ignore` names may stand before, between and after the terminals of rules, any number of
/// times. Regular expressions are Python's (parse_terminal), with the flags i, m, s, u and x: a
/// terminal is what matches as a whole, whichever alternative or length Lark would try first, but a
/// lazy quantifier ends at its first chance; anchors, word boundaries and look-around that depend
/// on text outside their terminal are refused. Expressions in terminals are groups of their own.
/// Also refused: %override, %extend, imports from elsewhere than `common`, and uses of terminals
/// that %declare names. Of llguidance's extensions there are the attributes lazy, suffix, stop,
/// max_tokens and capture, the header %llguidance, hyphens in names, substrings with %regex, JSON
/// Schemas with %json, and tokens (`<|call|>`, `<[17]>`). Throws GrammarError with line and column.
/// Borrows `regexes`.
std::unique_ptr<Automaton> make_lark_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where, const RuleParts& parts = {});

}  // namespace specdec
