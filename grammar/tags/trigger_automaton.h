#pragma once
#include <memory>
#include <string>
#include <vector>

#include "grammar/automaton.h"

namespace specdec {

/// A rule by which after the tag `begin` a text of the grammar must come, then the tag `end`.
struct TriggerRule {
  std::string begin;                   ///< such as "<tool_call>"; not empty
  std::unique_ptr<Automaton> grammar;  ///< owned by the automaton that is made
  std::string end;                     ///< may be empty
};

/// Free text (UTF-8) with parts in it that follow grammars. A tag counts at the first place where
/// it is whole; of several that end at one place the longest does. The end tag counts at the first
/// place where the grammar's text is complete; with no end tag the grammar goes on as long as it
/// can. Texts are complete in free text, also behind a part of a tag, and behind a grammar's
/// complete text that needs no end tag. Throws GrammarError when a tag is empty or not UTF-8, when
/// it can never be reached because another is in it, and when a grammar has no text.
std::unique_ptr<Automaton> make_trigger_automaton(std::vector<TriggerRule> rules);

}  // namespace specdec
