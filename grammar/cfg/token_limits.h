#pragma once
#include <cstddef>

#include "grammar/cfg/grammar_text.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Fails at `position` when a terminal cannot be ended after any token: when some text of it has a
/// beginning, other than the empty one, that is none of its texts.
void check_token_limit(RegexStore& regexes, RegexId regex, const GrammarText& text,
                       size_t position);

}  // namespace specdec
