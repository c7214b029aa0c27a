#include "grammar/masks/language_walks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <optional>
#include <span>
#include <vector>

#include "grammar/masks/walk_difference.h"

namespace specdec {
namespace {

constexpr size_t kDense = 1'000;  ///< tokens from which on bits are shorter than a list

void keep_bits(const TokenSpelling& spelling, const MaskWords& inside, const MaskWords& close,
               StringTraversal& walk) {
  auto bits = std::make_shared<MaskWords>(inside.size());
  for (size_t i = 0; i < bits->size(); ++i) {
    (*bits)[i] = inside[i] | (close[i] & spelling.plain_close[i]);
  }
  walk.bits = std::move(bits);
  walk.closing.resize((spelling.closing.size() + 31) / 32);
  for (size_t i = 0; i < spelling.closing.size(); ++i) {
    set_token(walk.closing, static_cast<Token>(i), has_token(close, spelling.closing[i]));
  }
}

void keep_lists(const TokenSpelling& spelling, const MaskWords& inside, const MaskWords& close,
                StringTraversal& walk) {
  for (size_t word = 0; word < inside.size(); ++word) {
    for (uint32_t rest = inside[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      walk.inside.push_back({static_cast<Token>(token), spelling.lengths[token]});
    }
    for (uint32_t rest = close[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(__builtin_ctz(rest));
      walk.exits.push_back(
          {spelling.remainders[token], static_cast<Token>(token), spelling.lengths[token]});
    }
  }
  std::stable_sort(walk.exits.begin(), walk.exits.end(),
                   [](const StringTraversal::Exit& a, const StringTraversal::Exit& b) {
                     return a.remainder < b.remainder;
                   });
}

}  // namespace

std::unique_ptr<StringTraversal> LanguageWalks::below(Node root, RegexId language,
                                                      const Escapes& escapes) {
  struct Reader {
    RegexId language;
    JsonStringDecoder decoder;
    uint32_t length;
  };
  auto walk = std::make_unique<StringTraversal>();
  const uint32_t top = trie_.depth(root);
  std::vector<Reader> path = {{language, {}, 0}};
  for (Node node = root + 1; node < trie_.end(root);) {
    path.resize(trie_.depth(node) - top);
    Reader reader = path.back();
    const uint8_t byte = trie_.byte(node);
    if (byte == '"' && reader.decoder.idle()) {
      const bool closes = regexes_.matches_empty(reader.language);
      for (Node after = node; closes && after < trie_.end(node); ++after) {
        for (const Token token : trie_.tokens(after)) {
          walk->exits.push_back({remainders_.after(node, after), token, reader.length});
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = reader.decoder.idle();
    reader.length += begins ? 1 : 0;
    bool alive = reader.decoder.take(byte, escapes, point);
    if (alive && point) {
      reader.language = regexes_.next(reader.language, *point);
      alive = reader.language != RegexStore::kNothing;
    } else if (alive) {
      alive = regexes_.goes_on(reader.language, reader.decoder.reach(escapes));
    }
    for (const Token token : alive ? trie_.tokens(node) : std::span<const Token>()) {
      walk->inside.push_back({token, reader.length});
    }
    path.push_back(reader);
    node = alive ? node + 1 : trie_.end(node);
  }
  walk->sort_exits();
  return walk;
}

std::unique_ptr<StringTraversal> LanguageWalks::few(RegexId language, const TokenSpelling& spelling,
                                                    const Escapes& escapes) {
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
  auto walk = std::make_unique<StringTraversal>();
  alive.set('"');
  alive.set('\\');
  for (size_t byte = 0; byte < alive.size() && walk->inside.size() < kDense; ++byte) {
    const Node child = alive[byte] ? trie_.child(0, static_cast<uint8_t>(byte)) : TokenTrie::kNone;
    if (child != TokenTrie::kNone) {
      list_from(child, language, spelling, escapes, *walk);
    }
  }
  if (walk->inside.size() >= kDense) {
    return nullptr;
  }
  walk->sort_exits();
  return walk;
}

/// The tokens that begin with one byte.
void LanguageWalks::list_from(Node root, RegexId language, const TokenSpelling& spelling,
                              const Escapes& escapes, StringTraversal& walk) {
  std::vector<RegexId> path = {language};  // by depth
  for (Node node = root; node < trie_.end(root);) {
    path.resize(trie_.depth(node));
    const char32_t point = spelling.points[node];
    RegexId next = path.back();
    if (point == TokenSpelling::kQuote && regexes_.matches_empty(next)) {
      for (const Token token : trie_.tokens_below(node)) {
        const auto index = static_cast<size_t>(token);
        walk.exits.push_back({spelling.remainders[index], token, spelling.lengths[index]});
      }
    }
    if (point <= CodePoints::kLast) {
      next = regexes_.next(next, point);
    } else if (point < TokenSpelling::kPart ||
               !regexes_.goes_on(next,
                                 spelling.parts[point - TokenSpelling::kPart].reach(escapes))) {
      next = RegexStore::kNothing;
    }
    if (next == RegexStore::kNothing) {
      node = trie_.end(node);
      continue;
    }
    for (const Token token : trie_.tokens(node)) {
      walk.inside.push_back({token, spelling.lengths[static_cast<size_t>(token)]});
    }
    path.push_back(next);
    ++node;
  }
}

std::unique_ptr<StringTraversal> LanguageWalks::differing(RegexId language, const Known& from,
                                                          const TokenSpelling& spelling,
                                                          const Escapes& escapes) {
  MaskWords inside(word_count());
  MaskWords close(word_count());
  if (from.walk != nullptr) {
    const StringTraversal& known = *from.walk;
    for (size_t i = 0; i < inside.size(); ++i) {
      inside[i] = (*known.bits)[i] & ~spelling.plain_close[i];
      close[i] = (*known.bits)[i] & spelling.plain_close[i];
    }
    for (size_t i = 0; i < spelling.closing.size(); ++i) {
      set_token(close, spelling.closing[i], has_token(known.closing, static_cast<Token>(i)));
    }
  }
  WalkDifference({trie_, regexes_, letters_, spelling, escapes}, inside, close)
      .run(from.language, language);
  return keep(inside, close, spelling);
}

std::unique_ptr<StringTraversal> LanguageWalks::keep(const MaskWords& inside,
                                                     const MaskWords& close,
                                                     const TokenSpelling& spelling) const {
  size_t count = 0;
  for (size_t word = 0; word < inside.size() && count < kDense; ++word) {
    count += static_cast<size_t>(std::popcount(inside[word]));
  }
  auto result = std::make_unique<StringTraversal>();
  if (count < kDense) {
    keep_lists(spelling, inside, close, *result);
    return result;
  }
  keep_bits(spelling, inside, close, *result);
  return result;
}

RegexId LanguageWalks::nearest(RegexId language, const TokenSpelling& spelling,
                               const std::list<RegexId>& candidates, bool with_all) {
  constexpr size_t kOthers = 128;  // as much as all of ASCII: half of the pieces hold others
  constexpr size_t kEnough = 16;
  constexpr size_t kMax = 64;
  const std::optional<Letters> own = letters_.never(language);
  std::bitset<128> alive;
  std::array<RegexId, 128> nexts = {};
  for (char32_t c = 0x20; c < 0x7F; ++c) {
    nexts[c] = regexes_.next(language, c);
    alive[c] = nexts[c] != RegexStore::kNothing;
  }
  const Letters& own_always = letters_.always(language, spelling.longest);
  const bool most_pieces = own_always.others && own_always.ascii.count() > kMax && with_all;
  RegexId best = most_pieces ? RegexStore::kAll : RegexStore::kNothing;
  size_t most = most_pieces ? kOthers : kEnough;
  for (const RegexId candidate : candidates) {
    const std::optional<Letters> theirs = letters_.never(candidate);
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

}  // namespace specdec
