#pragma once
#include <memory>

#include "grammar/automaton.h"
#include "grammar/tags/tag_program.h"

namespace specdec {

/// The texts of a program. The end of a tag counts at the first place where it may stand; before
/// free text a grammar goes on as long as it can; of texts that may end free text, see TagSearch.
std::unique_ptr<Automaton> make_tag_automaton(TagProgram program);

}  // namespace specdec
