#pragma once
#include "grammar/cfg/context_free.h"
#include "grammar/cfg/grammar_text.h"

namespace specdec {

/// Fails where more may follow a token after which generation ends.
void check_end_tokens(const ContextFreeGrammar& grammar, const GrammarText& text);

}  // namespace specdec
