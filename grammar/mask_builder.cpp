#include "grammar/mask_builder.h"

#include <algorithm>
#include <string>

namespace specdec {
namespace {

bool bit(const MaskWords& words, Token token) {
  return (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

}  // namespace

MaskBuilder::MaskBuilder(GrammarVocabulary& vocabulary, Automaton& automaton)
    : vocabulary_(vocabulary), automaton_(automaton) {}

TokenMask::Content MaskBuilder::build(StateId state) {
  content_ = {};
  overrides_.clear();
  doubtful_.clear();
  visit(0, state);
  settle_overrides();
  if (automaton_.is_complete(state)) {
    add(vocabulary_.end_tokens());
  }
  std::vector<Token>& added = content_.added;
  std::sort(added.begin(), added.end());
  added.erase(std::unique(added.begin(), added.end()), added.end());
  if (content_.base != nullptr) {
    std::erase_if(added, [&](Token token) { return bit(*content_.base, token); });
  }
  return std::move(content_);
}

void MaskBuilder::add(std::span<const Token> tokens) {
  content_.added.insert(content_.added.end(), tokens.begin(), tokens.end());
}

void MaskBuilder::add_words(std::shared_ptr<const MaskWords> words) {
  if (content_.base == nullptr || content_.base == words) {
    content_.base = std::move(words);
    return;
  }
  auto both = std::make_shared<MaskWords>(*content_.base);
  for (size_t i = 0; i < both->size(); ++i) {
    (*both)[i] |= (*words)[i];
  }
  content_.base = std::move(both);
}

void MaskBuilder::visit_child(Node child, StateId state) {
  const StateId next = automaton_.next(state, vocabulary_.trie().byte(child));
  if (next != Automaton::kDead) {
    add(vocabulary_.trie().tokens(child));
    if (vocabulary_.trie().end(child) > child + 1) {
      visit(child, next);
    }
  }
}

void MaskBuilder::visit(Node node, StateId state) {
  StringPlace place;
  if (automaton_.string_place(state, place)) {
    visit_string(node, state, place);
    return;
  }
  const TokenTrie& trie = vocabulary_.trie();
  const Automaton::Bytes candidates = automaton_.candidates(state);
  if (node == 0) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const Node child =
          candidates[byte] ? trie.child(0, static_cast<uint8_t>(byte)) : TokenTrie::kNone;
      if (child != TokenTrie::kNone) {
        visit_child(child, state);
      }
    }
    return;
  }
  for (Node child = node + 1; child < trie.end(node); child = trie.end(child)) {
    if (candidates[trie.byte(child)]) {
      visit_child(child, state);
    }
  }
}

void MaskBuilder::visit_string(Node node, StateId state, const StringPlace& place) {
  for (const StringPlace::Part& part : place.parts) {
    add_part(node, state, place, part);
  }
  const bool any_name =
      std::any_of(place.parts.begin(), place.parts.end(), [](const StringPlace::Part& part) {
        return part.is_name && part.language == RegexStore::kAll;
      });
  if (!place.words.empty()) {
    const Node slash = vocabulary_.trie().child(node, '\\');
    if (slash != TokenTrie::kNone) {
      visit_child(slash, state);
    }
  }
  for (const std::string& word : place.words) {
    add_word(node, state, word, !any_name);
  }
}

void MaskBuilder::add_part(Node node, StateId state, const StringPlace& place,
                           const StringPlace::Part& part) {
  StringMasks& strings = vocabulary_.strings();
  const StringMasks::Walk& walk = strings.walk(node, part.language, place.escapes);
  const bool may_close = part.closed != Automaton::kDead;
  // What closes a name is looked at one by one where its text decides.
  const bool one_by_one = part.is_name && part.text_matters;
  if (walk.bits != nullptr) {
    add_words(strings.bits(walk, place.escapes, may_close, {part.min, part.max}));
  }
  for (const StringMasks::Inside& inside : walk.inside) {
    if (inside.length <= part.max) {
      content_.added.push_back(inside.token);
    }
  }
  for (const uint32_t remainder : may_close ? remainders(part.closed) : std::vector<uint32_t>()) {
    for (const StringMasks::Exit& exit :
         strings.exits(walk, place.escapes, remainder, one_by_one)) {
      if (exit.length >= part.min && exit.length <= part.max) {
        add_exit(node, state, part, exit);
      }
    }
  }
}

void MaskBuilder::add_exit(Node node, StateId state, const StringPlace::Part& part,
                           const StringMasks::Exit& exit) {
  const bool doubtful = (part.is_name && exit.escaped) ||
                        (part.text_matters && (exit.remainder != 0 || part.is_name));
  if (!doubtful || really_allowed(node, state, exit.token)) {
    content_.added.push_back(exit.token);
  } else {
    doubtful_.push_back(exit.token);
  }
}

/// The tokens on the way to a name; what follows its quote is decided by the name itself.
void MaskBuilder::add_word(Node node, StateId state, const std::string& word, bool alone) {
  const TokenTrie& trie = vocabulary_.trie();
  Node at = node;
  for (size_t i = 0; i < word.size(); ++i) {
    at = trie.child(at, static_cast<uint8_t>(word[i]));
    if (at == TokenTrie::kNone) {
      return;
    }
    if (alone) {
      const StateId here = walk(state, std::string_view(word).substr(0, i + 1));
      if (here == Automaton::kDead) {
        return;
      }
      add(trie.tokens(at));
      const Node slash = trie.child(at, '\\');
      if (slash != TokenTrie::kNone && i + 1 < word.size()) {
        visit_child(slash, here);
      }
    }
  }
  const Node quote = trie.child(at, '"');
  if (quote != TokenTrie::kNone) {
    overrides_.emplace_back(quote, walk(state, word + "\""));
  }
}

void MaskBuilder::settle_overrides() {
  std::sort(overrides_.begin(), overrides_.end());
  overrides_.erase(std::unique(overrides_.begin(), overrides_.end()), overrides_.end());
  for (const auto& [node, state] : overrides_) {
    const auto below = vocabulary_.trie().tokens_below(node);
    for (const Token token : below) {
      std::erase(content_.added, token);
      if (content_.base != nullptr && bit(*content_.base, token)) {
        content_.removed.push_back(token);
      }
    }
    if (state != Automaton::kDead) {
      add(vocabulary_.trie().tokens(node));
      visit(node, state);
    }
  }
  std::vector<Token>& removed = content_.removed;
  for (const Token token : doubtful_) {
    if (content_.base != nullptr && bit(*content_.base, token)) {
      removed.push_back(token);
    }
  }
  std::sort(removed.begin(), removed.end());
  removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
  std::erase_if(removed, [&](Token token) {
    return std::find(content_.added.begin(), content_.added.end(), token) != content_.added.end();
  });
}

StateId MaskBuilder::walk(StateId state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != Automaton::kDead; ++i) {
    state = automaton_.next(state, static_cast<uint8_t>(bytes[i]));
  }
  return state;
}

bool MaskBuilder::really_allowed(Node node, StateId state, Token token) {
  return walk(state, vocabulary_.bytes(token).substr(vocabulary_.trie().depth(node))) !=
         Automaton::kDead;
}

void MaskBuilder::collect_remainders(Node node, StateId state, std::vector<uint32_t>& found) {
  const TokenTrie& trie = vocabulary_.strings().remainders();
  const Automaton::Bytes candidates = automaton_.candidates(state);
  for (Node child = node + 1; child < trie.end(node); child = trie.end(child)) {
    if (!candidates[trie.byte(child)]) {
      continue;
    }
    const StateId next = automaton_.next(state, trie.byte(child));
    if (next != Automaton::kDead) {
      for (const Token id : trie.tokens(child)) {
        found.push_back(static_cast<uint32_t>(id));
      }
      collect_remainders(child, next, found);
    }
  }
}

const std::vector<uint32_t>& MaskBuilder::remainders(StateId closed) {
  const auto found = remainders_.find(closed);
  if (found != remainders_.end()) {
    return found->second;
  }
  std::vector<uint32_t> alive = {0};
  collect_remainders(0, closed, alive);
  std::sort(alive.begin(), alive.end());
  return remainders_[closed] = std::move(alive);
}

}  // namespace specdec
