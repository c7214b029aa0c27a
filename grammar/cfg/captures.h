#pragma once
#include <cstdint>
#include <vector>

#include "grammar/cfg/parse_chart.h"

namespace specdec {

/// What the marked rules of a grammar match of one of its texts, in the order in which they begin,
/// outer ones first: those that end in its first `given` boundaries. Of several readings it is the
/// one in which each part of a rule, from left to right, is as long as it can be. What is ignored
/// at the end of a rule is no part of its text. Throws GrammarError when the text is too long.
std::vector<Capture> find_captures(RegexStore& regexes, const ContextFreeGrammar& grammar,
                                   const ChartText& text, uint32_t given);

}  // namespace specdec
