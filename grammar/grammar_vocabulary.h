#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"
#include "core/types.h"
#include "grammar/json/shared_languages.h"
#include "grammar/masks/string_masks.h"
#include "grammar/masks/vocabulary_tokens.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

class CanonicalCuts;

/// How much of what its grammars share a vocabulary may hold.
struct GrammarVocabularyLimits {
  uint64_t max_regex_states = 1'000'000;                 ///< of the automata of all its grammars
  uint64_t max_string_mask_bytes = uint64_t{128} << 20;  ///< those not used for longest are dropped
};

/// Where a vocabulary keeps what it found out, for other processes.
struct GrammarCache {
  std::filesystem::path folder;                  ///< empty: nowhere
  int64_t min_tokens = 16'384;                   ///< smaller vocabularies take no time
  uint64_t max_walk_bytes = uint64_t{64} << 20;  ///< of languages of strings; the latest are kept
};

/// What all grammars of one tokenizer share: its tokens as a tree, the regular languages and sets
/// of numbers that they met, and the masks of string states. Make one per tokenizer and process.
class GrammarVocabulary {
 public:
  /// `bytes[i]`: what token i stands for; empty for control pieces, which are allowed nowhere but
  /// for the `end_tokens`, allowed where a text is complete.
  GrammarVocabulary(const std::vector<std::string_view>& bytes, std::vector<Token> end_tokens,
                    const GrammarVocabularyLimits& limits = {}, const GrammarCache& cache = {});
  /// Saves.
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  /// Finds out how the tokenizer cuts texts, which canonical grammars need; once is enough. Throws
  /// ConfigError when it does not say.
  void learn_cuts(const Tokenizer& tokenizer);

  const TokenTrie& trie() const { return trie_; }
  const VocabularyTokens& tokens() const { return tokens_; }
  std::string_view bytes(Token token) const { return tokens_.bytes(token); }
  int64_t vocab_size() const { return trie_.vocab_size(); }
  const std::vector<Token>& end_tokens() const { return tokens_.end_tokens(); }
  /// The file that the cache keeps this vocabulary in; empty: none.
  const std::filesystem::path& cache_path() const { return cache_path_; }
  /// True when nothing had to be made at the beginning.
  bool was_cached() const { return was_cached_; }
  /// Writes what the file does not have yet. Throws Error when it cannot be written.
  void save();

  // Not safe for use by several threads at once: hold `mutex`.
  SharedLanguages& languages() { return languages_; }
  RegexStore& regexes() { return languages_.regexes; }
  StringMasks& strings() { return strings_; }
  CanonicalCuts* cuts() { return cuts_.get(); }  ///< nullptr when not learned
  std::mutex& mutex() { return mutex_; }

 private:
  std::unique_ptr<CacheFile> open_cache();
  TokenTrie read_or_make_trie(const std::vector<std::string_view>& bytes);
  uint64_t made() const { return trie_made_ + strings_.made(); }

  VocabularyTokens tokens_;
  GrammarCache cache_;
  WideHash::Value fingerprint_ = {};  ///< of the tokens
  std::filesystem::path cache_path_;
  std::unique_ptr<CacheFile> cache_file_;
  uint64_t trie_made_ = 0;
  TokenTrie trie_;
  SharedLanguages languages_;
  StringMasks strings_;
  uint64_t saved_ = 0;  ///< of `made`
  bool was_cached_ = false;
  std::unique_ptr<CanonicalCuts> cuts_;
  std::mutex mutex_;
};

/// Reads the tokenizer; what is_control_piece names is a control piece here even where the
/// tokenizer takes it for text. `end_tokens`: by default answer_end_tokens.
std::shared_ptr<GrammarVocabulary> make_grammar_vocabulary(
    const Tokenizer& tokenizer, std::optional<std::vector<Token>> end_tokens = std::nullopt,
    const GrammarVocabularyLimits& limits = {}, const GrammarCache& cache = {});

}  // namespace specdec
