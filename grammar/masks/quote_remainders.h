#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/tables/cache_file.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

/// What may stand after a quote in the tokens of a vocabulary, each text once; 0 is nothing.
/// Immutable.
class QuoteRemainders {
 public:
  /// Borrows the tree of the vocabulary. `cache`: what another process has written, or nullptr.
  QuoteRemainders(const TokenTrie& trie, const CacheFile* cache);
  void write(CacheFileWriter& file) const;
  /// True when the cache had it all.
  bool was_cached() const { return was_cached_; }

  /// Texts of the remainders; the number of each is its token.
  const TokenTrie& texts() const { return *texts_; }
  uint32_t size() const { return static_cast<uint32_t>(texts_->vocab_size()); }
  /// What stands between a quote's node of the vocabulary's tree and one below it.
  uint32_t after(TokenTrie::Node quote, TokenTrie::Node node) const;
  /// True when it holds a whole string after a comma, which may be an object's next name.
  bool may_have_name(uint32_t remainder) const { return may_have_name_[remainder] != 0; }

 private:
  void collect();
  bool read(const CacheFile& cache);

  const TokenTrie& trie_;
  std::unique_ptr<TokenTrie> texts_;
  std::vector<uint8_t> may_have_name_;  ///< by remainder
  bool was_cached_ = false;
};

}  // namespace specdec
