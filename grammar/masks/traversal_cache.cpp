// Which walks and bits are kept, in memory and in a file.
#include "grammar/masks/traversal_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "grammar/masks/mask_cache_kinds.h"
#include "grammar/masks/unspelled.h"

namespace specdec {
namespace {

CacheKey walk_key(const WideHash::Value& language, EscapeStyle escapes) {
  return {.kind = kWalk, .part = static_cast<uint32_t>(escapes), .item = language};
}

/// What a walk takes of the file, with its index in the list of entries and in memory.
uint64_t cost(uint64_t bytes) { return std::max<uint64_t>(bytes, 4096); }

}  // namespace

TraversalCache::TraversalCache(const TokenTrie& trie, uint64_t max_bytes, const CacheFile* cache)
    : trie_(trie),
      cache_(cache),
      unspelled_(find_unspelled(trie)),
      remainders_(trie, cache),
      made_(remainders_.was_cached() ? 0 : 1),
      walks_(max_bytes / 2),
      bits_(max_bytes / 2) {
  for (const EscapeStyle escapes : {EscapeStyle::kAny, EscapeStyle::kMinimal}) {
    spellings_.try_emplace(escapes);
  }
}

size_t TraversalCache::Hash::operator()(const Place& place) const {
  const uint64_t where = uint64_t{place.node} << 8 | static_cast<uint64_t>(place.escapes);
  return WordHash().add(where).add(place.language[0]).add(place.language[1]).value();
}

TraversalCache::Spelling& TraversalCache::known_spelling(EscapeStyle escapes) {
  Spelling& known = spellings_.at(escapes);
  std::call_once(known.made, [&] {
    known.spelling = TokenSpelling::make(trie_, remainders_, of(escapes), cache_);
    made_ += known.spelling.was_cached ? 0 : 1;
    known.is_made = true;
  });
  return known;
}

// ---- What is kept ------------------------------------------------------------------------------

std::shared_ptr<const StringTraversal> TraversalCache::find(const Place& place) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<const Walk>* found = walks_.find(place);
  return found == nullptr ? nullptr : *found;
}

bool TraversalCache::has(const Place& place) const {
  const std::lock_guard lock(mutex_);
  return walks_.has(place);
}

std::shared_ptr<const StringTraversal> TraversalCache::add(const Place& place,
                                                           std::shared_ptr<const Walk> walk) {
  const void* what = walk.get();  // alike languages share one
  const uint64_t bytes = walk->bytes();
  const std::lock_guard lock(mutex_);
  if (const std::shared_ptr<const Walk>* found = walks_.find(place)) {
    return *found;
  }
  return walks_.add(place, std::move(walk), 0, {what, bytes});
}

std::shared_ptr<const StringTraversal> TraversalCache::everything(EscapeStyle escapes) const {
  const std::lock_guard lock(mutex_);
  const auto found = everything_.find(escapes);
  return found == everything_.end() ? nullptr : found->second;
}

std::shared_ptr<const StringTraversal> TraversalCache::set_everything(
    EscapeStyle escapes, const std::shared_ptr<const Walk>& walk) {
  const std::lock_guard lock(mutex_);
  return everything_.try_emplace(escapes, walk).first->second;
}

uint64_t TraversalCache::walk_bytes() const {
  const std::lock_guard lock(mutex_);
  return walks_.bytes();
}

uint64_t TraversalCache::bits_bytes() const {
  const std::lock_guard lock(mutex_);
  return bits_.bytes();
}

std::shared_ptr<const MaskWords> TraversalCache::keep(const Key& key, Combined combined) {
  const uint64_t bytes = 3 * word_count() * sizeof(uint32_t);  // it may be the last to hold them
  return bits_.add(key, std::move(combined), bytes).result;
}

std::shared_ptr<const MaskWords> TraversalCache::bits(const StringTraversal& walk,
                                                      EscapeStyle escapes, bool may_close,
                                                      const Lengths& lengths) {
  TokenSpelling& spelling = known_spelling(escapes).spelling;
  const uint64_t max = std::min<uint64_t>(lengths.max, spelling.longest);
  const bool closes = may_close && lengths.min <= max;
  if (max == spelling.longest && closes && lengths.min == 0) {
    return walk.bits;
  }
  const Lengths range = {closes ? lengths.min : spelling.longest + 1, max};
  const Key key = {reinterpret_cast<uintptr_t>(walk.bits.get()), 0, range.min, range.max};
  const std::lock_guard lock(mutex_);
  if (const Combined* found = bits_.find(key)) {
    return found->result;
  }
  const MaskWords& short_enough = spelling.at_most(max);
  const MaskWords* too_short = range.min > 0 ? &spelling.at_most(range.min - 1) : nullptr;
  auto words = std::make_shared<MaskWords>(word_count());
  for (size_t i = 0; i < words->size(); ++i) {
    const uint32_t forbidden = too_short == nullptr ? 0 : (*too_short)[i];
    (*words)[i] = (*walk.bits)[i] & short_enough[i] & ~(spelling.plain_close[i] & forbidden);
  }
  return keep(key, {walk.bits, nullptr, std::move(words)});
}

std::shared_ptr<const MaskWords> TraversalCache::unite(const std::shared_ptr<const MaskWords>& a,
                                                       const std::shared_ptr<const MaskWords>& b) {
  if (a == b) {
    return a;
  }
  const Key key = {reinterpret_cast<uintptr_t>(a.get()), reinterpret_cast<uintptr_t>(b.get()), 0,
                   0};
  const std::lock_guard lock(mutex_);
  if (const Combined* found = bits_.find(key)) {
    return found->result;
  }
  auto words = std::make_shared<MaskWords>(*a);
  for (size_t i = 0; i < words->size(); ++i) {
    (*words)[i] |= (*b)[i];
  }
  std::shared_ptr<const MaskWords> result = *words == *a ? a : *words == *b ? b : std::move(words);
  return keep(key, {a, b, std::move(result)});
}

std::vector<StringTraversal::Exit> TraversalCache::exits(const StringTraversal& walk,
                                                         EscapeStyle escapes, uint32_t remainder) {
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

std::vector<StringTraversal::Exit> TraversalCache::plain_exits(const StringTraversal& walk,
                                                               EscapeStyle escapes) {
  std::vector<Exit> found;
  const TokenSpelling& spelling = this->spelling(escapes);
  for (size_t word = 0; word < walk.bits->size(); ++word) {
    for (uint32_t rest = (*walk.bits)[word] & spelling.plain_close[word]; rest != 0;
         rest &= rest - 1) {
      const size_t token = word * 32 + static_cast<size_t>(std::countr_zero(rest));
      found.push_back({0, static_cast<Token>(token), spelling.lengths[token]});
    }
  }
  return found;
}

// ---- The file -----------------------------------------------------------------------------------

std::unique_ptr<StringTraversal> TraversalCache::read(const Place& place) {
  std::vector<uint32_t> words;
  if (cache_ == nullptr || !cache_->read(walk_key(place.language, place.escapes), words)) {
    return nullptr;
  }
  return StringTraversal::from_words(words, word_count(), spelling(place.escapes).closing.size());
}

void TraversalCache::write(CacheFileWriter& file, const CacheFile& old,
                           const WideHash::Value& everything, uint64_t max_bytes) const {
  remainders_.write(file);
  for (const auto& [escapes, known] : spellings_) {
    if (known.is_made) {
      known.spelling.write(file, escapes);
    }
  }
  std::vector<std::pair<CacheKey, std::shared_ptr<const Walk>>> walks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [escapes, walk] : everything_) {
      walks.emplace_back(walk_key(everything, escapes), walk);
    }
    for (const auto& entry : walks_.entries()) {
      if (entry.key.node == 0) {
        walks.emplace_back(walk_key(entry.key.language, entry.key.escapes), entry.value);
      }
    }
  }
  uint64_t bytes = 0;
  for (const auto& [key, walk] : walks) {
    const std::vector<uint32_t> words = walk->to_words();
    const uint64_t more = cost(words.size() * sizeof(uint32_t));
    if (bytes + more <= max_bytes) {
      bytes += more;
      file.add(key, words);
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
