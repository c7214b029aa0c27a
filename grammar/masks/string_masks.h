#pragma once
#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "grammar/json/json_string_decoder.h"
#include "grammar/masks/language_walks.h"
#include "grammar/masks/quote_remainders.h"
#include "grammar/masks/string_walk.h"
#include "grammar/masks/token_spelling.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/recent_cache.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Which tokens stay inside a JSON string of some language, and which close it. One walk over the
/// vocabulary for each such place, ever: all grammars of a vocabulary share them. A walk follows
/// only what differs from a walk that was made before, so most languages cost little.
class StringMasks {
 public:
  using Inside = StringWalk::Inside;
  using Exit = StringWalk::Exit;
  using Walk = StringWalk;

  /// `max_bytes`: of walks and of bits made from them; those that were not used for longest are
  /// dropped, and made again when they are asked for.
  /// `cache`: what another process has written, or nullptr.
  StringMasks(const TokenTrie& trie, RegexStore& regexes, uint64_t max_bytes,
              const CacheFile* cache = nullptr);

  const TokenTrie& trie() const { return trie_; }

  /// Writes what was found out so far, and what only `old` has; of walks no more than `max_bytes`,
  /// the latest first.
  void write(CacheFileWriter& file, const CacheFile& old, uint64_t max_bytes) const;
  /// Grows with all that was found out and not read.
  uint64_t made() const { return made_; }

  /// The tokens below a node of the trie, as seen from the beginning of a string or from a place
  /// between two of its characters, that the node's own text has led to.
  std::shared_ptr<const Walk> walk(TokenTrie::Node node, RegexId language, EscapeStyle escapes);
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
  const QuoteRemainders& remainders() const { return remainders_; }

  uint64_t walks() const { return walks_; }  ///< over the whole vocabulary, made so far

 private:
  using Node = TokenTrie::Node;
  using Key = std::array<uint64_t, 4>;
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  /// Bits made from others, which are kept so that their addresses tell them apart.
  struct Combined {
    std::shared_ptr<const MaskWords> a, b, result;
  };

  const Combined& keep(const Key& key, Combined combined);
  void keep(const Key& key, std::shared_ptr<const Walk> walk);
  TokenSpelling& spelling(EscapeStyle escapes);
  std::unique_ptr<Walk> read_walk(RegexId language, EscapeStyle escapes);
  std::unique_ptr<Walk> make_walk(RegexId language, EscapeStyle escapes);
  std::unique_ptr<Walk> walk_whole(RegexId language, EscapeStyle escapes);
  void remember(RegexId language, EscapeStyle escapes);
  size_t word_count() const { return static_cast<size_t>((trie_.vocab_size() + 31) / 32); }

  const TokenTrie& trie_;
  RegexStore& regexes_;
  uint64_t max_bytes_;
  const CacheFile* cache_;
  std::map<EscapeStyle, std::shared_ptr<const Walk>> everything_;  ///< walks of kAll: never dropped
  RecentCache<Key, std::shared_ptr<const Walk>, KeyHash> kept_walks_;
  uint64_t walk_bytes_ = 0;
  RecentCache<Key, Combined, KeyHash> kept_bits_;
  std::map<EscapeStyle, std::list<RegexId>> recent_;  ///< languages with bits, newest first
  std::map<EscapeStyle, TokenSpelling> spellings_;
  QuoteRemainders remainders_;
  LanguageWalks maker_;
  uint64_t walks_ = 0;
  uint64_t made_ = 0;
};

}  // namespace specdec
