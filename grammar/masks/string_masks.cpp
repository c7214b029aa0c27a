#include "grammar/masks/string_masks.h"

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

uint64_t size_of(const StringMasks::Walk& walk) {
  const size_t bits = walk.bits == nullptr ? 0 : walk.bits->size() * sizeof(uint32_t);
  return sizeof walk + bits + walk.closing.size() * sizeof(uint32_t) +
         walk.inside.size() * sizeof(StringMasks::Inside) +
         walk.exits.size() * sizeof(StringMasks::Exit);
}

}  // namespace

StringMasks::StringMasks(const TokenTrie& trie, RegexStore& regexes, uint64_t max_bytes,
                         const CacheFile* cache)
    : trie_(trie), regexes_(regexes), max_bytes_(max_bytes), cache_(cache) {
  if (!read_remainders()) {
    collect_remainders();
  }
}

void StringMasks::collect_remainders() {
  ++made_;
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
    const size_t comma = std::min(text.find(','), text.size());
    may_have_name_.push_back(std::count(text.begin() + comma, text.end(), '"') > 1);
    ends_item_.push_back(text.starts_with(']') || text == "," || text == ", " || text == ",\"" ||
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

// ---- What is kept ------------------------------------------------------------------------------

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
    everything = everything == nullptr ? walk_whole(language, escapes) : everything;
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
      node == 0 ? walk_whole(language, escapes) : walk_below(node, language, escapes);
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
    if (has_token(walk.closing, static_cast<Token>(i))) {
      found.push_back({remainder, token, meaning.lengths[static_cast<size_t>(token)]});
    }
  }
  return found;
}

}  // namespace specdec
