// Masks of places where another automaton says which of most tokens may come.
#include <memory>
#include <utility>

#include "grammar/masks/mask_builder.h"

namespace specdec {

/// Most tokens are those that may come at the other place; the others are walked.
void MaskBuilder::visit_alike(StateId state, const AlikePlace& place) {
  std::unique_ptr<MaskBuilder>& other = alike_[place.automaton];
  if (other == nullptr) {
    other = std::make_unique<MaskBuilder>(tokens_, strings_, *place.automaton);
  }
  const ApartTokens& apart =
      apart_.try_emplace(place.apart.to_string(), trie_, place.apart).first->second;
  const TokenMask::Content alike = other->build(place.state);
  MaskWords words = alike.base == nullptr ? MaskWords(apart.words.size()) : *alike.base;
  for (const Token token : alike.added) {
    set_token(words, token);
  }
  for (const Token token : alike.removed) {
    set_token(words, token, false);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] &= ~apart.words[i];
  }
  add_words(std::make_shared<const MaskWords>(std::move(words)));
  visit_apart(0, state, apart);
}

void MaskBuilder::visit_apart(Node node, StateId state, const ApartTokens& apart) {
  for (Node child = node + 1; child < trie_.end(node); child = trie_.end(child)) {
    const StateId next =
        apart.below[child] ? automaton_.next(state, trie_.byte(child)) : StateId{Automaton::kDead};
    if (next == Automaton::kDead) {
      continue;
    }
    for (const Token token : trie_.tokens(child)) {
      if (has_token(apart.words, token)) {
        content_.added.push_back(token);
      }
    }
    visit_apart(child, next, apart);
  }
}

}  // namespace specdec
