#pragma once
#include <memory>

#include "grammar/cfg/context_free.h"
#include "grammar/cfg/grammar_text.h"
#include "grammar/cfg/rule_set.h"
#include "grammar/grammar_limits.h"

namespace specdec {

/// Brings a grammar into plain productions. What is regular becomes a terminal, as large as it can
/// be; repetitions become left-recursive nonterminals or, where they are counted, copies. Throws
/// GrammarError naming where when that is too large, and when the grammar has no text.
std::unique_ptr<ContextFreeGrammar> make_context_free(RegexStore& regexes, const RuleSet& rules,
                                                      RuleId start, const GrammarText& text,
                                                      const GrammarLimits& limits);

}  // namespace specdec
