#include "grammar/mask_builder.h"

#include <algorithm>
#include <optional>

namespace specdec {
namespace {

template <class Value>
void sort(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

size_t MaskBuilder::Hash::operator()(const std::vector<uint32_t>& words) const {
  return WordHash().add_all(words).value();
}

MaskBuilder::MaskBuilder(GrammarVocabulary& vocabulary, Automaton& automaton)
    : vocabulary_(vocabulary), automaton_(automaton) {}

TokenMask::Content MaskBuilder::build(StateId state) {
  content_ = {};
  overrides_.clear();
  doubtful_.clear();
  forbidden_.clear();
  visit(0, state);
  settle_overrides();
  if (automaton_.is_complete(state)) {
    add(vocabulary_.end_tokens());
  }
  sort(content_.added);
  sort(forbidden_);
  std::erase_if(content_.added, [&](Token token) {
    return std::binary_search(forbidden_.begin(), forbidden_.end(), token);
  });
  if (content_.base != nullptr) {
    keep_removed();
    std::erase_if(content_.added, [&](Token token) { return has_token(*content_.base, token); });
  }
  return std::move(content_);
}

/// The tokens of the base that are forbidden.
void MaskBuilder::keep_removed() {
  doubtful_.insert(doubtful_.end(), forbidden_.begin(), forbidden_.end());
  sort(doubtful_);
  for (const Token token : doubtful_) {
    if (has_token(*content_.base, token) &&
        !std::binary_search(content_.added.begin(), content_.added.end(), token)) {
      content_.removed.push_back(token);
    }
  }
}

void MaskBuilder::add(std::span<const Token> tokens) {
  content_.added.insert(content_.added.end(), tokens.begin(), tokens.end());
}

void MaskBuilder::add_words(const std::shared_ptr<const MaskWords>& words) {
  content_.base =
      content_.base == nullptr ? words : vocabulary_.strings().unite(content_.base, words);
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
  if (!place.words.empty()) {
    Names names = {place, state, "", false, false};
    for (const StringPlace::Part& part : place.parts) {
      names.all_inside |= part.is_name && part.language == RegexStore::kAll;
      names.by_text |= part.is_name && part.text_matters;
    }
    follow_names(names, {node, place.words, 0, {}});
  }
}

void MaskBuilder::add_part(Node node, StateId state, const StringPlace& place,
                           const StringPlace::Part& part) {
  StringMasks& strings = vocabulary_.strings();
  const std::shared_ptr<const StringMasks::Walk> kept =
      strings.walk(node, part.language, place.escapes);
  const StringMasks::Walk& walk = *kept;
  const bool may_close = part.closed != Automaton::kDead;
  if (walk.bits != nullptr) {
    add_words(strings.bits(walk, place.escapes, may_close, {part.min, part.max}));
  }
  for (const StringMasks::Inside& inside : walk.inside) {
    if (inside.length <= part.max) {
      content_.added.push_back(inside.token);
    }
  }
  for (const uint32_t remainder : may_close ? remainders(part.closed) : std::vector<uint32_t>()) {
    for (const StringMasks::Exit& exit : strings.exits(walk, place.escapes, remainder)) {
      if (exit.length >= part.min && exit.length <= part.max) {
        add_exit(node, state, part, exit);
      }
    }
  }
}

void MaskBuilder::add_exit(Node node, StateId state, const StringPlace::Part& part,
                           const StringMasks::Exit& exit) {
  // A name in the same token may be the one that it closes.
  const bool sure = exit.remainder == 0 ||
                    (part.more_may_come && vocabulary_.strings().ends_item(exit.remainder));
  const bool doubtful = (part.text_matters && !sure) ||
                        (part.is_name && vocabulary_.strings().may_have_name(exit.remainder));
  if (!doubtful || really_allowed(node, state, exit.token)) {
    content_.added.push_back(exit.token);
  } else {
    forbidden_.push_back(exit.token);
  }
}

/// The tokens on the way to names, and the ends of these: what follows a name's quote is decided by
/// the name itself, not by a class that has it as an exception.
void MaskBuilder::follow_names(Names& names, const NamesAt& at) {
  const TokenTrie& trie = vocabulary_.trie();
  const auto child = [&](uint8_t byte) {
    const Node found = trie.child(at.node, byte);
    if (found != TokenTrie::kNone) {
      follow_byte(names, at, found);
    }
  };
  if (!at.decoder.idle()) {
    for (Node next = at.node + 1; next < trie.end(at.node); next = trie.end(next)) {
      follow_byte(names, at, next);
    }
    return;
  }
  child('"');
  child('\\');
  int last = -1;
  for (const StringPlace::Word& word : at.words) {
    const char32_t point = word.rest.size() > at.length ? word.rest[at.length] : 0;
    const int first_byte = to_utf8(std::u32string_view(&point, 1)).front() & 0xFF;
    if (point >= ' ' && point != '"' && point != '\\' && first_byte != last) {
      child(static_cast<uint8_t>(first_byte));
      last = first_byte;
    }
  }
}

void MaskBuilder::follow_byte(Names& names, NamesAt at, Node child) {
  const uint8_t byte = vocabulary_.trie().byte(child);
  names.path += static_cast<char>(byte);
  if (byte == '"' && at.decoder.idle()) {
    if (at.words.front().rest.size() == at.length) {
      overrides_.emplace_back(child, walk(names.state, names.path));
    }
  } else if (take(names.place, at, byte)) {
    at.node = child;
    add_name_tokens(names, at);
    follow_names(names, at);
  }
  names.path.pop_back();
}

/// Narrows the names to those that go on with a byte; false when there are none.
bool MaskBuilder::take(const StringPlace& place, NamesAt& at, uint8_t byte) {
  std::optional<char32_t> point;
  if (!at.decoder.take(byte, place.escapes, point)) {
    return false;
  }
  if (!point) {
    return std::any_of(at.words.begin(), at.words.end(),
                       [&](const StringPlace::Word& word) { return may_be(place, at, word); });
  }
  const auto letter = [&](const StringPlace::Word& word) {
    return word.rest.size() > at.length ? static_cast<int64_t>(word.rest[at.length]) : -1;
  };
  const auto first = std::ranges::lower_bound(at.words, int64_t{*point}, {}, letter);
  const auto last = std::ranges::upper_bound(at.words, int64_t{*point}, {}, letter);
  at.words = {first, last};
  ++at.length;
  return !at.words.empty();
}

/// True when the name may go on as the unfinished character does.
bool MaskBuilder::may_be(const StringPlace& place, const NamesAt& at,
                         const StringPlace::Word& word) {
  if (at.decoder.idle()) {
    return true;
  }
  const auto reach = at.decoder.reach(place.escapes);
  return word.rest.size() > at.length &&
         std::any_of(reach.begin(), reach.end(), [&](const CodePoints::Range& range) {
           return range.first <= word.rest[at.length] && word.rest[at.length] <= range.last;
         });
}

void MaskBuilder::add_name_tokens(const Names& names, const NamesAt& at) {
  const std::span<const Token> tokens = vocabulary_.trie().tokens(at.node);
  if (tokens.empty() || names.all_inside) {
    return;
  }
  const bool open = std::any_of(
      at.words.begin(), at.words.end(),
      [&](const StringPlace::Word& word) { return word.open && may_be(names.place, at, word); });
  if (open || (names.by_text && walk(names.state, names.path) != Automaton::kDead)) {
    add(tokens);
  } else if (names.by_text) {
    forbidden_.insert(forbidden_.end(), tokens.begin(), tokens.end());
  }
}

void MaskBuilder::settle_overrides() {
  while (!overrides_.empty()) {
    std::vector<std::pair<Node, StateId>> overrides = std::move(overrides_);
    overrides_.clear();
    sort(overrides);
    std::vector<Token> decided;
    for (const auto& [node, state] : overrides) {
      const auto below = vocabulary_.trie().tokens_below(node);
      decided.insert(decided.end(), below.begin(), below.end());
    }
    sort(decided);
    std::erase_if(content_.added, [&](Token token) {
      return std::binary_search(decided.begin(), decided.end(), token);
    });
    doubtful_.insert(doubtful_.end(), decided.begin(), decided.end());
    for (const auto& [node, state] : overrides) {
      if (state != Automaton::kDead) {
        add(vocabulary_.trie().tokens(node));
        visit(node, state);  // may find names of its own
      }
    }
  }
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
  const auto [place, fresh] = remainders_.try_emplace(closed, 0);
  if (fresh) {
    std::vector<uint32_t> alive = {0};
    collect_remainders(0, closed, alive);
    std::sort(alive.begin(), alive.end());
    place->second = remainder_sets_.intern(std::move(alive));
  }
  return remainder_sets_[place->second];
}

}  // namespace specdec
