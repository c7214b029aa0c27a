#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"
#include "core/types.h"
#include "grammar/regex.h"
#include "grammar/string_masks.h"
#include "grammar/token_trie.h"

namespace specdec {

class CanonicalCuts;

/// How much of what its grammars share a vocabulary may hold.
struct GrammarVocabularyLimits {
  uint64_t max_regex_states = 1'000'000;  ///< of the automata of all regular expressions
  uint64_t max_string_mask_bytes = uint64_t{128} << 20;  ///< those not used for longest are dropped
};

/// What all grammars of one tokenizer share: its tokens as a tree, the regular languages that they
/// met, and the masks of string states. Make one per tokenizer and process.
class GrammarVocabulary {
 public:
  /// `bytes[i]`: what token i stands for; empty for control pieces, which are allowed nowhere but
  /// for the `end_tokens`, allowed where a text is complete.
  GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> end_tokens,
                    const GrammarVocabularyLimits& limits = {});
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  /// Finds out how the tokenizer cuts texts, which canonical grammars need; once is enough. Throws
  /// ConfigError when it does not say.
  void learn_cuts(const Tokenizer& tokenizer);

  const TokenTrie& trie() const { return trie_; }
  std::string_view bytes(Token token) const { return bytes_[static_cast<size_t>(token)]; }
  int64_t vocab_size() const { return trie_.vocab_size(); }
  const std::vector<Token>& end_tokens() const { return end_tokens_; }
  // Not safe for use by several threads at once: hold `mutex`.
  RegexStore& regexes() { return regexes_; }
  StringMasks& strings() { return strings_; }
  CanonicalCuts* cuts() { return cuts_.get(); }  ///< nullptr when not learned
  std::mutex& mutex() { return mutex_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Token> end_tokens_;
  TokenTrie trie_;
  RegexStore regexes_;
  StringMasks strings_;
  std::unique_ptr<CanonicalCuts> cuts_;
  std::mutex mutex_;
};

/// Reads the tokenizer. Pieces that steer a model (<start_of_turn>, <unused7>, <mask>, images) are
/// control pieces here even where the tokenizer takes them for text. `end_tokens`: by default
/// <eos>, and <end_of_turn> where there is one.
std::shared_ptr<GrammarVocabulary> make_grammar_vocabulary(
    const Tokenizer& tokenizer, std::optional<std::vector<Token>> end_tokens = std::nullopt,
    const GrammarVocabularyLimits& limits = {});

}  // namespace specdec
