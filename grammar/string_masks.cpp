#include "grammar/string_masks.h"

#include <algorithm>
#include <numeric>
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

uint64_t size_of(const StringMasks::Walk& walk) {
  const size_t bits = walk.bits == nullptr ? 0 : walk.bits->size() * sizeof(uint32_t);
  return sizeof walk + bits + walk.closing.size() / 8 +
         walk.inside.size() * sizeof(StringMasks::Inside) +
         walk.exits.size() * sizeof(StringMasks::Exit);
}

void set_bit(MaskWords& words, Token token, bool value) {
  const uint32_t mask = 1U << (token % 32);
  uint32_t& word = words[static_cast<size_t>(token) / 32];
  word = value ? word | mask : word & ~mask;
}

}  // namespace

StringMasks::StringMasks(const TokenTrie& trie, RegexStore& regexes, uint64_t max_bytes)
    : trie_(trie), regexes_(regexes), max_bytes_(max_bytes) {
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
  for (const std::string_view text : texts) {
    has_string_.push_back(std::count(text.begin(), text.end(), '"') > 1);
    ends_item_.push_back(text == "]" || text == "," || text == ", " || text == ",\"" ||
                         text == ", \"");
  }
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
  };
  auto walk = std::make_unique<Walk>();
  const uint32_t top = trie_.depth(root);
  std::vector<Place> path = {{language, {}, 0}};
  for (Node node = root + 1; node < trie_.end(root);) {
    path.resize(trie_.depth(node) - top);
    Place place = path.back();
    const uint8_t byte = trie_.byte(node);
    if (byte == '"' && place.decoder.idle()) {
      const bool closes = regexes_.matches_empty(place.language);
      for (Node after = node; closes && after < trie_.end(node); ++after) {
        for (const Token token : trie_.tokens(after)) {
          walk->exits.push_back({remainder_after(node, after), token, place.length});
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = place.decoder.idle();
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
  };
  meaning.points.assign(trie_.size(), Meaning::kNothing);
  meaning.lengths.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.remainders.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.plain_close.assign(word_count(), 0);
  meaning.inside.assign(word_count(), 0);
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
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = place.decoder.idle();
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
      set_bit(meaning.inside, token, true);
    }
    path.push_back(place);
    ++node;
  }
  meaning.longest = *std::max_element(meaning.lengths.begin(), meaning.lengths.end());
  read_letters(meaning);
  std::sort(meaning.closing.begin(), meaning.closing.end(), [&](Token a, Token b) {
    const uint32_t left = meaning.remainders[static_cast<size_t>(a)];
    const uint32_t right = meaning.remainders[static_cast<size_t>(b)];
    return left != right ? left < right : a < b;
  });
  meaning.first_closing.assign(static_cast<size_t>(remainders_->vocab_size()) + 1, 0);
  for (const Token token : meaning.closing) {
    ++meaning.first_closing[meaning.remainders[static_cast<size_t>(token)] + 1];
  }
  std::partial_sum(meaning.first_closing.begin(), meaning.first_closing.end(),
                   meaning.first_closing.begin());
}

StringMasks::Letters StringMasks::letters_of(const Meaning& meaning, Node node) const {
  Letters letters;
  const char32_t point = meaning.points[node];
  if (point < 0x80) {
    letters.ascii.set(point);
  } else if (point == 0x2028 || point == 0x2029) {
    letters.separators = true;
  } else if (point < Meaning::kPart) {
    letters.others = true;
  } else if (point == Meaning::kPart) {
    const JsonStringDecoder& part = meaning.parts.at(node);
    const bool escape = part.phase != JsonStringDecoder::Phase::kUtf8;
    letters.unclear = escape && part.phase != JsonStringDecoder::Phase::kBackslash;
    letters.others =
        !escape;  // it may become one of 64 characters or more, so never a separator only
  }
  return letters;
}

/// Which letters each larger subtree holds, from the leaves up.
void StringMasks::read_letters(Meaning& meaning) {
  constexpr Node kLarge = 8;  ///< nodes from which on a subtree is worth it
  meaning.has_quote.assign(trie_.size(), false);
  meaning.letters.assign(trie_.size(), 0);
  meaning.sets.assign(1, {});
  std::vector<Node> open = {0};
  std::vector<Letters> sets(1);
  const auto close = [&](Node end) {
    while (open.size() > 1 && trie_.end(open.back()) <= end) {
      const Node node = open.back();
      const Letters set = sets.back();
      if (trie_.end(node) - node >= kLarge) {
        meaning.letters[node] = static_cast<uint32_t>(meaning.sets.size());
        meaning.sets.push_back(set);
      }
      open.pop_back();
      sets.pop_back();
      sets.back().ascii |= set.ascii;
      sets.back().separators |= set.separators;
      sets.back().others |= set.others;
      sets.back().unclear |= set.unclear;
      if (meaning.has_quote[node]) {
        meaning.has_quote[open.back()] = true;
      }
    }
  };
  for (Node node = 1; node < trie_.size();) {
    close(node);
    const char32_t point = meaning.points[node];
    const bool ends = point == Meaning::kQuote || point == Meaning::kNothing;
    meaning.has_quote[node] = point == Meaning::kQuote;
    if (meaning.has_quote[node]) {
      meaning.has_quote[open.back()] = true;
    }
    if (!ends) {
      open.push_back(node);
      sets.push_back(letters_of(meaning, node));
    }
    node = ends ? trie_.end(node) : node + 1;
  }
  close(trie_.size());
}

/// The letters after which nothing of the language goes on, when these are the same all the way
/// through it: then a text goes on exactly if it holds none of them.
std::optional<StringMasks::Letters> StringMasks::find_never(RegexId language) {
  constexpr size_t kMaxStates = 64;
  std::vector<RegexId> reached = {language};
  std::optional<Letters> result;
  for (size_t i = 0; i < reached.size(); ++i) {
    Letters dead;
    bool some_live = false;
    char32_t first = 0;
    for (const RegexStore::Transition& part : regexes_.transitions(reached[i])) {
      const bool live = part.target != RegexStore::kNothing;
      if (live && std::find(reached.begin(), reached.end(), part.target) == reached.end()) {
        reached.push_back(part.target);
      }
      for (char32_t c = first; !live && c < 0x80 && c <= part.last; ++c) {
        dead.ascii.set(c);
      }
      const bool separators = first <= 0x2028 && part.last >= 0x2029;
      const bool surrogates = first >= 0xD800 && part.last <= 0xDFFF;
      const bool split = (first == 0x2028 || first == 0x2029) && part.last <= 0x2029;
      dead.separators |= !live && (separators || split);
      const bool others = part.last >= 0x80 && !surrogates && !split;
      dead.others |= !live && others;
      some_live |= live && others;
      first = part.last + 1;
    }
    const bool mixed = dead.others && some_live;
    const bool differs = result && (result->ascii != dead.ascii || result->others != dead.others ||
                                    result->separators != dead.separators);
    if (mixed || differs || reached.size() > kMaxStates) {
      return std::nullopt;
    }
    result = dead;
  }
  return result;
}

const std::optional<StringMasks::Letters>& StringMasks::never(RegexId language) {
  const auto found = never_.find(language);
  if (found != never_.end()) {
    return found->second;
  }
  return never_[language] = language == RegexStore::kNothing ? std::nullopt : find_never(language);
}

/// Letters that go on and on: no text of these, as long as a token or shorter, leaves the language.
/// Those that lead to the same language as most letters do, and do so again there, and so on.
StringMasks::Letters StringMasks::find_always(RegexId language, uint32_t longest) {
  Letters result;
  result.ascii.set();
  result.separators = result.others = true;
  for (uint32_t step = 0; step < longest && language != RegexStore::kNothing; ++step) {
    std::map<RegexId, Letters> by_target;
    bool others_alike = true;
    char32_t first = 0;
    RegexId others = RegexStore::kNothing;
    for (const RegexStore::Transition& part : regexes_.transitions(language)) {
      Letters& letters = by_target[part.target];
      for (char32_t c = first; c < 0x80 && c <= part.last; ++c) {
        letters.ascii.set(c);
      }
      letters.separators |= first <= 0x2028 && part.last >= 0x2029;
      const bool apart = part.last == 0xDFFF || (first >= 0x2028 && part.last <= 0x2029);
      if (part.last >= 0x80 && !apart) {
        others_alike &= others == RegexStore::kNothing || others == part.target;
        others = part.target;
        others_alike &= others != RegexStore::kNothing;
      }
      first = part.last + 1;
    }
    if (others_alike && others != RegexStore::kNothing) {
      by_target[others].others = true;
    }
    by_target.erase(RegexStore::kNothing);
    const auto most =
        std::max_element(by_target.begin(), by_target.end(), [](const auto& a, const auto& b) {
          return a.second.ascii.count() < b.second.ascii.count();
        });
    if (most == by_target.end()) {
      return {};
    }
    result.ascii &= most->second.ascii;
    result.separators &= most->second.separators;
    result.others &= most->second.others;
    if (most->first == language) {
      return result;
    }
    language = most->first;
  }
  return result;
}

StringMasks::Letters StringMasks::letters_in(const CodePoints& points) {
  constexpr std::array<CodePoints::Range, 3> kOthers = {
      {{0x80, 0x2027}, {0x202A, 0xD7FF}, {0xE000, CodePoints::kLast}}};
  Letters letters;
  for (char32_t c = 0; c < 0x80; ++c) {
    letters.ascii[c] = points.contains(c);
  }
  letters.separators = points.contains(0x2028) && points.contains(0x2029);
  letters.others =
      std::all_of(kOthers.begin(), kOthers.end(), [&](const CodePoints::Range& wanted) {
        return std::any_of(points.ranges().begin(), points.ranges().end(),
                           [&](const CodePoints::Range& range) {
                             return range.first <= wanted.first && wanted.last <= range.last;
                           });
      });
  return letters;
}

const StringMasks::Letters& StringMasks::always(RegexId language, uint32_t longest) {
  const auto [place, fresh] = always_.try_emplace(language);
  if (fresh) {
    const Letters chain = find_always(language, longest);
    const Letters loop = letters_in(regexes_.loop_of(language));
    place->second = loop.ascii.count() > chain.ascii.count() ? loop : chain;
  }
  return place->second;
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
    std::vector<Place> path(512);
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
      if (same_inside && !meaning_.has_quote[node]) {
        node = trie.end(node);
        continue;
      }
      const bool high = point == Meaning::kPart && trie.byte(node) >= 0xC0;
      if (high && same_above_ascii(before_from, before_to)) {
        node = trie.end(node);
        continue;
      }
      if (!meaning_.has_quote[node] && before_from != before_to && stays_inside(before_to, node)) {
        if (before_from != RegexStore::kAll) {
          for (const Token token : trie.tokens_below(node)) {
            set_bit(inside_, token, bit(meaning_.inside, token));
          }
        }
        node = trie.end(node);
        continue;
      }
      const RegexId now_from = step(before_from, node, point);
      const RegexId now_to = step(before_to, node, point);
      if (now_to == RegexStore::kNothing && now_from != now_to) {
        clear_below(node, inside_);
        if (meaning_.has_quote[node]) {
          clear_below(node, close_);
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
    const uint32_t set = meaning_.letters[node];
    const Letters below = set == 0 ? self_.letters_of(meaning_, node) : meaning_.sets[set];
    const bool whole = set != 0 || self_.trie_.end(node) == node + 1;
    return whole && !below.unclear && (below.ascii & before.differing.ascii).none() &&
           !(below.separators && before.differing.separators) &&
           !(below.others && before.differing.others);
  }

  void clear_below(Node node, MaskWords& words) const {
    for (const Token token : self_.trie_.tokens_below(node)) {
      set_bit(words, token, false);
    }
  }

  /// True when all texts of the subtree go on in the language; asked of larger ones only.
  bool stays_inside(RegexId language, Node node) const {
    const uint32_t set = meaning_.letters[node];
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
    if (point != Meaning::kPart) {
      return self_.regexes_.next(language, point);
    }
    const High& high = above_ascii(language);
    const bool utf8 = self_.trie_.byte(node) >= 0x80;
    if (utf8 && (high.one || high.always)) {
      return high.always || high.target != RegexStore::kNothing ? language : RegexStore::kNothing;
    }
    const auto reach = meaning_.parts.at(node).reach(escapes_);
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
  std::vector<RegexId> path(64);
  const auto visit = [&](Node root) {
    for (Node node = root; node < trie_.end(root);) {
      const uint32_t depth = trie_.depth(node);
      path.resize(std::max<size_t>(path.size(), depth + 1));
      const char32_t point = meaning.points[node];
      RegexId next = path[depth - 1];
      if (point == Meaning::kQuote && regexes_.matches_empty(next)) {
        for (const Token token : trie_.tokens_below(node)) {
          const auto index = static_cast<size_t>(token);
          walk->exits.push_back({meaning.remainders[index], token, meaning.lengths[index]});
        }
      }
      if (point < Meaning::kPart) {
        next = regexes_.next(next, point);
      } else if (point != Meaning::kPart ||
                 !regexes_.goes_on(next, meaning.parts.at(node).reach(escapes))) {
        next = RegexStore::kNothing;
      }
      if (next == RegexStore::kNothing) {
        node = trie_.end(node);
        continue;
      }
      for (const Token token : trie_.tokens(node)) {
        walk->inside.push_back({token, meaning.lengths[static_cast<size_t>(token)]});
      }
      path[depth] = next;
      ++node;
    }
  };
  path[0] = language;
  alive.set('"');
  alive.set('\\');
  for (size_t byte = 0; byte < alive.size() && walk->inside.size() < kDense; ++byte) {
    const Node child = alive[byte] ? trie_.child(0, static_cast<uint8_t>(byte)) : TokenTrie::kNone;
    if (child != TokenTrie::kNone) {
      visit(child);
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

void StringMasks::keep_bits(const Meaning& meaning, const MaskWords& inside, const MaskWords& close,
                            Walk& walk) {
  auto bits = std::make_shared<MaskWords>(inside.size());
  for (size_t i = 0; i < bits->size(); ++i) {
    (*bits)[i] = inside[i] | (close[i] & meaning.plain_close[i]);
  }
  walk.bits = std::move(bits);
  for (const Token token : meaning.closing) {
    walk.closing.push_back(bit(close, token));
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
  ++walks_;
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
      set_bit(close, meaning.closing[i], known->closing[i]);
    }
  }
  Difference(*this, meaning, escapes, inside, close).run(from, language);
  size_t count = 0;
  for (const uint32_t word : inside) {
    count += static_cast<size_t>(__builtin_popcount(word));
  }
  auto result = std::make_unique<Walk>();
  if (count < kDense) {
    keep_lists(meaning, inside, close, *result);
    return result;
  }
  keep_bits(meaning, inside, close, *result);
  std::list<RegexId>& recent = recent_[escapes];
  recent.push_front(language);
  if (recent.size() > kRecent) {
    const auto oldest = std::find_if(recent.rbegin(), recent.rend(),
                                     [](RegexId id) { return id != RegexStore::kAll; });
    recent.erase(std::prev(oldest.base()));
  }
  return result;
}

size_t StringMasks::KeyHash::operator()(const Key& key) const {
  WordHash hash;
  for (const uint64_t word : key) {
    hash.add(word);
  }
  return hash.value();
}

void StringMasks::keep(const Key& key, std::shared_ptr<const Walk> walk) {
  walk_bytes_ += size_of(*walk);
  kept_walks_.add(key, std::move(walk));
  while (walk_bytes_ > max_bytes_ / 2 && kept_walks_.size() > 1) {
    const auto [oldest, dropped] = kept_walks_.drop();
    walk_bytes_ -= size_of(*dropped);
    if (oldest[0] == 0) {
      recent_[static_cast<EscapeStyle>(oldest[2])].remove(static_cast<RegexId>(oldest[1]));
    }
  }
}

const StringMasks::Combined& StringMasks::keep(const Key& key, Combined combined) {
  const uint64_t bytes = 3 * word_count() * sizeof(uint32_t);  // it may be the last to hold them
  while (kept_bits_.size() > 1 && (kept_bits_.size() + 1) * bytes > max_bytes_ / 2) {
    kept_bits_.drop();
  }
  return kept_bits_.add(key, std::move(combined));
}

std::shared_ptr<const StringMasks::Walk> StringMasks::walk(Node node, RegexId language,
                                                           EscapeStyle escapes) {
  if (node == 0 && language == RegexStore::kAll) {
    std::shared_ptr<const Walk>& everything = everything_[escapes];
    everything = everything == nullptr ? walk_all(language, escapes) : everything;
    return everything;
  }
  const Key key = {node, language, static_cast<uint64_t>(escapes), 0};
  if (const auto* found = kept_walks_.find(key)) {
    return *found;
  }
  if (node == 0) {
    walk(0, RegexStore::kAll, escapes);  // what most languages are nearest to
  }
  std::shared_ptr<const Walk> made =
      node == 0 ? walk_all(language, escapes) : walk_below(node, language, escapes);
  keep(key, made);
  return made;
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
  const uint64_t max = std::min<uint64_t>(lengths.max, meaning.longest);
  const bool closes = may_close && lengths.min <= max;
  if (max == meaning.longest && closes && lengths.min == 0) {
    return walk.bits;
  }
  const Lengths range = {closes ? lengths.min : meaning.longest + 1, max};
  const Key key = {reinterpret_cast<uintptr_t>(walk.bits.get()), 0, range.min, range.max};
  if (const Combined* found = kept_bits_.find(key)) {
    return found->result;
  }
  const MaskWords& short_enough = at_most(meaning, max);
  const MaskWords* too_short = range.min > 0 ? &at_most(meaning, range.min - 1) : nullptr;
  auto words = std::make_shared<MaskWords>(word_count());
  for (size_t i = 0; i < words->size(); ++i) {
    const uint32_t forbidden = too_short == nullptr ? 0 : (*too_short)[i];
    (*words)[i] = (*walk.bits)[i] & short_enough[i] & ~(meaning.plain_close[i] & forbidden);
  }
  return keep(key, {walk.bits, nullptr, std::move(words)}).result;
}

std::shared_ptr<const MaskWords> StringMasks::unite(const std::shared_ptr<const MaskWords>& a,
                                                    const std::shared_ptr<const MaskWords>& b) {
  if (a == b) {
    return a;
  }
  const Key key = {reinterpret_cast<uintptr_t>(a.get()), reinterpret_cast<uintptr_t>(b.get()), 0,
                   0};
  if (const Combined* found = kept_bits_.find(key)) {
    return found->result;
  }
  auto words = std::make_shared<MaskWords>(*a);
  for (size_t i = 0; i < words->size(); ++i) {
    (*words)[i] |= (*b)[i];
  }
  std::shared_ptr<const MaskWords> result = *words == *a ? a : *words == *b ? b : std::move(words);
  return keep(key, {a, b, std::move(result)}).result;
}

std::vector<StringMasks::Exit> StringMasks::exits(const Walk& walk, EscapeStyle escapes,
                                                  uint32_t remainder) {
  if (walk.bits == nullptr) {
    const auto [first, last] =
        std::equal_range(walk.exits.begin(), walk.exits.end(), Exit{.remainder = remainder},
                         [](const Exit& a, const Exit& b) { return a.remainder < b.remainder; });
    return {first, last};
  }
  std::vector<Exit> found;
  const Meaning& meaning = this->meaning(escapes);
  for (size_t i = meaning.first_closing[remainder]; i < meaning.first_closing[remainder + 1]; ++i) {
    const Token token = meaning.closing[i];
    if (walk.closing[i]) {
      found.push_back({remainder, token, meaning.lengths[static_cast<size_t>(token)]});
    }
  }
  return found;
}

}  // namespace specdec
