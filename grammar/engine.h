#pragma once
// All that another program needs of the grammars: read a tokenizer, compile, match, fill masks.
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "grammar/checked_matcher.h"
#include "grammar/grammar_source.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/interruption.h"
#include "grammar/tables/bounded_cache.h"

namespace specdec {

class RowThreads;

struct EngineOptions {
  /// Number of the model's logits, where that is more than the tokenizer has tokens: those beyond
  /// them are never allowed. 0 = as many as the tokenizer has.
  int64_t vocab_size = 0;
  /// Tokens that end a text; by default answer_end_tokens.
  std::optional<std::vector<Token>> end_tokens;
  /// Bytes of the cached compiled grammars, with their masks; those not used for longest are
  /// dropped.
  uint64_t max_cache_bytes = uint64_t{256} << 20;
  int threads = 0;  ///< threads of fill_batch; 0 = as many as the machine has
  GrammarVocabularyLimits vocabulary;
  GrammarCache cache;  ///< on disk
};

/// Conditions under which compiling is given up.
struct CompileControl {
  double seconds = std::numeric_limits<double>::infinity();  ///< also of waiting for other compiles
  const std::atomic<bool>* cancelled = nullptr;  ///< set by another thread; nullptr: by none
};

/// Compiles the grammars of one tokenizer and fills masks. All calls may come from any thread.
/// Throws Error for what the caller can fix.
class GrammarEngine {
 public:
  explicit GrammarEngine(const std::shared_ptr<const Tokenizer>& tokenizer,
                         const EngineOptions& options = {});
  /// Makes an engine without a tokenizer, from the bytes of each token, "" for control tokens; the
  /// options name the end tokens. Canonical grammars are refused.
  explicit GrammarEngine(const std::vector<std::string>& tokens, const EngineOptions& options = {});
  ~GrammarEngine();
  GrammarEngine(const GrammarEngine&) = delete;
  GrammarEngine& operator=(const GrammarEngine&) = delete;

  /// Compiles as compile_grammar does, but an equal source gives the grammar that was compiled
  /// before while it is kept. Throws GrammarInterrupted when it takes too long or is cancelled.
  std::shared_ptr<const CompiledGrammar> compile(const GrammarSource& source,
                                                 const CompileControl& control = {});
  void clear_cache();
  uint64_t cached_bytes() const;
  size_t cached_grammars() const;

  /// Writes the mask of matchers[i] to row rows[i] of `bitmask` ([any number of rows, words()], see
  /// CheckedMatcher::fill), or to row i when `rows` is empty; other rows stay. The rows are filled
  /// in parallel. On an error the rows that are not wrong may be filled or not.
  void fill_batch(std::span<const CheckedMatcher* const> matchers, std::span<int32_t> bitmask,
                  std::span<const int64_t> rows = {}) const;

  int64_t vocab_size() const { return vocab_size_; }
  int64_t words() const { return (vocab_size_ + 31) / 32; }  ///< words of a row
  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  ///< or nullptr

 private:
  using Grammar = std::shared_ptr<const CompiledGrammar>;
  struct Kept {
    Grammar grammar;
    uint64_t key_bytes = 0;
  };

  GrammarEngine(std::shared_ptr<const Tokenizer> tokenizer,
                std::shared_ptr<GrammarVocabulary> vocabulary, const EngineOptions& options);
  /// Grammar that is cached by this key; nullptr when there is none that is worth keeping.
  Grammar cached(const std::string& key);
  void keep(const std::string& key, const Grammar& grammar);
  /// The rows of the matchers, once they are found right.
  std::vector<int64_t> checked_rows(std::span<const CheckedMatcher* const> matchers,
                                    std::span<const int64_t> rows, size_t bitmask_words) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<GrammarVocabulary> vocabulary_;
  int64_t vocab_size_;
  std::timed_mutex compiling_;
  mutable std::mutex cache_mutex_;
  BoundedCache<std::string, Kept> cache_;  ///< keyed by everything that a source says
  std::unique_ptr<RowThreads> threads_;
};

}  // namespace specdec
