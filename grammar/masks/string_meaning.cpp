// What the bytes of tokens mean inside strings, and which letters languages go on with.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "grammar/masks/string_masks.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

}  // namespace

StringMasks::Meaning& StringMasks::meaning(EscapeStyle escapes) {
  Meaning& meaning = meanings_[escapes];
  if (meaning.points.empty()) {
    if (!read_meaning(escapes, meaning)) {
      find_meaning(escapes, meaning);
    }
    meaning.longest = *std::max_element(meaning.lengths.begin(), meaning.lengths.end());
  }
  return meaning;
}

void StringMasks::find_meaning(EscapeStyle escapes, Meaning& meaning) {
  struct Place {
    JsonStringDecoder decoder;
    uint32_t length = 0;
  };
  ++made_;
  meaning.points.assign(trie_.size(), Meaning::kNothing);
  meaning.lengths.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.remainders.assign(static_cast<size_t>(trie_.vocab_size()), 0);
  meaning.plain_close.assign(word_count(), 0);
  meaning.inside.assign(word_count(), 0);
  std::unordered_map<uint64_t, char32_t> parts;  // by decoder
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
            set_token(meaning.plain_close, token, true);
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
    if (!point) {
      const auto next = static_cast<char32_t>(Meaning::kPart + meaning.parts.size());
      const auto [part, fresh] = parts.try_emplace(place.decoder.key(), next);
      if (fresh) {
        meaning.parts.push_back(place.decoder);
      }
      point = part->second;
    }
    meaning.points[node] = *point;
    for (const Token token : trie_.tokens(node)) {
      meaning.lengths[static_cast<size_t>(token)] = place.length;
      set_token(meaning.inside, token, true);
    }
    path.push_back(place);
    ++node;
  }
  find_letters(meaning);
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
  } else if (point <= CodePoints::kLast) {
    letters.others = true;
  } else if (point >= Meaning::kPart) {
    const JsonStringDecoder& part = meaning.parts[point - Meaning::kPart];
    const bool escape = part.phase != JsonStringDecoder::Phase::kUtf8;
    letters.unclear = escape && part.phase != JsonStringDecoder::Phase::kBackslash;
    letters.others =
        !escape;  // it may become one of 64 characters or more, so never a separator only
  }
  return letters;
}

/// Which letters each larger subtree holds, from the leaves up.
void StringMasks::find_letters(Meaning& meaning) {
  constexpr Node kLarge = 8;  ///< nodes from which on a subtree is worth it
  meaning.letters.assign(trie_.size(), 0);
  meaning.sets.assign(1, {});
  std::vector<Node> open = {0};
  std::vector<Letters> sets(1);
  const auto add = [](Letters& all, const Letters& more) {
    all.ascii |= more.ascii;
    all.separators |= more.separators;
    all.others |= more.others;
    all.unclear |= more.unclear;
  };
  const auto close = [&](Node end) {
    while (open.size() > 1 && trie_.end(open.back()) <= end) {
      const Node node = open.back();
      const Letters set = sets.back();
      if (trie_.end(node) - node >= kLarge) {
        meaning.letters[node] += 2 * static_cast<uint32_t>(meaning.sets.size());
        meaning.sets.push_back(set);
      }
      open.pop_back();
      sets.pop_back();
      add(sets.back(), set);
      meaning.letters[open.back()] |= meaning.letters[node] % 2;
    }
  };
  for (Node node = 1; node < trie_.size();) {
    close(node);
    const char32_t point = meaning.points[node];
    const bool ends = point == Meaning::kQuote || point == Meaning::kNothing;
    if (point == Meaning::kQuote) {
      meaning.letters[node] = meaning.letters[open.back()] = 1;
    }
    if (!ends && trie_.end(node) == node + 1) {
      add(sets.back(), letters_of(meaning, node));
    } else if (!ends) {
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
}  // namespace specdec
