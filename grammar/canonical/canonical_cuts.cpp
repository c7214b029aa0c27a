#include "grammar/canonical/canonical_cuts.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/regex/regex.h"

namespace specdec {
namespace {

bool is_lead(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

/// Whole characters and escapes of one letter, as inside a JSON string.
bool is_inner(std::string_view bytes) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt";
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '"' || (c >= 0 && c < ' ')) {
      return false;
    }
    if (c == '\\' && (++i == bytes.size() || kLetters.find(bytes[i]) == kLetters.npos)) {
      return false;
    }
  }
  return is_utf8(bytes);
}

MergeRules rules_of(const Tokenizer& tokenizer) {
  auto rules = tokenizer.merge_rules();
  if (!rules) {
    throw ConfigError(
        "canonical: this tokenizer does not cut texts by ranked merges; leave the key out");
  }
  return *std::move(rules);
}

}  // namespace

CanonicalCuts::CanonicalCuts(const Tokenizer& tokenizer, const TokenTrie& trie)
    : CanonicalCuts(tokenizer, trie, rules_of(tokenizer)) {}

CanonicalCuts::CanonicalCuts(const Tokenizer& tokenizer, const TokenTrie& trie,
                             const MergeRules& rules)
    : trie_(trie), pairs_(tokenizer, rules) {
  SPECDEC_CHECK(tokenizer.vocab_size() == trie.vocab_size(),
                "a tokenizer of {} tokens for a vocabulary of {}", tokenizer.vocab_size(),
                trie.vocab_size());
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    bytes_.emplace_back(tokenizer.token_bytes(token));
  }
  plant(rules, tokenizer);
  find_byte_pieces(tokenizer);
  find_alone(tokenizer);
  find_inner();
  usual_.resize(bytes_.size(), kStart);
  intern({});
}

void CanonicalCuts::plant(const MergeRules& rules, const Tokenizer& tokenizer) {
  whole_.resize(bytes_.size(), false);
  for (const Token token : rules.whole) {
    whole_[static_cast<size_t>(token)] = true;
    Node node = 0;
    for (const char byte : tokenizer.token_bytes(token)) {
      node = whole_pieces_.add(node, static_cast<uint8_t>(byte));
    }
    ends_.resize(whole_pieces_.size(), false);
    ends_[node] = node != 0;
  }
}

void CanonicalCuts::find_byte_pieces(const Tokenizer& tokenizer) {
  byte_values_.resize(bytes_.size(), -1);
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string& bytes = bytes_[static_cast<size_t>(token)];
    const std::string_view piece = tokenizer.piece(token);
    if (bytes.size() == 1 && piece.size() == 6 && piece.starts_with("<0x")) {
      byte_values_[static_cast<size_t>(token)] = static_cast<unsigned char>(bytes.front());
    } else if (!bytes.empty() && scan_utf8(bytes).valid && scan_utf8(bytes).bytes == bytes.size()) {
      has_piece_[bytes] = true;
    }
  }
  has_piece_["\xE2\x96\x81"] = true;  // what is taken for a space has no encoding of its own
}

/// The tokens that are the encoding of their own text.
void CanonicalCuts::find_alone(const Tokenizer& tokenizer) {
  alone_.resize((bytes_.size() + 31) / 32);
  for (const Token token : trie_.tokens_below(0)) {
    const std::string& bytes = bytes_[static_cast<size_t>(token)];
    SPECDEC_CHECK(!bytes.empty(), "token {} has no text", tokenizer.piece(token));
    set_token(alone_, token,
              is_whole(token) ||
                  (byte_value(token) < 0 && pairs_.is_reachable(token) && !holds_whole(bytes)));
  }
}

void CanonicalCuts::find_inner() {
  inner_.resize(alone_.size());
  loose_.resize(alone_.size());
  Bytes printable;
  for (size_t byte = ' '; byte <= '~'; ++byte) {
    printable.set(byte, byte != '"' && byte != '\\');
  }
  for (const Token token : trie_.tokens_below(0)) {
    const std::string& bytes = bytes_[static_cast<size_t>(token)];
    const bool inner = is_inner(bytes);
    const bool escapes = bytes.ends_with('\\') && is_inner(bytes.substr(0, bytes.size() - 1));
    const Bytes free = ~find_joining(left_of(token), true);
    const bool begins = byte_value(token) >= 0 && some_has_no_piece(static_cast<uint8_t>(bytes[0]));
    set_token(inner_, token, inner);
    set_token(loose_, token,
              begins || (inner && (free & printable).any()) ||
                  (escapes && (free['n'] || free['t'] || free['"'])));
  }
}

/// Whether some character of several bytes that begins with this byte has no piece.
bool CanonicalCuts::some_has_no_piece(uint8_t first_byte) const {
  const int more = first_byte >= 0xF0 ? 3 : first_byte >= 0xE0 ? 2 : 1;
  const auto first = static_cast<char32_t>(first_byte & (0x3FU >> more)) << (6 * more);
  const auto last = first | ((char32_t{1} << (6 * more)) - 1);
  const bool is_first = first_byte >= 0xC2 && first_byte <= 0xF4;
  for (char32_t point = first; is_first && point <= last; ++point) {
    const std::string character = to_utf8(std::u32string_view(&point, 1));
    if (static_cast<uint8_t>(character.front()) == first_byte && is_utf8(character) &&
        !has_piece_.contains(character)) {
      return true;
    }
  }
  return false;
}

CanonicalCuts::Node CanonicalCuts::follow(Node from, std::string_view bytes, bool& found) const {
  for (const char byte : bytes) {
    from = whole_pieces_.child(from, static_cast<uint8_t>(byte));
    if (from == GrowingTrie::kNone) {
      return 0;
    }
    found = found || ends_[from];
  }
  return from;
}

bool CanonicalCuts::holds_whole(std::string_view bytes) const {
  bool found = false;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (is_lead(bytes[at])) {
      follow(0, bytes.substr(at), found);
    }
  }
  return found;
}

/// Whole pieces begin at any character that was not found whole itself.
std::vector<CanonicalCuts::Node> CanonicalCuts::pending_after(Token token) const {
  const std::string_view bytes = bytes_[static_cast<size_t>(token)];
  std::vector<Node> pending;
  for (size_t at = 0; at < (is_whole(token) ? 1 : bytes.size()); ++at) {
    bool found = false;
    const Node node = is_lead(bytes[at]) ? follow(0, bytes.substr(at), found) : 0;
    if (node != 0 && goes_on(node)) {
      pending.push_back(node);
    }
  }
  return pending;
}

CanonicalCuts::Left CanonicalCuts::left_of(Token token) const {
  const bool joins = byte_value(token) < 0 && !is_whole(token) && pairs_.is_reachable(token);
  return {joins ? token : -1, pending_after(token), ""};
}

CanonicalCuts::LeftId CanonicalCuts::intern(Left left) {
  const auto [known, is_new] = ids_.emplace(left, static_cast<LeftId>(lefts_.size()));
  if (is_new) {
    lefts_.push_back(std::move(left));
  }
  return known->second;
}

CanonicalCuts::Left CanonicalCuts::left_at(LeftId left) const {
  const std::lock_guard lock(mutex_);
  return lefts_[left];
}

CanonicalCuts::LeftId CanonicalCuts::next(LeftId left, Token token) {
  const std::lock_guard lock(mutex_);
  const std::string& bytes = bytes_[static_cast<size_t>(token)];
  std::vector<Node> still_pending;
  for (const Node node : lefts_[left].pending) {
    bool found = false;
    const Node there = follow(node, bytes, found);
    if (there != 0 && !found && goes_on(there)) {
      still_pending.push_back(there);
    }
  }
  const bool usual = still_pending.empty() && byte_value(token) < 0;
  LeftId& known = usual_[static_cast<size_t>(token)];
  if (usual && known != kStart) {
    return known;
  }
  Left after = left_of(token);
  after.pending.insert(after.pending.end(), still_pending.begin(), still_pending.end());
  std::sort(after.pending.begin(), after.pending.end());
  if (byte_value(token) >= 0) {
    const std::string character = lefts_[left].partial + bytes;
    after.partial = scan_utf8(character).prefix ? character : "";
  }
  const LeftId id = intern(std::move(after));
  if (usual) {
    known = id;
  }
  return id;
}

std::shared_ptr<const MaskWords> CanonicalCuts::allowed_after(LeftId left) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* found = allowed_.find(left)) {
      return *found;
    }
  }
  auto made = find_allowed(left_at(left));
  const std::lock_guard lock(mutex_);
  const auto* found = allowed_.find(left);  // another thread's
  return found != nullptr ? *found
                          : allowed_.add(left, std::move(made), alone_.size() * sizeof alone_[0]);
}

std::shared_ptr<const MaskWords> CanonicalCuts::find_allowed(const Left& left) const {
  auto words = std::make_shared<MaskWords>(alone_);
  if (!left.partial.empty()) {
    std::fill(words->begin(), words->end(), 0);
  } else if (left.token >= 0) {
    pairs_.remove_after(left.token, *words);
  }
  for (Token token = 0; token < std::ssize(byte_values_); ++token) {
    if (byte_value(token) >= 0) {
      set_token(*words, token,
                byte_may_come(left.partial, static_cast<uint8_t>(byte_value(token))));
    }
  }
  for (const Node node : left.pending) {
    remove_found(node, 0, *words);
  }
  return words;
}

bool CanonicalCuts::byte_may_come(const std::string& partial, uint8_t byte) const {
  const std::string character = partial + static_cast<char>(byte);
  const Utf8Scan scan = scan_utf8(character);
  return scan.prefix ||
         (scan.valid && scan.bytes == character.size() && !has_piece_.contains(character));
}

/// Clears the tokens that would complete a whole piece which is begun.
void CanonicalCuts::remove_found(Node pending, TokenTrie::Node at, MaskWords& words) const {
  for (Node next = whole_pieces_.newest_child(pending); next != GrowingTrie::kNone;
       next = whole_pieces_.next_child(next)) {
    const auto byte = static_cast<uint8_t>(whole_pieces_.symbol(next));
    const TokenTrie::Node child = trie_.child(at, byte);
    if (child == TokenTrie::kNone) {
      continue;
    }
    if (ends_[next]) {
      for (const Token token : trie_.tokens_below(child)) {
        set_token(words, token, false);
      }
    } else {
      remove_found(next, child, words);
    }
  }
}

CanonicalCuts::Bytes CanonicalCuts::joining_bytes(LeftId left) {
  {
    const std::lock_guard lock(mutex_);
    if (const Bytes* known = joining_.find(left)) {
      return *known;
    }
  }
  const Bytes made = find_joining(left_at(left), false);
  const std::lock_guard lock(mutex_);
  return joining_.has(left) ? made : joining_.add(left, made, 0);
}

CanonicalCuts::Bytes CanonicalCuts::find_joining(const Left& left, bool roughly) const {
  Bytes bytes;
  if (!left.partial.empty()) {
    return bytes.set();
  }
  if (left.token >= 0) {
    bytes = pairs_.joining_bytes(left.token, roughly);
  }
  for (const Node node : left.pending) {
    for (Node next = whole_pieces_.newest_child(node); next != GrowingTrie::kNone;
         next = whole_pieces_.next_child(next)) {
      bytes.set(whole_pieces_.symbol(next));
    }
  }
  return bytes;
}

}  // namespace specdec
