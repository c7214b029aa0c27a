// What is found out about a vocabulary's strings is kept in a file.
#include <algorithm>

#include "grammar/masks/string_masks.h"

namespace specdec {
namespace {

enum Kind : uint32_t { kRemainders = 16, kRemainderTexts, kMeaning, kWalk };

CacheKey meaning_key(EscapeStyle escapes) {
  return {.kind = kMeaning, .item = {static_cast<uint64_t>(escapes), 0}};
}

CacheKey walk_key(const WideHash::Value& language, EscapeStyle escapes) {
  return {.kind = kWalk, .part = static_cast<uint32_t>(escapes), .item = language};
}

/// What a walk takes of the file, with its place in the list of entries and in memory.
uint64_t cost(uint64_t bytes) { return std::max<uint64_t>(bytes, 4096); }

}  // namespace

bool StringMasks::read_remainders() {
  auto trie = cache_ == nullptr ? std::nullopt : TokenTrie::read(*cache_, {.kind = kRemainders});
  if (!trie || !cache_->read_parts({.kind = kRemainderTexts}, may_have_name_, ends_item_) ||
      std::ssize(may_have_name_) != trie->vocab_size() ||
      std::ssize(ends_item_) != trie->vocab_size()) {
    may_have_name_.clear();
    ends_item_.clear();
    return false;
  }
  remainders_ = std::make_unique<TokenTrie>(std::move(*trie));
  return true;
}

bool StringMasks::read_meaning(EscapeStyle escapes, Meaning& meaning) const {
  const auto vocab_size = static_cast<size_t>(trie_.vocab_size());
  const bool whole =
      cache_ != nullptr &&
      cache_->read_parts(meaning_key(escapes), meaning.points, meaning.parts, meaning.lengths,
                         meaning.remainders, meaning.closing, meaning.first_closing, meaning.inside,
                         meaning.plain_close, meaning.letters, meaning.sets) &&
      meaning.points.size() == trie_.size() && meaning.lengths.size() == vocab_size &&
      meaning.remainders.size() == vocab_size && meaning.inside.size() == word_count() &&
      meaning.plain_close.size() == word_count() && meaning.letters.size() == trie_.size() &&
      std::ssize(meaning.first_closing) == remainders_->vocab_size() + 1;
  if (!whole) {
    meaning = {};
  }
  return whole;
}

/// As words: the number of tokens inside and these, then those that close; with bits kBits, the
/// bits, and those of the tokens that close.
std::vector<uint32_t> StringMasks::to_words(const Walk& walk) {
  std::vector<uint32_t> words;
  if (walk.bits != nullptr) {
    words.push_back(kBits);
    words.insert(words.end(), walk.bits->begin(), walk.bits->end());
    words.insert(words.end(), walk.closing.begin(), walk.closing.end());
    return words;
  }
  words.push_back(static_cast<uint32_t>(walk.inside.size()));
  for (const Inside& inside : walk.inside) {
    words.insert(words.end(), {static_cast<uint32_t>(inside.token), inside.length});
  }
  for (const Exit& exit : walk.exits) {
    words.insert(words.end(), {exit.remainder, static_cast<uint32_t>(exit.token), exit.length});
  }
  return words;
}

std::unique_ptr<StringMasks::Walk> StringMasks::to_walk(std::span<const uint32_t> words,
                                                        size_t closing) const {
  if (words.empty()) {
    return nullptr;
  }
  auto walk = std::make_unique<Walk>();
  const uint32_t count = words.front();
  words = words.subspan(1);
  if (count == kBits) {
    if (words.size() != word_count() + (closing + 31) / 32) {
      return nullptr;
    }
    const auto middle = words.begin() + static_cast<ptrdiff_t>(word_count());
    walk->bits = std::make_shared<MaskWords>(words.begin(), middle);
    walk->closing.assign(middle, words.end());
    return walk;
  }
  if (words.size() / 2 < count || (words.size() - 2 * size_t{count}) % 3 != 0) {
    return nullptr;
  }
  size_t at = 0;
  for (; at < 2 * size_t{count}; at += 2) {
    walk->inside.push_back({static_cast<Token>(words[at]), words[at + 1]});
  }
  for (; at < words.size(); at += 3) {
    walk->exits.push_back({words[at], static_cast<Token>(words[at + 1]), words[at + 2]});
  }
  return walk;
}

std::unique_ptr<StringMasks::Walk> StringMasks::read_walk(RegexId language, EscapeStyle escapes) {
  std::vector<uint32_t> words;
  if (cache_ == nullptr || !cache_->read(walk_key(regexes_.key(language), escapes), words)) {
    return nullptr;
  }
  return to_walk(words, meaning(escapes).closing.size());
}

void StringMasks::write(CacheFileWriter& file, const CacheFile& old, uint64_t max_bytes) const {
  remainders_->write(file, {.kind = kRemainders});
  file.add_parts({.kind = kRemainderTexts}, may_have_name_, ends_item_);
  for (const auto& [escapes, meaning] : meanings_) {
    file.add_parts(meaning_key(escapes), meaning.points, meaning.parts, meaning.lengths,
                   meaning.remainders, meaning.closing, meaning.first_closing, meaning.inside,
                   meaning.plain_close, meaning.letters, meaning.sets);
  }
  uint64_t bytes = 0;
  const auto add_walk = [&](RegexId language, EscapeStyle escapes, const Walk& walk) {
    const std::vector<uint32_t> words = to_words(walk);
    const uint64_t more = cost(words.size() * sizeof(uint32_t));
    if (bytes + more <= max_bytes) {
      bytes += more;
      file.add(walk_key(regexes_.key(language), escapes), words);
    }
  };
  for (const auto& [escapes, walk] : everything_) {
    add_walk(RegexStore::kAll, escapes, *walk);
  }
  for (const auto& [key, walk] : kept_walks_.entries()) {
    if (key[0] == 0) {
      add_walk(static_cast<RegexId>(key[1]), static_cast<EscapeStyle>(key[2]), *walk);
    }
  }
  for (const CacheFile::Entry& entry : old.entries()) {
    const bool is_walk = entry.key.kind == kWalk;
    const uint64_t more = is_walk ? cost(entry.bytes) : 0;
    std::vector<std::byte> content;
    if (!file.has(entry.key) && bytes + more <= max_bytes && old.read(entry.key, content)) {
      bytes += more;
      file.add(entry.key, content);
    }
  }
}

}  // namespace specdec
