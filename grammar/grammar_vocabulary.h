#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "grammar/json/shared_languages.h"
#include "grammar/masks/string_masks.h"
#include "grammar/masks/vocabulary_tokens.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

class CanonicalCuts;

/// Limits of what a vocabulary holds of what its grammars share.
struct GrammarVocabularyLimits {
  /// States of the automata of grammars that share languages; where half were built, grammars that
  /// are compiled from then on share others.
  uint64_t max_regex_states = 2'000'000;
  uint64_t max_language_bytes = uint64_t{64} << 20;  ///< bytes of languages in memory, the same way
  /// Bytes of masks; those not used for longest are dropped.
  uint64_t max_string_mask_bytes = uint64_t{128} << 20;
};

/// The languages that grammars share which were compiled one after the other, and their masks. They
/// live as long as one of these grammars, or until the vocabulary begins others. For any number of
/// threads.
struct GrammarLanguages {
  GrammarLanguages(uint64_t max_regex_states, TraversalCache& walks)
      : shared{.regexes = RegexStore(max_regex_states), .unspelled = walks.unspelled()},
        strings(walks, shared.regexes) {}

  SharedLanguages shared;
  StringMasks strings;

  uint64_t bytes() const { return shared.bytes() + strings.bytes(); }
};

/// Place where a vocabulary keeps what it found out, for other processes.
struct GrammarCache {
  std::filesystem::path folder;  ///< empty: nowhere
  int64_t min_tokens = 16'384;   ///< smaller vocabularies take no time
  /// Bytes of languages of strings; the latest are kept.
  uint64_t max_walk_bytes = uint64_t{64} << 20;
};

/// What all grammars of one tokenizer share: its tokens as a tree, the regular languages and sets
/// of numbers that they met, and the masks of string states. Make one per tokenizer and process.
class GrammarVocabulary {
 public:
  /// Makes a vocabulary of tokens. `bytes[i]`: what token i stands for; empty for control pieces,
  /// which are allowed nowhere but for the `end_tokens`, allowed where a text is complete.
  GrammarVocabulary(const std::vector<std::string_view>& bytes, std::vector<Token> end_tokens,
                    const GrammarVocabularyLimits& limits = {}, const GrammarCache& cache = {});
  /// Saves.
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  /// Finds out how the tokenizer cuts texts, which canonical grammars need; once is enough. Throws
  /// ConfigError when it does not say.
  void learn_cuts(const Tokenizer& tokenizer);

  /// Names tokens that stand for no bytes, by which grammars can name them. Call it before the
  /// vocabulary is shared.
  void name_control_tokens(std::map<std::string, Token, std::less<>> names);
  /// The token that is spelled like that: "<|im_end|>", "<[123]>" for the one with this id, or the
  /// bytes of a token; nothing when there is none.
  std::optional<Token> find_token(std::string_view name) const;
  /// Finds a token as find_token does. Throws GrammarError with the names that are near.
  Token require_token(std::string_view name) const;
  /// The name of a control token, or a token's bytes; "<[123]>" when it has neither.
  std::string token_name(Token token) const;

  const TokenTrie& trie() const { return trie_; }
  const VocabularyTokens& tokens() const { return tokens_; }
  std::string_view bytes(Token token) const { return tokens_.bytes(token); }
  int64_t vocab_size() const { return trie_.vocab_size(); }
  const std::vector<Token>& end_tokens() const { return tokens_.end_tokens(); }
  /// The file that the cache keeps this vocabulary in; empty: none.
  const std::filesystem::path& cache_path() const { return cache_path_; }
  /// True when nothing had to be made at the beginning.
  bool was_cached() const { return was_cached_; }
  /// What the vocabulary holds in memory and drops when it is too much, by name.
  struct CacheSize {
    std::string name;
    uint64_t bytes = 0;
    uint64_t max_bytes = 0;
  };
  std::vector<CacheSize> cache_sizes();
  /// Writes what the file does not have yet. Throws Error when it cannot be written.
  void save();

  /// Languages of the next grammar, which holds on to them; others than before when these have
  /// become too large.
  std::shared_ptr<GrammarLanguages> begin_grammar();
  std::shared_ptr<GrammarLanguages> languages();  ///< languages of the latest grammar
  RegexStore& regexes() { return languages()->shared.regexes; }
  StringMasks& strings() { return languages()->strings; }
  CanonicalCuts* cuts();  ///< nullptr when not learned

 private:
  std::unique_ptr<CacheFile> open_cache();
  TokenTrie read_or_make_trie(const std::vector<std::string_view>& bytes);
  uint64_t made() const { return trie_made_ + walks_.made(); }

  VocabularyTokens tokens_;
  std::map<std::string, Token, std::less<>> control_tokens_;
  GrammarCache cache_;
  WideHash::Value fingerprint_ = {};  ///< fingerprint of the tokens
  std::filesystem::path cache_path_;
  std::unique_ptr<CacheFile> cache_file_;
  uint64_t trie_made_ = 0;
  TokenTrie trie_;
  GrammarVocabularyLimits limits_;
  TraversalCache walks_;
  bool was_cached_ = false;
  std::mutex saving_;
  uint64_t saved_ = 0;  ///< part of `made`; written by whoever saves
  std::mutex mutex_;    ///< guards all below
  std::shared_ptr<GrammarLanguages> languages_;
  std::unique_ptr<CanonicalCuts> cuts_;
};

/// Reads the tokenizer; what is_control_piece names is a control piece here even where the
/// tokenizer takes it for text. `end_tokens`: by default answer_end_tokens.
std::shared_ptr<GrammarVocabulary> make_grammar_vocabulary(
    const Tokenizer& tokenizer, std::optional<std::vector<Token>> end_tokens = std::nullopt,
    const GrammarVocabularyLimits& limits = {}, const GrammarCache& cache = {});

}  // namespace specdec
