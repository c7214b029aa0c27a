#include "grammar/masks/apart_tokens.h"

namespace specdec {
namespace {

/// Walks the tree; `is_apart`: one of the bytes was on the way.
bool find_apart(const TokenTrie& trie, const Automaton::Bytes& bytes, TokenTrie::Node node,
                bool is_apart, ApartTokens& found) {
  bool below = false;
  if (is_apart) {
    for (const Token token : trie.tokens(node)) {
      set_token(found.words, token);
      below = true;
    }
  }
  for (TokenTrie::Node child = node + 1; child < trie.end(node); child = trie.end(child)) {
    below |= find_apart(trie, bytes, child, is_apart || bytes[trie.byte(child)], found);
  }
  found.below[node] = below;
  return below;
}

}  // namespace

ApartTokens::ApartTokens(const TokenTrie& trie, const Automaton::Bytes& bytes)
    : words(static_cast<size_t>((trie.vocab_size() + 31) / 32)), below(trie.end(0)) {
  (void)find_apart(trie, bytes, 0, false, *this);
}

}  // namespace specdec
