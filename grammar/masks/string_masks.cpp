// Which walks and bits are kept, in memory and in a file.
#include "grammar/masks/string_masks.h"

#include <algorithm>

#include "grammar/masks/mask_cache_kinds.h"
#include "grammar/tables/hash.h"

namespace specdec {
namespace {

constexpr size_t kRecent = 12;  ///< walks that a new one is compared with

CacheKey walk_key(const WideHash::Value& language, EscapeStyle escapes) {
  return {.kind = kWalk, .part = static_cast<uint32_t>(escapes), .item = language};
}

/// What a walk takes of the file, with its index in the list of entries and in memory.
uint64_t cost(uint64_t bytes) { return std::max<uint64_t>(bytes, 4096); }

}  // namespace

StringMasks::StringMasks(const TokenTrie& trie, RegexStore& regexes, uint64_t max_bytes,
                         const CacheFile* cache)
    : trie_(trie),
      regexes_(regexes),
      max_bytes_(max_bytes),
      cache_(cache),
      remainders_(trie, cache),
      maker_(trie, remainders_, regexes),
      made_(remainders_.was_cached() ? 0 : 1) {}

TokenSpelling& StringMasks::spelling(EscapeStyle escapes) {
  const auto known = spellings_.find(escapes);
  if (known != spellings_.end()) {
    return known->second;
  }
  TokenSpelling made = TokenSpelling::make(trie_, remainders_, escapes, cache_);
  made_ += made.was_cached ? 0 : 1;
  return spellings_.emplace(escapes, std::move(made)).first->second;
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
  walk_bytes_ += walk->bytes();
  kept_walks_.add(key, std::move(walk));
  while (walk_bytes_ > max_bytes_ / 2 && kept_walks_.size() > 1) {
    const auto [oldest, dropped] = kept_walks_.drop();
    walk_bytes_ -= dropped->bytes();
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

std::shared_ptr<const StringWalk> StringMasks::walk(Node node, RegexId language,
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
      node == 0 ? walk_whole(language, escapes) : maker_.below(node, language, escapes);
  keep(key, made);
  return made;
}

std::shared_ptr<const MaskWords> StringMasks::bits(const StringWalk& walk, EscapeStyle escapes,
                                                   bool may_close, const Lengths& lengths) {
  TokenSpelling& spelling = this->spelling(escapes);
  const uint64_t max = std::min<uint64_t>(lengths.max, spelling.longest);
  const bool closes = may_close && lengths.min <= max;
  if (max == spelling.longest && closes && lengths.min == 0) {
    return walk.bits;
  }
  const Lengths range = {closes ? lengths.min : spelling.longest + 1, max};
  const Key key = {reinterpret_cast<uintptr_t>(walk.bits.get()), 0, range.min, range.max};
  if (const Combined* found = kept_bits_.find(key)) {
    return found->result;
  }
  const MaskWords& short_enough = spelling.at_most(max);
  const MaskWords* too_short = range.min > 0 ? &spelling.at_most(range.min - 1) : nullptr;
  auto words = std::make_shared<MaskWords>(word_count());
  for (size_t i = 0; i < words->size(); ++i) {
    const uint32_t forbidden = too_short == nullptr ? 0 : (*too_short)[i];
    (*words)[i] = (*walk.bits)[i] & short_enough[i] & ~(spelling.plain_close[i] & forbidden);
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

std::vector<StringWalk::Exit> StringMasks::exits(const StringWalk& walk, EscapeStyle escapes,
                                                 uint32_t remainder) {
  if (walk.bits == nullptr) {
    const auto [first, last] =
        std::equal_range(walk.exits.begin(), walk.exits.end(), Exit{.remainder = remainder},
                         [](const Exit& a, const Exit& b) { return a.remainder < b.remainder; });
    return {first, last};
  }
  std::vector<Exit> found;
  const TokenSpelling& spelling = this->spelling(escapes);
  for (size_t i = spelling.first_closing[remainder]; i < spelling.first_closing[remainder + 1];
       ++i) {
    const Token token = spelling.closing[i];
    if (has_token(walk.closing, static_cast<Token>(i))) {
      found.push_back({remainder, token, spelling.lengths[static_cast<size_t>(token)]});
    }
  }
  return found;
}

// ---- Walks over the whole tree -----------------------------------------------------------------

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

std::unique_ptr<StringWalk> StringMasks::make_walk(RegexId language, EscapeStyle escapes) {
  const TokenSpelling& spelling = this->spelling(escapes);
  if (auto few = maker_.few(language, spelling, escapes)) {
    return few;
  }
  LanguageWalks::Known known;
  if (language != RegexStore::kAll) {
    const bool with_all = everything_[escapes]->bits != nullptr;
    known.language = maker_.nearest(language, spelling, recent_[escapes], with_all);
  }
  if (known.language != RegexStore::kNothing) {
    known.walk = walk(0, known.language, escapes);
  }
  return maker_.differing(language, known, spelling, escapes);
}

std::unique_ptr<StringWalk> StringMasks::walk_whole(RegexId language, EscapeStyle escapes) {
  std::unique_ptr<Walk> walk = read_walk(language, escapes);
  if (walk == nullptr) {
    walk = make_walk(language, escapes);
    ++walks_;
    ++made_;
  }
  if (walk->bits != nullptr) {
    remember(language, escapes);
  }
  return walk;
}

// ---- The file -----------------------------------------------------------------------------------

std::unique_ptr<StringWalk> StringMasks::read_walk(RegexId language, EscapeStyle escapes) {
  std::vector<uint32_t> words;
  if (cache_ == nullptr || !cache_->read(walk_key(regexes_.key(language), escapes), words)) {
    return nullptr;
  }
  return StringWalk::from_words(words, word_count(), spelling(escapes).closing.size());
}

void StringMasks::write(CacheFileWriter& file, const CacheFile& old, uint64_t max_bytes) const {
  remainders_.write(file);
  for (const auto& [escapes, spelling] : spellings_) {
    spelling.write(file, escapes);
  }
  uint64_t bytes = 0;
  const auto add_walk = [&](RegexId language, EscapeStyle escapes, const Walk& walk) {
    const std::vector<uint32_t> words = walk.to_words();
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
