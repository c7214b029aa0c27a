#pragma once
#include <vector>

#include "grammar/automaton.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// The tokens of a tree that have one of some bytes.
struct ApartTokens {
  ApartTokens(const TokenTrie& trie, const Automaton::Bytes& bytes);

  MaskWords words;
  std::vector<bool> below;  ///< by node: whether it is, or leads to, the end of such a token
};

}  // namespace specdec
