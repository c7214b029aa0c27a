#include "grammar/string_masks.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

constexpr size_t kDense = 1'000;  ///< tokens from which on bits are shorter than a list
constexpr size_t kRecent = 12;    ///< walks that a new one is compared with

/// The bytes on the way from one node down to another.
std::string text_between(const TokenTrie& trie, Node from, Node to) {
  std::string text;
  for (Node at = from; at != to;) {
    Node child = at + 1;
    while (trie.end(child) <= to) {
      child = trie.end(child);
    }
    text += static_cast<char>(trie.byte(child));
    at = child;
  }
  return text;
}

bool bit(const MaskWords& words, Token token) {
  return (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

void set_bit(MaskWords& words, Token token, bool value) {
  const uint32_t mask = 1U << (token % 32);
  uint32_t& word = words[static_cast<size_t>(token) / 32];
  word = value ? word | mask : word & ~mask;
}

}  // namespace

StringMasks::StringMasks(const TokenTrie& trie, RegexStore& regexes)
    : trie_(trie), regexes_(regexes) {
  collect_remainders();
}

void StringMasks::collect_remainders() {
  std::set<std::string> found;
  for (Node quote = 1; quote < trie_.size(); ++quote) {
    if (trie_.byte(quote) != '"') {
      continue;
    }
    for (Node node = quote + 1; node < trie_.end(quote); ++node) {
      if (!trie_.tokens(node).empty()) {
        found.insert(text_between(trie_, quote, node));
      }
    }
  }
  std::vector<std::string_view> texts = {std::string_view()};
  texts.insert(texts.end(), found.begin(), found.end());
  remainders_ = std::make_unique<TokenTrie>(texts);
}

uint32_t StringMasks::remainder_after(Node quote, Node node) const {
  if (quote == node) {
    return 0;
  }
  const Node found = remainders_->find(0, text_between(trie_, quote, node));
  SPECDEC_CHECK(found != TokenTrie::kNone, "a token's text after a quote is not known");
  return static_cast<uint32_t>(remainders_->tokens(found).front());
}

// ---- Below a node of the tree: token by token ---------------------------------------------------

std::unique_ptr<StringMasks::Walk> StringMasks::walk_below(Node root, RegexId language,
                                                           EscapeStyle escapes) {
  struct Place {
    RegexId language;
    JsonStringDecoder decoder;
    uint32_t length;
    bool escaped;
  };
  auto walk = std::make_unique<Walk>();
  const uint32_t top = trie_.depth(root);
  std::vector<Place> path = {{language, {}, 0, false}};
  for (Node node = root + 1; node < trie_.end(root);) {
    path.resize(trie_.depth(node) - top);
    Place place = path.back();
    const uint8_t byte = trie_.byte(node);
    if (byte == '"' && place.decoder.idle()) {
      const bool closes = regexes_.matches_empty(place.language);
      for (Node after = node; closes && after < trie_.end(node); ++after) {
        for (const Token token : trie_.tokens(after)) {
          walk->exits.push_back({remainder_after(node, after), token, place.length, place.escaped});
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = place.decoder.idle();
    place.escaped |= byte == '\\' && begins;
    place.length += begins ? 1 : 0;
    bool alive = place.decoder.take(byte, escapes, point);
    if (alive && point) {
      place.language = regexes_.next(place.language, *point);
      alive = place.language != RegexStore::kNothing;
    } else if (alive) {
      alive = regexes_.goes_on(place.language, place.decoder.reach(escapes));
    }
    for (const Token token : alive ? trie_.tokens(node) : std::span<const Token>()) {
      walk->inside.push_back({token, place.length});
    }
    path.push_back(place);
    node = alive ? node + 1 : trie_.end(node);
  }
  std::sort(walk->exits.begin(), walk->exits.end(), [](const Exit& a, const Exit& b) {
    return a.remainder != b.remainder ? a.remainder < b.remainder : a.token < b.token;
  });
  return walk;
}

// ---- The whole vocabulary -----------------------------------------------------------------------

StringMasks::Meaning& StringMasks::meaning(EscapeStyle escapes) {
  Meaning& meaning = meanings_[escapes];
  if (meaning.points.empty()) {
    read_meaning(escapes, meaning);
  }
  return meaning;
}

void StringMasks::read_meaning(EscapeStyle escapes, Meaning& meaning) {
  struct Place {
    JsonStringDecoder decoder;
    uint32_t length = 0;
    bool escaped = false;
  };
  meaning.points.assign(trie_.size(), Meaning::kNothing);
  meaning.lengths.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.remainders.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.plain_close.assign(word_count(), 0);
  std::vector<Place> path(1);
  for (Node node = 1; node < trie_.size();) {
    path.resize(trie_.depth(node));
    Place place = path.back();
    const uint8_t byte = trie_.byte(node);
    if (byte == '"' && place.decoder.idle()) {
      meaning.points[node] = Meaning::kQuote;
      for (Node after = node; after < trie_.end(node); ++after) {
        for (const Token token : trie_.tokens(after)) {
          const auto index = static_cast<size_t>(token);
          meaning.lengths[index] = place.length;
          meaning.remainders[index] = remainder_after(node, after);
          if (after != node) {
            meaning.closing.push_back(token);
          } else {
            set_bit(meaning.plain_close, token, true);
          }
          if (place.escaped) {
            meaning.escaped.push_back(token);
          }
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = place.decoder.idle();
    place.escaped |= byte == '\\' && begins;
    place.length += begins ? 1 : 0;
    if (!place.decoder.take(byte, escapes, point)) {
      node = trie_.end(node);
      continue;
    }
    meaning.points[node] = point ? *point : Meaning::kPart;
    if (!point) {
      meaning.parts[node] = place.decoder;
    }
    for (const Token token : trie_.tokens(node)) {
      meaning.lengths[static_cast<size_t>(token)] = place.length;
    }
    path.push_back(place);
    ++node;
  }
  meaning.longest = *std::max_element(meaning.lengths.begin(), meaning.lengths.end());
  std::sort(meaning.escaped.begin(), meaning.escaped.end());
  std::sort(meaning.closing.begin(), meaning.closing.end(), [&](Token a, Token b) {
    const uint32_t left = meaning.remainders[static_cast<size_t>(a)];
    const uint32_t right = meaning.remainders[static_cast<size_t>(b)];
    return left != right ? left < right : a < b;
  });
}

/// Walks the tree with two languages at once, only where they differ, and turns the bits of the one
/// into the bits of the other.
class StringMasks::Difference {
 public:
  Difference(StringMasks& self, const Meaning& meaning, EscapeStyle escapes, MaskWords& inside,
             MaskWords& close)
      : self_(self), meaning_(meaning), escapes_(escapes), inside_(inside), close_(close) {}

  void run(RegexId from, RegexId to) {
    const TokenTrie& trie = self_.trie_;
    std::vector<std::pair<RegexId, RegexId>> path(512);
    path[0] = {from, to};
    for (Node node = 1; node < trie.size();) {
      const uint32_t depth = trie.depth(node);
      if (depth + 1 >= path.size()) {
        path.resize(2 * path.size());
      }
      const auto [before_from, before_to] = path[depth - 1];
      const char32_t point = meaning_.points[node];
      if (point == Meaning::kNothing) {
        node = trie.end(node);
        continue;
      }
      if (point == Meaning::kQuote) {
        quote(node, closes(before_from), closes(before_to));
        node = trie.end(node);
        continue;
      }
      const bool high = point == Meaning::kPart && trie.byte(node) >= 0xC0;
      if (high && same_above_ascii(before_from, before_to)) {
        node = trie.end(node);
        continue;
      }
      const RegexId now_from = step(before_from, node, point);
      const RegexId now_to = step(before_to, node, point);
      if (now_to == RegexStore::kNothing && now_from != now_to) {
        for (const Token token : trie.tokens_below(node)) {
          set_bit(inside_, token, false);
          set_bit(close_, token, false);
        }
      }
      if (now_from == now_to || now_to == RegexStore::kNothing) {
        node = trie.end(node);
        continue;
      }
      if (now_from == RegexStore::kNothing) {
        for (const Token token : trie.tokens(node)) {
          set_bit(inside_, token, true);
        }
      }
      path[depth] = {now_from, now_to};
      ++node;
    }
  }

 private:
  bool closes(RegexId language) const {
    return language != RegexStore::kNothing && self_.regexes_.matches_empty(language);
  }

  RegexId step(RegexId language, Node node, char32_t point) {
    if (language == RegexStore::kNothing || language == RegexStore::kAll) {
      return language;
    }
    if (point != Meaning::kPart) {
      return self_.regexes_.next(language, point);
    }
    const High& high = above_ascii(language);
    const bool utf8 = self_.trie_.byte(node) >= 0x80;
    const bool alive = utf8 && high.one ? high.target != RegexStore::kNothing
                                        : self_.regexes_.goes_on(
                                              language, meaning_.parts.at(node).reach(escapes_));
    return alive ? language : RegexStore::kNothing;
  }

  /// What follows after characters beyond ASCII.
  struct High {
    bool one = false;  ///< the same after all of them: `target`
    RegexId target = RegexStore::kNothing;
  };

  const High& above_ascii(RegexId language) {
    const auto [entry, fresh] = high_.try_emplace(language);
    if (fresh && language != RegexStore::kNothing) {
      const auto all = self_.regexes_.transitions(language);
      const auto first =
          std::find_if(all.begin(), all.end(), [](const auto& part) { return part.last >= 0x80; });
      // Surrogates stand alone and have nothing after them.
      entry->second.one = std::all_of(first, all.end(), [&](const auto& part) {
        return part.target == first->target || part.last == 0xDFFF;
      });
      entry->second.target = first->target;
    }
    return entry->second;
  }

  bool same_above_ascii(RegexId a, RegexId b) {
    if (a == b) {
      return true;
    }
    const High left = a == RegexStore::kNothing ? High{true, a} : above_ascii(a);
    const High right = b == RegexStore::kNothing ? High{true, b} : above_ascii(b);
    return left.one && right.one && left.target == right.target;
  }

  void quote(Node node, bool before, bool now) {
    if (before != now) {
      for (const Token token : self_.trie_.tokens_below(node)) {
        set_bit(close_, token, now);
      }
    }
  }

  StringMasks& self_;
  const Meaning& meaning_;
  EscapeStyle escapes_;
  MaskWords& inside_;
  MaskWords& close_;
  std::unordered_map<RegexId, High> high_;
};

/// A language that was walked before and goes on like this one after most characters.
RegexId StringMasks::nearest(RegexId language, EscapeStyle escapes) {
  RegexId best = RegexStore::kNothing;
  int most = 0;
  for (const RegexId candidate : recent_[escapes]) {
    int same = 0;
    for (char32_t c = 0x20; c < 0x7F; ++c) {
      const RegexId next = regexes_.next(language, c);
      same += next == regexes_.next(candidate, c) && next != RegexStore::kNothing ? 1 : 0;
    }
    if (same > most) {
      most = same;
      best = candidate;
    }
  }
  return most >= 16 ? best : RegexStore::kNothing;
}

void StringMasks::finish(const Meaning& meaning, MaskWords inside, MaskWords close,
                         Walk& walk) const {
  MaskWords both(word_count());
  for (size_t i = 0; i < both.size(); ++i) {
    both[i] = inside[i] | (close[i] & meaning.plain_close[i]);
  }
  const auto exit = [&](Token token, bool escaped) {
    const auto index = static_cast<size_t>(token);
    return Exit{meaning.remainders[index], token, meaning.lengths[index], escaped};
  };
  for (const Token token : meaning.closing) {
    if (bit(close, token)) {
      walk.exits.push_back(
          exit(token, std::binary_search(meaning.escaped.begin(), meaning.escaped.end(), token)));
    }
  }
  for (const Token token : meaning.escaped) {
    if (bit(close, token) && bit(meaning.plain_close, token)) {
      walk.escaped.push_back(exit(token, true));
    }
  }
  walk.bits = std::make_shared<const MaskWords>(std::move(inside));
  walk.or_close = std::make_shared<const MaskWords>(std::move(both));
  walk.close = std::make_shared<const MaskWords>(std::move(close));
}

std::unique_ptr<StringMasks::Walk> StringMasks::walk_all(RegexId language, EscapeStyle escapes) {
  Meaning& meaning = this->meaning(escapes);
  ++walks_;
  MaskWords inside(word_count());
  MaskWords close(word_count());
  const RegexId from = nearest(language, escapes);
  if (from != RegexStore::kNothing) {
    const Walk& known = walk(0, from, escapes);
    inside = *known.bits;
    close = *known.close;
  }
  Difference(*this, meaning, escapes, inside, close).run(from, language);
  auto result = std::make_unique<Walk>();
  size_t count = 0;
  for (size_t i = 0; i < inside.size(); ++i) {
    count += static_cast<size_t>(__builtin_popcount(inside[i]));
  }
  if (count >= kDense) {
    finish(meaning, std::move(inside), std::move(close), *result);
    std::list<RegexId>& recent = recent_[escapes];
    recent.push_front(language);
    if (recent.size() > kRecent) {
      const auto oldest = std::find_if(recent.rbegin(), recent.rend(),
                                       [](RegexId id) { return id != RegexStore::kAll; });
      recent.erase(std::prev(oldest.base()));
    }
    return result;
  }
  for (size_t word = 0; word < inside.size(); ++word) {
    for (uint32_t rest = inside[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      result->inside.push_back({static_cast<Token>(token), meaning.lengths[token]});
    }
    for (uint32_t rest = close[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      const bool escaped = std::binary_search(meaning.escaped.begin(), meaning.escaped.end(),
                                              static_cast<Token>(token));
      result->exits.push_back(
          {meaning.remainders[token], static_cast<Token>(token), meaning.lengths[token], escaped});
    }
  }
  std::stable_sort(result->exits.begin(), result->exits.end(),
                   [](const Exit& a, const Exit& b) { return a.remainder < b.remainder; });
  return result;
}

const StringMasks::Walk& StringMasks::walk(Node node, RegexId language, EscapeStyle escapes) {
  const auto key = std::tuple(node, language, escapes);
  if (const auto found = cache_.find(key); found != cache_.end()) {
    return *found->second;
  }
  if (node == 0 && language != RegexStore::kAll) {
    walk(0, RegexStore::kAll, escapes);  // what most languages are nearest to
  }
  auto made = node == 0 ? walk_all(language, escapes) : walk_below(node, language, escapes);
  return *(cache_[key] = std::move(made));
}

const MaskWords& StringMasks::at_most(Meaning& meaning, uint64_t length) {
  const size_t index = static_cast<size_t>(length);
  if (meaning.at_most.size() <= index) {
    meaning.at_most.resize(index + 1);
  }
  if (meaning.at_most[index] == nullptr) {
    MaskWords words(word_count());
    for (size_t token = 0; token < meaning.lengths.size(); ++token) {
      words[token / 32] |= (meaning.lengths[token] <= length ? 1U : 0U) << (token % 32);
    }
    meaning.at_most[index] = std::make_shared<const MaskWords>(std::move(words));
  }
  return *meaning.at_most[index];
}

std::shared_ptr<const MaskWords> StringMasks::bits(const Walk& walk, EscapeStyle escapes,
                                                   bool may_close, const Lengths& lengths) {
  Meaning& meaning = this->meaning(escapes);
  const bool free = lengths.max >= meaning.longest && (lengths.min == 0 || !may_close);
  if (free) {
    return may_close ? walk.or_close : walk.bits;
  }
  const uint64_t max = std::min<uint64_t>(lengths.max, meaning.longest);
  const MaskWords& fits = at_most(meaning, max);
  MaskWords words(word_count());
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = (*walk.bits)[i] & fits[i];
  }
  if (may_close && lengths.min <= max) {
    const MaskWords* shorter = lengths.min == 0 ? nullptr : &at_most(meaning, lengths.min - 1);
    for (size_t i = 0; i < words.size(); ++i) {
      const uint32_t enough = shorter == nullptr ? ~0U : ~(*shorter)[i];
      words[i] |= (*walk.close)[i] & meaning.plain_close[i] & fits[i] & enough;
    }
  }
  return std::make_shared<const MaskWords>(std::move(words));
}

}  // namespace specdec
