#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "grammar/json/json_string_decoder.h"
#include "grammar/masks/quote_remainders.h"
#include "grammar/masks/string_traversal.h"
#include "grammar/masks/token_spelling.h"
#include "grammar/tables/bounded_cache.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/hash.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// The walks of a vocabulary and bits made from them, and what is found out once for all of them.
/// Languages go by their keys, which stay the same however often their automata are built. For any
/// number of threads: the lock is held while something is looked up or combined, not in a walk.
class TraversalCache {
 public:
  using Walk = StringTraversal;
  using Exit = StringTraversal::Exit;

  /// A language read from a node of the trie on.
  struct Place {
    TokenTrie::Node node = 0;
    EscapeStyle escapes = EscapeStyle::kAny;
    WideHash::Value language = {};
    bool operator==(const Place&) const = default;
  };

  /// `max_bytes`: of walks and of bits made from them; those that were not used for longest are
  /// dropped, and made again when they are asked for.
  /// `cache`: what another process has written, or nullptr.
  TraversalCache(const TokenTrie& trie, uint64_t max_bytes, const CacheFile* cache = nullptr);

  const TokenTrie& trie() const { return trie_; }
  const QuoteRemainders& remainders() const { return remainders_; }
  /// Characters that no tokens spell by their bytes; nullptr = none.
  const CodePoints* unspelled() const { return unspelled_.empty() ? nullptr : &unspelled_; }
  /// The escapes of a style in this vocabulary.
  Escapes of(EscapeStyle style) const { return {style, unspelled()}; }
  const TokenSpelling& spelling(EscapeStyle escapes) { return known_spelling(escapes).spelling; }

  /// The walk that is kept for a place; nullptr when there is none.
  std::shared_ptr<const Walk> find(const Place& place);
  bool has(const Place& place) const;
  /// Keeps a walk, unless another thread has made it too: then that one is the answer.
  std::shared_ptr<const Walk> add(const Place& place, std::shared_ptr<const Walk> walk);
  /// The walk of all strings over the whole tree, which is never dropped; nullptr until it is set.
  std::shared_ptr<const Walk> everything(EscapeStyle escapes) const;
  /// Keeps the walk of all strings, as `add` does.
  std::shared_ptr<const Walk> set_everything(EscapeStyle escapes,
                                             const std::shared_ptr<const Walk>& walk);
  /// Reads a walk from the file; nullptr when it has none.
  std::unique_ptr<Walk> read(const Place& place);
  /// A walk over the whole vocabulary was made.
  void count_whole() {
    ++whole_walks_;
    ++made_;
  }

  /// Tokens of either; shared with one of them when that has all of the other.
  std::shared_ptr<const MaskWords> unite(const std::shared_ptr<const MaskWords>& a,
                                         const std::shared_ptr<const MaskWords>& b);
  /// The tokens of a walk with bits whose number of characters is in range: at most `max`, and at
  /// least `min` for those that close; without `may_close` none of these.
  struct Lengths {
    uint64_t min = 0;
    uint64_t max = ~uint64_t{0};
  };
  std::shared_ptr<const MaskWords> bits(const Walk& walk, EscapeStyle escapes, bool may_close,
                                        const Lengths& lengths);
  /// Tokens that close the string with that remainder; none without one where the walk has bits,
  /// which then say it.
  std::vector<Exit> exits(const Walk& walk, EscapeStyle escapes, uint32_t remainder);
  /// Tokens of a walk with bits that close the string and hold nothing more.
  std::vector<Exit> plain_exits(const Walk& walk, EscapeStyle escapes);

  /// Writes what was found out so far, and what only `old` has; of walks no more than `max_bytes`,
  /// the latest first. `everything`: the key of the language of all strings.
  void write(CacheFileWriter& file, const CacheFile& old, const WideHash::Value& everything,
             uint64_t max_bytes) const;
  /// Grows with all that was found out and not read.
  uint64_t made() const { return made_; }
  uint64_t whole_walks() const { return whole_walks_; }

  uint64_t walk_bytes() const;
  uint64_t bits_bytes() const;
  size_t word_count() const { return static_cast<size_t>((trie_.vocab_size() + 31) / 32); }

 private:
  using Key = std::array<uint64_t, 4>;
  struct Hash {
    size_t operator()(const Key& key) const { return WordHash().add_all(key).value(); }
    size_t operator()(const Place& place) const;
  };
  /// Bits made from others, which are kept so that their addresses tell them apart.
  struct Combined {
    std::shared_ptr<const MaskWords> a, b, result;
  };

  struct Spelling {
    std::once_flag made;
    std::atomic<bool> is_made = false;
    TokenSpelling spelling;
  };

  Spelling& known_spelling(EscapeStyle escapes);
  std::shared_ptr<const MaskWords> keep(const Key& key, Combined combined);

  const TokenTrie& trie_;
  const CacheFile* cache_;
  CodePoints unspelled_;
  std::map<EscapeStyle, Spelling> spellings_;  ///< of all styles
  QuoteRemainders remainders_;
  std::atomic<uint64_t> whole_walks_ = 0;
  std::atomic<uint64_t> made_ = 0;
  mutable std::mutex mutex_;  ///< of all below, and the lengths of spellings
  std::map<EscapeStyle, std::shared_ptr<const Walk>> everything_;
  BoundedCache<Place, std::shared_ptr<const Walk>, Hash> walks_;
  BoundedCache<Key, Combined, Hash> bits_;
};

}  // namespace specdec
