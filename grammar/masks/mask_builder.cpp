#include "grammar/masks/mask_builder.h"

#include <algorithm>
#include <optional>

namespace specdec {
namespace {

constexpr size_t kManyTokens = 4096;  ///< tokens that are bits rather than a list

template <class Value>
void sort(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

size_t MaskBuilder::Hash::operator()(const std::vector<Remainder>& remainders) const {
  WordHash hash;
  for (const Remainder& remainder : remainders) {
    hash.add(uint64_t{remainder.id} << 1 | static_cast<uint64_t>(remainder.depends));
  }
  return hash.value();
}

/// The end of a string that began at a place.
struct MaskBuilder::Ending {
  Node node;
  StateId state;
  const OpenString::Part& part;
  bool depends;  ///< on what the string was
};

MaskBuilder::MaskBuilder(const VocabularyTokens& tokens, StringMasks& strings, Automaton& automaton)
    : tokens_(tokens),
      trie_(strings.trie()),
      strings_(strings),
      automaton_(automaton),
      string_states_(automaton.string_states()),
      named_tokens_(automaton.named_tokens()) {}

TokenMask::Content MaskBuilder::build(StateId state) {
  content_ = {};
  overrides_.clear();
  doubtful_.clear();
  forbidden_.clear();
  visit(0, state);
  settle_overrides();
  if (content_.added.size() > kManyTokens && content_.base == nullptr && doubtful_.empty()) {
    spread_added();
  }
  forbidden_.insert(forbidden_.end(), named_tokens_.begin(), named_tokens_.end());
  sort(content_.added);
  sort(forbidden_);
  std::erase_if(content_.added, [&](Token token) {
    return std::binary_search(forbidden_.begin(), forbidden_.end(), token);
  });
  if (!named_tokens_.empty()) {
    add(automaton_.tokens(state));
  }
  if (automaton_.is_complete(state)) {
    add(tokens_.end_tokens());
  }
  sort(content_.added);
  if (content_.base != nullptr) {
    keep_removed();
    std::erase_if(content_.added, [&](Token token) { return has_token(*content_.base, token); });
  }
  return std::move(content_);
}

/// Many tokens outside strings, as in free text: bits take less memory, and need not be sorted.
void MaskBuilder::spread_added() {
  MaskWords words(static_cast<size_t>((trie_.vocab_size() + 31) / 32));
  for (const Token token : content_.added) {
    set_token(words, token);
  }
  content_.added.clear();
  content_.base = std::make_shared<const MaskWords>(std::move(words));
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
  content_.base = content_.base == nullptr ? words : strings_.unite(content_.base, words);
}

void MaskBuilder::visit_child(Node child, StateId state) {
  const StateId next = automaton_.next(state, trie_.byte(child));
  if (next != Automaton::kDead) {
    add(trie_.tokens(child));
    if (trie_.end(child) > child + 1) {
      visit(child, next);
    }
  }
}

void MaskBuilder::visit(Node node, StateId state) {
  AlikePlace place;
  if (node == 0 && string_states_ != nullptr && string_states_->find_alike(state, place)) {
    visit_alike(state, place);
    return;
  }
  OpenString string;
  if (string_states_ != nullptr && string_states_->describe(state, string)) {
    visit_string(node, state, string);
    return;
  }
  const Automaton::Bytes candidates = automaton_.candidates(state);
  if (node == 0) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const Node child =
          candidates[byte] ? trie_.child(0, static_cast<uint8_t>(byte)) : TokenTrie::kNone;
      if (child != TokenTrie::kNone) {
        visit_child(child, state);
      }
    }
    return;
  }
  for (Node child = node + 1; child < trie_.end(node); child = trie_.end(child)) {
    if (candidates[trie_.byte(child)]) {
      visit_child(child, state);
    }
  }
}

void MaskBuilder::visit_string(Node node, StateId state, const OpenString& string) {
  for (const OpenString::Part& part : string.parts) {
    add_part(node, state, string, part);
  }
  if (!string.words.empty()) {
    Names names = {string, state, "", false, false};
    std::vector<RegexId> endless;
    for (const OpenString::Part& part : string.parts) {
      names.all_inside |= part.is_name && part.language == RegexStore::kAll && !part.narrow;
      names.by_text |= part.is_name && part.narrow;
      if (part.is_name && !part.narrow && part.language != RegexStore::kAll) {
        endless.push_back(part.language);
      }
    }
    follow_names(names, {node, string.words, 0, {}, std::move(endless)});
  }
}

void MaskBuilder::add_part(Node node, StateId state, const OpenString& string,
                           const OpenString::Part& part) {
  const std::shared_ptr<const StringMasks::Walk> kept =
      strings_.walk(node, part.language, string.escapes.style);
  const StringMasks::Walk& walk = *kept;
  const bool may_close = part.closed != Automaton::kDead;
  if (walk.bits != nullptr) {
    add_words(strings_.bits(walk, string.escapes.style, may_close, {part.min, part.max}));
  }
  for (const StringMasks::Inside& inside : walk.inside) {
    if (inside.length <= part.max) {
      content_.added.push_back(inside.token);
    }
  }
  if (!may_close) {
    return;
  }
  const std::vector<Remainder> alive = remainders(part.closed);  // more come while tokens are tried
  for (const Remainder& remainder : alive) {
    const Ending ending = {node, state, part, remainder.depends};
    const bool in_bits = walk.bits != nullptr && remainder.id == 0;
    for (const StringMasks::Exit& exit :
         in_bits&& remainder.depends ? strings_.plain_exits(walk, string.escapes.style)
                                     : strings_.exits(walk, string.escapes.style, remainder.id)) {
      if (exit.length >= part.min && exit.length <= part.max) {
        add_exit(ending, exit);
      }
    }
  }
}

void MaskBuilder::add_exit(const Ending& ending, const StringMasks::Exit& exit) {
  // A name in the same token may be the one that it closes.
  const bool other_name =
      ending.part.is_name && ((ending.part.text_matters && exit.remainder != 0) ||
                              strings_.remainders().may_have_name(exit.remainder));
  if (!(ending.depends || other_name) || really_allowed(ending.node, ending.state, exit.token)) {
    content_.added.push_back(exit.token);
  } else {
    forbidden_.push_back(exit.token);
  }
}

/// The tokens on the way to names, and the ends of these: what follows a name's quote is decided by
/// the name itself, not by a class that has it as an exception.
void MaskBuilder::follow_names(Names& names, const NamesAt& at) {
  const auto child = [&](uint8_t byte) {
    const Node found = trie_.child(at.node, byte);
    if (found != TokenTrie::kNone) {
      follow_byte(names, at, found);
    }
  };
  if (!at.decoder.idle()) {
    for (Node next = at.node + 1; next < trie_.end(at.node); next = trie_.end(next)) {
      follow_byte(names, at, next);
    }
    return;
  }
  child('"');
  child('\\');
  int last = -1;
  char32_t last_point = 0;
  for (const OpenString::Word& word : at.words) {
    const char32_t point = word.rest.size() > at.length ? word.rest[at.length] : 0;
    if (point == last_point) {
      continue;
    }
    last_point = point;
    const int first_byte = to_utf8(std::u32string_view(&point, 1)).front() & 0xFF;
    if (point >= ' ' && point != '"' && point != '\\' && first_byte != last) {
      child(static_cast<uint8_t>(first_byte));
      last = first_byte;
    }
  }
}

void MaskBuilder::follow_byte(Names& names, NamesAt at, Node child) {
  const uint8_t byte = trie_.byte(child);
  names.path += static_cast<char>(byte);
  if (byte == '"' && at.decoder.idle()) {
    if (at.words.front().rest.size() == at.length) {
      overrides_.emplace_back(child, walk(names.state, names.path));
    }
  } else if (take(names.string, at, byte)) {
    at.node = child;
    add_name_tokens(names, at);
    follow_names(names, at);
  }
  names.path.pop_back();
}

/// Narrows the names to those that go on with a byte; false when there are none.
bool MaskBuilder::take(const OpenString& string, NamesAt& at, uint8_t byte) {
  std::optional<char32_t> point;
  if (!at.decoder.take(byte, string.escapes, point)) {
    return false;
  }
  if (!point) {
    return std::any_of(at.words.begin(), at.words.end(),
                       [&](const OpenString::Word& word) { return may_be(string, at, word); });
  }
  const auto letter = [&](const OpenString::Word& word) {
    return word.rest.size() > at.length ? static_cast<int64_t>(word.rest[at.length]) : -1;
  };
  const auto first = std::ranges::lower_bound(at.words, int64_t{*point}, {}, letter);
  const auto last = std::ranges::upper_bound(at.words, int64_t{*point}, {}, letter);
  at.words = {first, last};
  ++at.length;
  for (RegexId& rest : at.rests) {
    rest = strings_.regexes().next(rest, *point);
  }
  return !at.words.empty();
}

/// True when the name may go on as the unfinished character does.
bool MaskBuilder::may_be(const OpenString& string, const NamesAt& at,
                         const OpenString::Word& word) {
  if (at.decoder.idle()) {
    return true;
  }
  const auto reach = at.decoder.reach(string.escapes);
  return word.rest.size() > at.length &&
         std::any_of(reach.begin(), reach.end(), [&](const CodePoints::Range& range) {
           return range.first <= word.rest[at.length] && word.rest[at.length] <= range.last;
         });
}

void MaskBuilder::add_name_tokens(const Names& names, const NamesAt& at) {
  const std::span<const Token> tokens = trie_.tokens(at.node);
  if (tokens.empty() || names.all_inside) {
    return;
  }
  bool open = false;
  bool by_text = names.by_text || !at.rests.empty();
  for (const OpenString::Word& word : at.words) {
    if ((word.open || word.by_text) && may_be(names.string, at, word)) {
      open |= word.open;
      by_text |= word.by_text;
    }
  }
  if (!open && by_text && is_endless(at)) {
    return;
  }
  if (open || (by_text && walk(names.state, names.path) != Automaton::kDead)) {
    add(tokens);
  } else if (by_text) {
    forbidden_.insert(forbidden_.end(), tokens.begin(), tokens.end());
  }
}

/// True when there are strings without end that are none of the words.
bool MaskBuilder::is_endless(const NamesAt& at) {
  return at.decoder.idle() && std::ranges::any_of(at.rests, [&](RegexId rest) {
           return !strings_.regexes().is_finite(rest);
         });
}

void MaskBuilder::settle_overrides() {
  while (!overrides_.empty()) {
    std::vector<std::pair<Node, StateId>> overrides = std::move(overrides_);
    overrides_.clear();
    sort(overrides);
    std::vector<Token> decided;
    for (const auto& [node, state] : overrides) {
      const auto below = trie_.tokens_below(node);
      decided.insert(decided.end(), below.begin(), below.end());
    }
    sort(decided);
    std::erase_if(content_.added, [&](Token token) {
      return std::binary_search(decided.begin(), decided.end(), token);
    });
    doubtful_.insert(doubtful_.end(), decided.begin(), decided.end());
    for (const auto& [node, state] : overrides) {
      if (state != Automaton::kDead) {
        add(trie_.tokens(node));
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
  return walk(state, tokens_.bytes(token).substr(trie_.depth(node))) != Automaton::kDead;
}

void MaskBuilder::collect_remainders(Node node, StateId state, std::vector<Remainder>& found) {
  const TokenTrie& remainders = strings_.remainders().texts();
  const Automaton::Bytes candidates = automaton_.candidates(state);
  for (Node child = node + 1; child < remainders.end(node); child = remainders.end(child)) {
    if (!candidates[remainders.byte(child)]) {
      continue;
    }
    const StateId next = automaton_.next(state, remainders.byte(child));
    if (next != Automaton::kDead) {
      for (const Token id : remainders.tokens(child)) {
        found.push_back({static_cast<uint32_t>(id), string_states_->depends_on_string(next)});
      }
      collect_remainders(child, next, found);
    }
  }
}

const std::vector<MaskBuilder::Remainder>& MaskBuilder::remainders(StateId closed) {
  if (const auto known = remainders_.find(closed); known != remainders_.end()) {
    return remainder_sets_[known->second];
  }
  std::vector<Remainder> alive = {{0, string_states_->depends_on_string(closed)}};
  collect_remainders(0, closed, alive);  // throws at a limit: nothing is known then
  std::ranges::sort(alive, {}, &Remainder::id);
  return remainder_sets_[remainders_[closed] = remainder_sets_.intern(std::move(alive))];
}

}  // namespace specdec
