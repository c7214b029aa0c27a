#include "grammar/masks/token_spelling.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "grammar/masks/mask_cache_kinds.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

CacheKey spelling_key(EscapeStyle escapes) {
  return {.kind = kSpelling, .item = {static_cast<uint64_t>(escapes), 0}};
}

size_t words_of(const TokenTrie& trie) {
  return static_cast<size_t>((trie.vocab_size() + 31) / 32);
}

/// Walks the tree once, from a string's beginning, and notes what each byte means.
class SpellingWalk {
 public:
  SpellingWalk(const TokenTrie& trie, const QuoteRemainders& remainders, const Escapes& escapes,
               TokenSpelling& spelling)
      : trie_(trie), remainders_(remainders), escapes_(escapes), spelling_(spelling) {
    const auto tokens = static_cast<size_t>(trie_.vocab_size());
    spelling_.points.assign(trie_.size(), TokenSpelling::kNothing);
    spelling_.lengths.assign(tokens, 0);
    spelling_.remainders.assign(tokens, 0);
    spelling_.plain_close.assign(words_of(trie_), 0);
    spelling_.inside.assign(words_of(trie_), 0);
  }

  void run() {
    std::vector<Reader> path(1);
    for (Node node = 1; node < trie_.size();) {
      path.resize(trie_.depth(node));
      Reader reader = path.back();
      if (trie_.byte(node) == '"' && reader.decoder.idle()) {
        close(node, reader.length);
        node = trie_.end(node);
      } else if (take(node, reader)) {
        path.push_back(reader);
        ++node;
      } else {
        node = trie_.end(node);
      }
    }
  }

 private:
  /// A reader at a node: in which character it is, and how many have begun.
  struct Reader {
    JsonStringDecoder decoder;
    uint32_t length = 0;
  };

  void close(Node quote, uint32_t length) {
    spelling_.points[quote] = TokenSpelling::kQuote;
    for (Node after = quote; after < trie_.end(quote); ++after) {
      for (const Token token : trie_.tokens(after)) {
        const auto index = static_cast<size_t>(token);
        spelling_.lengths[index] = length;
        spelling_.remainders[index] = remainders_.after(quote, after);
        if (after != quote) {
          spelling_.closing.push_back(token);
        } else {
          set_token(spelling_.plain_close, token, true);
        }
      }
    }
  }

  bool take(Node node, Reader& reader) {
    std::optional<char32_t> point;
    reader.length += reader.decoder.idle() ? 1 : 0;
    if (!reader.decoder.take(trie_.byte(node), escapes_, point)) {
      return false;
    }
    spelling_.points[node] = point ? *point : part(reader.decoder);
    for (const Token token : trie_.tokens(node)) {
      spelling_.lengths[static_cast<size_t>(token)] = reader.length;
      set_token(spelling_.inside, token, true);
    }
    return true;
  }

  char32_t part(const JsonStringDecoder& decoder) {
    const auto next = static_cast<char32_t>(TokenSpelling::kPart + spelling_.parts.size());
    const auto [known, fresh] = parts_.try_emplace(decoder.key(), next);
    if (fresh) {
      spelling_.parts.push_back(decoder);
    }
    return known->second;
  }

  const TokenTrie& trie_;
  const QuoteRemainders& remainders_;
  const Escapes escapes_;
  TokenSpelling& spelling_;
  std::unordered_map<uint64_t, char32_t> parts_;  ///< by decoder
};

void add_letters(Letters& all, const Letters& more) {
  all.ascii |= more.ascii;
  all.separators |= more.separators;
  all.others |= more.others;
  all.unclear |= more.unclear;
}

/// Which letters each larger subtree holds, from the leaves up.
void find_letters(const TokenTrie& trie, TokenSpelling& spelling) {
  constexpr Node kLarge = 8;  ///< nodes from which on a subtree is worth it
  spelling.letters.assign(trie.size(), 0);
  spelling.sets.assign(1, {});
  std::vector<Node> open = {0};
  std::vector<Letters> sets(1);
  const auto close = [&](Node end) {
    while (open.size() > 1 && trie.end(open.back()) <= end) {
      const Node node = open.back();
      const Letters set = sets.back();
      if (trie.end(node) - node >= kLarge) {
        spelling.letters[node] += 2 * static_cast<uint32_t>(spelling.sets.size());
        spelling.sets.push_back(set);
      }
      open.pop_back();
      sets.pop_back();
      add_letters(sets.back(), set);
      spelling.letters[open.back()] |= spelling.letters[node] % 2;
    }
  };
  for (Node node = 1; node < trie.size();) {
    close(node);
    const char32_t point = spelling.points[node];
    const bool ends = point == TokenSpelling::kQuote || point == TokenSpelling::kNothing;
    if (point == TokenSpelling::kQuote) {
      spelling.letters[node] = spelling.letters[open.back()] = 1;
    }
    if (!ends && trie.end(node) == node + 1) {
      add_letters(sets.back(), spelling.letters_of(node));
    } else if (!ends) {
      open.push_back(node);
      sets.push_back(spelling.letters_of(node));
    }
    node = ends ? trie.end(node) : node + 1;
  }
  close(trie.size());
}

/// Sorts the closing tokens by their remainders.
void sort_closing(uint32_t remainders, TokenSpelling& spelling) {
  std::sort(spelling.closing.begin(), spelling.closing.end(), [&](Token a, Token b) {
    const uint32_t left = spelling.remainders[static_cast<size_t>(a)];
    const uint32_t right = spelling.remainders[static_cast<size_t>(b)];
    return left != right ? left < right : a < b;
  });
  spelling.first_closing.assign(size_t{remainders} + 1, 0);
  for (const Token token : spelling.closing) {
    ++spelling.first_closing[spelling.remainders[static_cast<size_t>(token)] + 1];
  }
  std::partial_sum(spelling.first_closing.begin(), spelling.first_closing.end(),
                   spelling.first_closing.begin());
}

bool read_spelling(const TokenTrie& trie, const QuoteRemainders& all_remainders,
                   EscapeStyle escapes, const CacheFile& cache, TokenSpelling& spelling) {
  const auto vocab_size = static_cast<size_t>(trie.vocab_size());
  return cache.read_parts(spelling_key(escapes), spelling.points, spelling.parts, spelling.lengths,
                          spelling.remainders, spelling.closing, spelling.first_closing,
                          spelling.inside, spelling.plain_close, spelling.letters, spelling.sets) &&
         spelling.points.size() == trie.size() && spelling.lengths.size() == vocab_size &&
         spelling.remainders.size() == vocab_size && spelling.inside.size() == words_of(trie) &&
         spelling.plain_close.size() == words_of(trie) && spelling.letters.size() == trie.size() &&
         spelling.first_closing.size() == size_t{all_remainders.size()} + 1;
}

}  // namespace

TokenSpelling TokenSpelling::make(const TokenTrie& trie, const QuoteRemainders& remainders,
                                  const Escapes& escapes, const CacheFile* cache) {
  TokenSpelling spelling;
  spelling.was_cached =
      cache != nullptr && read_spelling(trie, remainders, escapes.style, *cache, spelling);
  if (!spelling.was_cached) {
    spelling = {};
  }
  spelling.all_escapes = escapes.all();
  if (!spelling.was_cached) {
    SpellingWalk(trie, remainders, escapes, spelling).run();
    find_letters(trie, spelling);
    sort_closing(remainders.size(), spelling);
  }
  spelling.longest = *std::max_element(spelling.lengths.begin(), spelling.lengths.end());
  return spelling;
}

void TokenSpelling::write(CacheFileWriter& file, EscapeStyle escapes) const {
  file.add_parts(spelling_key(escapes), points, parts, lengths, remainders, closing, first_closing,
                 inside, plain_close, letters, sets);
}

uint64_t TokenSpelling::bytes() const {
  const auto of = [](const auto& values) { return values.capacity() * sizeof values[0]; };
  const auto made = std::count_if(shorter.begin(), shorter.end(),
                                  [](const auto& words) { return words != nullptr; });
  return of(points) + of(parts) + of(lengths) + of(remainders) + of(closing) + of(first_closing) +
         of(letters) + of(sets) + (static_cast<uint64_t>(made) + 2) * of(inside);
}

Letters TokenSpelling::letters_of(Node node) const {
  Letters found;
  const char32_t point = points[node];
  if (point < 0x80) {
    found.ascii.set(point);
  } else if (point == 0x2028 || point == 0x2029) {
    found.separators = true;
  } else if (point <= CodePoints::kLast) {
    found.others = true;
  } else if (point >= kPart) {
    const JsonStringDecoder& part = parts[point - kPart];
    const bool escape = part.phase != JsonStringDecoder::Phase::kUtf8;
    found.unclear = escape && !(all_escapes && part.phase == JsonStringDecoder::Phase::kBackslash);
    found.others =
        !escape;  // it may become one of 64 characters or more, so never a separator only
  }
  return found;
}

const MaskWords& TokenSpelling::at_most(uint64_t length) {
  const size_t index = static_cast<size_t>(length);
  if (shorter.size() <= index) {
    shorter.resize(index + 1);
  }
  if (shorter[index] == nullptr) {
    MaskWords words(inside.size());
    for (size_t token = 0; token < lengths.size(); ++token) {
      words[token / 32] |= (lengths[token] <= length ? 1U : 0U) << (token % 32);
    }
    shorter[index] = std::make_shared<const MaskWords>(std::move(words));
  }
  return *shorter[index];
}

}  // namespace specdec
