#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

class GrammarEngine;

/// A place in a text of a grammar, for callers who may be wrong: two threads in one matcher at
/// once, a call after an end token, an id outside the vocabulary or a row of the wrong size throw
/// Error and change nothing. A step is an accepted token or an accepted string. A copy is a matcher
/// of its own and costs eight bytes a step.
class CheckedMatcher {
 public:
  /// Begins a text. Throws Error for a grammar that another engine compiled.
  CheckedMatcher(std::shared_ptr<const GrammarEngine> engine,
                 std::shared_ptr<const CompiledGrammar> grammar);
  CheckedMatcher(const CheckedMatcher& other);
  CheckedMatcher& operator=(const CheckedMatcher&) = delete;

  /// False, and unchanged, when the grammar forbids the token here.
  [[nodiscard]] bool accept(Token token);
  /// Accepts any bytes, in one step; else as accept.
  [[nodiscard]] bool accept_bytes(std::string_view bytes);
  bool allows(Token token) const;
  TokenMask mask() const;
  /// Writes which tokens may come next: bit i of word w is token 32 w + i, 1 = allowed. `row` has
  /// GrammarEngine::words() words.
  void fill(std::span<int32_t> row) const;
  /// Forgets the newest steps.
  void rollback(int64_t steps);
  /// Forgets all of them.
  void reset();

  int64_t length() const;    ///< length of the text in steps
  bool is_complete() const;  ///< the text may end here, or has ended
  bool is_ended() const;     ///< an end token has been accepted
  /// Reason for which it is not known what may come next, when a limit was reached: then no token
  /// may.
  std::optional<std::string> limit() const;
  /// What every text has next, up to the first choice or to where the text may end; "" after an end
  /// token. It may end inside a UTF-8 character.
  std::string forced_bytes() const;
  /// The tokens that come next whatever is chosen, at most `most`: see forced_tokens.
  std::vector<Token> forced_tokens(int64_t most) const;
  std::string explain() const;
  /// See Automaton::captures; also after an end token.
  std::vector<Capture> captures() const;

  const GrammarEngine& engine() const { return *engine_; }

 private:
  friend class GrammarEngine;
  /// Holds a matcher for one call.
  class Use {
   public:
    explicit Use(const CheckedMatcher& matcher);
    ~Use() { in_use_.store(false, std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::atomic<bool>& in_use_;
  };

  CheckedMatcher(const CheckedMatcher& other, const Use& use);
  void check_token(Token token) const;
  void check_not_ended() const;
  void write(std::span<int32_t> row) const;

  std::shared_ptr<const GrammarEngine> engine_;
  mutable GrammarMatcher place_;  ///< settles when asked: a limit is reached once
  mutable std::atomic<bool> in_use_ = false;
};

}  // namespace specdec
