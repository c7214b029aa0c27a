#pragma once
#include "grammar/regex/regex_syntax.h"

namespace specdec {

/// Lets lazy quantifiers count as assertions: what they match depends on what follows.
void mark_lazy(RegexSyntax& syntax);

/// Refuses what is too large to be compared with what it is in other texts: an expression with
/// assertions that is long with its counts written out.
void check_size(const RegexSyntax& syntax);

/// The first assertion about what stands before a place, or the last one about what comes after;
/// nullptr when there is none.
const RegexSyntax::Node* find_assertion(const RegexSyntax& syntax, bool behind);

/// ((?!X)C)* with a class C.
bool is_tempered(const RegexSyntax& syntax, const RegexSyntax::Node& node);

/// Fails at a group with assertions in it that is repeated without end.
[[noreturn]] void refuse_repeated(const RegexSyntax& syntax, const RegexSyntax::Node& node,
                                  bool is_terminal);

}  // namespace specdec
