#pragma once
#include "grammar/regex/code_points.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

/// The characters of JSON strings, but for those that JSON escapes, whose UTF-8 is no sequence of
/// whole tokens: a model can write them as escapes only. None where the tree has no tokens.
CodePoints find_unspelled(const TokenTrie& trie);

}  // namespace specdec
