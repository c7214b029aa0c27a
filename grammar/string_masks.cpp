#include "grammar/string_masks.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

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

StringMasks::Walk& StringMasks::walk(Node node, RegexId language, const JsonStringDecoder& decoder,
                                     EscapeStyle escapes) {
  std::unique_ptr<Walk>& entry = cache_[{node, language, decoder.key(), escapes}];
  if (entry == nullptr) {
    entry = std::make_unique<Walk>();
    make(node, language, decoder, escapes, *entry);
    ++walks_;
  }
  return *entry;
}

void StringMasks::make(Node root, RegexId language, const JsonStringDecoder& decoder,
                       EscapeStyle escapes, Walk& walk) {
  struct Place {
    RegexId language;
    JsonStringDecoder decoder;
    uint32_t length;
    bool escaped;
  };
  const uint32_t top = trie_.depth(root);
  std::vector<Place> path = {{language, decoder, 0, !decoder.idle()}};
  for (Node node = root + 1; node < trie_.end(root);) {
    const uint32_t level = trie_.depth(node) - top;
    path.resize(level);
    Place place = path.back();
    const uint8_t byte = trie_.byte(node);
    if (byte == '"' && place.decoder.idle()) {
      if (regexes_.matches_empty(place.language)) {
        for (Node after = node; after < trie_.end(node); ++after) {
          const uint32_t remainder = trie_.tokens(after).empty() ? 0 : remainder_after(node, after);
          for (const Token token : trie_.tokens(after)) {
            walk.exits.push_back({remainder, token, place.length, place.escaped});
          }
        }
      }
      node = trie_.end(node);
      continue;
    }
    std::optional<char32_t> point;
    const bool begins = place.decoder.idle();
    place.escaped |= byte == '\\' && begins;
    bool alive = place.decoder.take(byte, escapes, point);
    place.length += begins ? 1 : 0;
    if (alive && point) {
      place.language = regexes_.next(place.language, *point);
      alive = place.language != RegexStore::kNothing;
    } else if (alive) {
      alive = regexes_.goes_on(place.language, place.decoder.reach(escapes));
    }
    if (!alive) {
      node = trie_.end(node);
      continue;
    }
    for (const Token token : trie_.tokens(node)) {
      walk.inside.push_back({token, place.length});
      walk.longest = std::max(walk.longest, place.length);
    }
    path.push_back(place);
    ++node;
  }
  std::sort(walk.exits.begin(), walk.exits.end(), [](const Exit& a, const Exit& b) {
    return a.remainder != b.remainder ? a.remainder < b.remainder : a.token < b.token;
  });
}

std::shared_ptr<const MaskWords> StringMasks::words(Walk& walk, uint64_t max_length) {
  const auto longest = static_cast<uint32_t>(std::min<uint64_t>(max_length, walk.longest));
  std::shared_ptr<const MaskWords>& entry = walk.words[longest];
  if (entry == nullptr) {
    auto words = std::make_shared<MaskWords>(static_cast<size_t>((trie_.vocab_size() + 31) / 32));
    for (const Inside& inside : walk.inside) {
      if (inside.length <= longest) {
        (*words)[static_cast<size_t>(inside.token) / 32] |= 1U << (inside.token % 32);
      }
    }
    entry = std::move(words);
  }
  return entry;
}

}  // namespace specdec
