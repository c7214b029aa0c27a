// Walks over the whole vocabulary, each begun from what is known of another language.
#include <algorithm>
#include <array>
#include <bit>

#include "grammar/masks/string_masks.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

constexpr size_t kDense = 1'000;  ///< tokens from which on bits are shorter than a list
constexpr size_t kRecent = 12;    ///< walks that a new one is compared with

}  // namespace

/// Walks the tree with two languages at once, only where they differ, and turns the bits of the one
/// into the bits of the other.
class StringMasks::Difference {
 public:
  Difference(StringMasks& self, const Meaning& meaning, EscapeStyle escapes, MaskWords& inside,
             MaskWords& close)
      : self_(self), meaning_(meaning), escapes_(escapes), inside_(inside), close_(close) {}

  void run(RegexId from, RegexId to) {
    const TokenTrie& trie = self_.trie_;
    std::vector<Place> path(64);
    path[0] = place(from, to);
    for (Node node = 1; node < trie.size();) {
      const uint32_t depth = trie.depth(node);
      if (depth + 1 >= path.size()) {
        path.resize(2 * path.size());
      }
      const Place& before = path[depth - 1];
      const RegexId before_from = before.from;
      const RegexId before_to = before.to;
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
      const bool same_inside = before.same_inside || stays_alike(before, node);
      if (same_inside && !meaning_.has_quote(node)) {
        node = trie.end(node);
        continue;
      }
      const bool high = point >= Meaning::kPart && trie.byte(node) >= 0xC0;
      if (high && same_above_ascii(before_from, before_to)) {
        node = trie.end(node);
        continue;
      }
      if (!meaning_.has_quote(node) && before_from != before_to && stays_inside(before_to, node)) {
        if (before_from != RegexStore::kAll) {
          for (const Token token : trie.tokens_below(node)) {
            set_token(inside_, token, has_token(meaning_.inside, token));
          }
        }
        node = trie.end(node);
        continue;
      }
      const RegexId now_from = step(before_from, node, point);
      const RegexId now_to = step(before_to, node, point);
      if (now_to == RegexStore::kNothing && now_from != now_to) {
        clear_below(node, inside_);
        if (meaning_.has_quote(node)) {
          clear_below(node, close_);
        }
      }
      if (now_from == now_to || now_to == RegexStore::kNothing) {
        node = trie.end(node);
        continue;
      }
      if (now_from == RegexStore::kNothing) {
        for (const Token token : trie.tokens(node)) {
          set_token(inside_, token, true);
        }
      }
      path[depth] = before_from == now_from && before_to == now_to ? path[depth - 1]
                                                                   : place(now_from, now_to);
      path[depth].same_inside |= same_inside;
      ++node;
    }
  }

 private:
  /// Both languages before a node.
  struct Place {
    RegexId from = 0;
    RegexId to = 0;
    bool told = false;  ///< by letters: texts with none of these go on in both, or in neither
    Letters differing;
    bool same_inside = false;  ///< from here on only the ends of strings differ
  };

  Place place(RegexId from, RegexId to) {
    Place result{.from = from, .to = to, .told = false, .differing = {}, .same_inside = false};
    const std::optional<Letters> left = self_.never(from);
    const std::optional<Letters> right = self_.never(to);
    if (left && right) {
      result.told = true;
      result.differing.ascii = left->ascii ^ right->ascii;
      result.differing.separators = left->separators != right->separators;
      result.differing.others = left->others != right->others;
      result.same_inside =
          result.differing.ascii.none() && !result.differing.separators && !result.differing.others;
    }
    return result;
  }

  /// True when no text below the node can tell the languages apart before it closes the string.
  bool stays_alike(const Place& before, Node node) const {
    if (!before.told) {
      return false;
    }
    const uint32_t set = meaning_.set(node);
    const Letters below = set == 0 ? self_.letters_of(meaning_, node) : meaning_.sets[set];
    const bool whole = set != 0 || self_.trie_.end(node) == node + 1;
    return whole && !below.unclear && (below.ascii & before.differing.ascii).none() &&
           !(below.separators && before.differing.separators) &&
           !(below.others && before.differing.others);
  }

  void clear_below(Node node, MaskWords& words) const {
    for (const Token token : self_.trie_.tokens_below(node)) {
      set_token(words, token, false);
    }
  }

  /// True when all texts of the subtree go on in the language; asked of larger ones only.
  bool stays_inside(RegexId language, Node node) const {
    const uint32_t set = meaning_.set(node);
    if (set == 0 || language == RegexStore::kNothing) {
      return false;
    }
    const Letters& below = meaning_.sets[set];
    const Letters& always = self_.always(language, meaning_.longest);
    return !below.unclear && (below.ascii & ~always.ascii).none() &&
           (always.separators || !below.separators) && (always.others || !below.others);
  }

  bool closes(RegexId language) const {
    return language != RegexStore::kNothing && self_.regexes_.matches_empty(language);
  }

  RegexId step(RegexId language, Node node, char32_t point) {
    if (language == RegexStore::kNothing || language == RegexStore::kAll) {
      return language;
    }
    if (point < Meaning::kPart) {
      return self_.regexes_.next(language, point);
    }
    const High& high = above_ascii(language);
    const bool utf8 = self_.trie_.byte(node) >= 0x80;
    if (utf8 && (high.one || high.always)) {
      return high.always || high.target != RegexStore::kNothing ? language : RegexStore::kNothing;
    }
    const auto reach = meaning_.parts[point - Meaning::kPart].reach(escapes_);
    return self_.regexes_.goes_on(language, reach) ? language : RegexStore::kNothing;
  }

  /// What follows after characters beyond ASCII.
  struct High {
    bool one = false;     ///< the same after all of them: `target`
    bool always = false;  ///< something after each of them
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
      entry->second.always = std::all_of(first, all.end(), [&](const auto& part) {
        return part.target != RegexStore::kNothing || part.last == 0xDFFF;
      });
      entry->second.target = first->target;
    }
    return entry->second;
  }

  bool same_above_ascii(RegexId a, RegexId b) {
    if (a == b) {
      return true;
    }
    const High left = a == RegexStore::kNothing ? High{true, false, a} : above_ascii(a);
    const High right = b == RegexStore::kNothing ? High{true, false, b} : above_ascii(b);
    return left.one && right.one && left.target == right.target;
  }

  void quote(Node node, bool before, bool now) {
    if (before != now) {
      for (const Token token : self_.trie_.tokens_below(node)) {
        set_token(close_, token, now);
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

/// A language that was walked before and whose walk differs little from this one's: it goes on to
/// the same after most characters, or dies of the same letters.
RegexId StringMasks::nearest(RegexId language, const Meaning& meaning, EscapeStyle escapes) {
  constexpr size_t kOthers = 128;  // as much as all of ASCII: half of the pieces hold others
  constexpr size_t kEnough = 16;
  constexpr size_t kMost = 64;
  const std::optional<Letters> own = never(language);
  std::bitset<128> alive;
  std::array<RegexId, 128> nexts = {};
  for (char32_t c = 0x20; c < 0x7F; ++c) {
    nexts[c] = regexes_.next(language, c);
    alive[c] = nexts[c] != RegexStore::kNothing;
  }
  const Letters& own_always = always(language, meaning.longest);
  const bool most_pieces = own_always.others && own_always.ascii.count() > kMost &&
                           everything_[escapes]->bits != nullptr;
  RegexId best = most_pieces ? RegexStore::kAll : RegexStore::kNothing;
  size_t most = most_pieces ? kOthers : kEnough;
  for (const RegexId candidate : recent_[escapes]) {
    const std::optional<Letters> theirs = never(candidate);
    size_t same = 0;
    if (own && theirs) {
      same = (~(own->ascii ^ theirs->ascii) & alive).count();
      same += own->others == theirs->others ? kOthers : 0;
    } else {
      for (char32_t c = 0x20; c < 0x7F; ++c) {
        same += alive[c] && nexts[c] == regexes_.next(candidate, c) ? 1 : 0;
      }
    }
    if (same > most) {
      most = same;
      best = candidate;
    }
  }
  return best;
}

/// With few tokens inside, these are listed as they are met; nothing when there are too many.
std::unique_ptr<StringMasks::Walk> StringMasks::walk_few(RegexId language, const Meaning& meaning,
                                                         EscapeStyle escapes) {
  constexpr ptrdiff_t kFewLetters = 24;
  std::bitset<128> alive;
  for (const RegexStore::Transition& part : regexes_.transitions(language)) {
    const char32_t first = part.last;
    if (first >= 0x80 && part.target != RegexStore::kNothing) {
      return nullptr;
    }
  }
  for (char32_t c = 0; c < 0x80; ++c) {
    alive[c] = regexes_.next(language, c) != RegexStore::kNothing;
  }
  if (static_cast<ptrdiff_t>(alive.count()) > kFewLetters) {
    return nullptr;
  }
  auto walk = std::make_unique<Walk>();
  alive.set('"');
  alive.set('\\');
  for (size_t byte = 0; byte < alive.size() && walk->inside.size() < kDense; ++byte) {
    const Node child = alive[byte] ? trie_.child(0, static_cast<uint8_t>(byte)) : TokenTrie::kNone;
    if (child != TokenTrie::kNone) {
      list_from(child, language, meaning, escapes, *walk);
    }
  }
  if (walk->inside.size() >= kDense) {
    return nullptr;
  }
  std::sort(walk->exits.begin(), walk->exits.end(), [](const Exit& a, const Exit& b) {
    return a.remainder != b.remainder ? a.remainder < b.remainder : a.token < b.token;
  });
  return walk;
}

/// The tokens that begin with one byte.
void StringMasks::list_from(Node root, RegexId language, const Meaning& meaning,
                            EscapeStyle escapes, Walk& walk) {
  std::vector<RegexId> path = {language};  // by depth
  for (Node node = root; node < trie_.end(root);) {
    path.resize(trie_.depth(node));
    const char32_t point = meaning.points[node];
    RegexId next = path.back();
    if (point == Meaning::kQuote && regexes_.matches_empty(next)) {
      for (const Token token : trie_.tokens_below(node)) {
        const auto index = static_cast<size_t>(token);
        walk.exits.push_back({meaning.remainders[index], token, meaning.lengths[index]});
      }
    }
    if (point <= CodePoints::kLast) {
      next = regexes_.next(next, point);
    } else if (point < Meaning::kPart ||
               !regexes_.goes_on(next, meaning.parts[point - Meaning::kPart].reach(escapes))) {
      next = RegexStore::kNothing;
    }
    if (next == RegexStore::kNothing) {
      node = trie_.end(node);
      continue;
    }
    for (const Token token : trie_.tokens(node)) {
      walk.inside.push_back({token, meaning.lengths[static_cast<size_t>(token)]});
    }
    path.push_back(next);
    ++node;
  }
}

void StringMasks::keep_bits(const Meaning& meaning, const MaskWords& inside, const MaskWords& close,
                            Walk& walk) {
  auto bits = std::make_shared<MaskWords>(inside.size());
  for (size_t i = 0; i < bits->size(); ++i) {
    (*bits)[i] = inside[i] | (close[i] & meaning.plain_close[i]);
  }
  walk.bits = std::move(bits);
  walk.closing.resize((meaning.closing.size() + 31) / 32);
  for (size_t i = 0; i < meaning.closing.size(); ++i) {
    set_token(walk.closing, static_cast<Token>(i), has_token(close, meaning.closing[i]));
  }
}

void StringMasks::keep_lists(const Meaning& meaning, const MaskWords& inside,
                             const MaskWords& close, Walk& walk) {
  for (size_t word = 0; word < inside.size(); ++word) {
    for (uint32_t rest = inside[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      walk.inside.push_back({static_cast<Token>(token), meaning.lengths[token]});
    }
    for (uint32_t rest = close[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      walk.exits.push_back(
          {meaning.remainders[token], static_cast<Token>(token), meaning.lengths[token]});
    }
  }
  std::stable_sort(walk.exits.begin(), walk.exits.end(),
                   [](const Exit& a, const Exit& b) { return a.remainder < b.remainder; });
}

std::unique_ptr<StringMasks::Walk> StringMasks::walk_all(RegexId language, EscapeStyle escapes) {
  Meaning& meaning = this->meaning(escapes);
  if (auto few = walk_few(language, meaning, escapes)) {
    return few;
  }
  MaskWords inside(word_count());
  MaskWords close(word_count());
  const RegexId from =
      language == RegexStore::kAll ? RegexStore::kNothing : nearest(language, meaning, escapes);
  if (from != RegexStore::kNothing) {
    const std::shared_ptr<const Walk> known = walk(0, from, escapes);
    for (size_t i = 0; i < inside.size(); ++i) {
      inside[i] = (*known->bits)[i] & ~meaning.plain_close[i];
      close[i] = (*known->bits)[i] & meaning.plain_close[i];
    }
    for (size_t i = 0; i < meaning.closing.size(); ++i) {
      set_token(close, meaning.closing[i], has_token(known->closing, static_cast<Token>(i)));
    }
  }
  Difference(*this, meaning, escapes, inside, close).run(from, language);
  size_t count = 0;
  for (size_t word = 0; word < inside.size() && count < kDense; ++word) {
    count += static_cast<size_t>(std::popcount(inside[word]));
  }
  auto result = std::make_unique<Walk>();
  if (count < kDense) {
    keep_lists(meaning, inside, close, *result);
    return result;
  }
  keep_bits(meaning, inside, close, *result);
  return result;
}

/// Walks with bits are what others begin from.
void StringMasks::remember(RegexId language, EscapeStyle escapes) {
  std::list<RegexId>& recent = recent_[escapes];
  recent.push_front(language);
  if (recent.size() > kRecent) {
    const auto oldest = std::find_if(recent.rbegin(), recent.rend(),
                                     [](RegexId id) { return id != RegexStore::kAll; });
    recent.erase(std::prev(oldest.base()));
  }
}

std::unique_ptr<StringMasks::Walk> StringMasks::walk_whole(RegexId language, EscapeStyle escapes) {
  std::unique_ptr<Walk> walk = read_walk(language, escapes);
  if (walk == nullptr) {
    walk = walk_all(language, escapes);
    ++walks_;
    ++made_;
  }
  if (walk->bits != nullptr) {
    remember(language, escapes);
  }
  return walk;
}
}  // namespace specdec
