#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/grammar_limits.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/json/json_schema.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

class CanonicalMasks;
class RecentAnswers;

/// Cuts of its texts into tokens that a grammar allows.
enum class Cuts {
  kAny,
  kCanonical,  ///< the tokenizer's own; see CanonicalMasks
};

/// A grammar for one vocabulary: immutable for those who use it, shared between matchers and
/// threads. What was asked lately is looked up without a lock; what is found out is under the
/// grammar's own, so that no grammar waits for another's masks. No call throws for a limit: see
/// `limit`. States and masks are found out when first met, and kept. Of a canonical grammar a state
/// also says what the tokens so far mean for the cut.
class CompiledGrammar {
 public:
  /// Takes the automaton. For canonical cuts the vocabulary must have learned them. `languages`:
  /// those that the automaton borrows; nullptr: the vocabulary's.
  CompiledGrammar(std::shared_ptr<GrammarVocabulary> vocabulary,
                  std::unique_ptr<Automaton> automaton,
                  uint64_t max_mask_bytes = GrammarLimits().max_mask_bytes, Cuts cuts = Cuts::kAny,
                  std::shared_ptr<GrammarLanguages> languages = nullptr);
  ~CompiledGrammar();
  using Compile = std::function<std::shared_ptr<const CompiledGrammar>()>;
  /// Notes how the grammar is compiled.
  void remember(Compile compile) { compile_ = std::move(compile); }
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  /// The state after an end token: nothing may come.
  static constexpr StateId kEnded = ~StateId{0};

  StateId start() const { return start_; }
  /// The state after a token, which ends there; Automaton::kDead when the grammar forbids it.
  StateId next(StateId state, Token token) const;
  /// State after bytes, cut in whatever way, of which no end of a token is known; `state` is not
  /// kEnded.
  StateId next(StateId state, std::string_view bytes) const;
  /// True when the text may end here, or has ended.
  bool is_complete(StateId state) const;
  /// Mask of the tokens that may come at a state, end tokens among them.
  TokenMask mask(StateId state) const;
  /// Bytes that every text has next: up to the first choice, or to where the text may end.
  std::string forced_bytes(StateId state) const;
  /// See Automaton::completion; empty after an end token.
  std::optional<std::string> completion(StateId state) const;
  /// See Automaton::completion_token.
  std::optional<Token> completion_token(StateId state) const;
  std::string explain(StateId state) const;
  /// See Automaton::captures; of a text from its beginning on.
  std::vector<Capture> captures(std::span<const TextPart> text) const;
  /// Reason for which it is not known what follows the state: a limit was reached, counting all
  /// texts that were read. No token may come there then. See GrammarMatcher::limit for one text
  /// alone.
  std::optional<std::string> limit(StateId state) const;
  /// The grammar without any state of a text; nullptr when it does not know how it was compiled, or
  /// limits that it shares with other grammars were reached.
  std::shared_ptr<const CompiledGrammar> recompile() const;
  /// Tokens that the grammar's texts name: they stand for themselves, not for their bytes. Sorted.
  const std::vector<Token>& named_tokens() const { return named_tokens_; }
  /// True when the texts so far took more than half of the states that the grammar may have
  /// (`max_states`): the next text is better read by one that is compiled anew.
  bool is_used_up() const;
  /// Bytes of the cached masks.
  uint64_t mask_bytes() const;
  bool is_end(Token token) const;
  int64_t vocab_size() const;
  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }

 private:
  class Masks;

  StateId automaton_state(StateId state) const;
  StateId walk(StateId state, std::string_view bytes) const;
  /// The answer of `work`, done under the lock, or `otherwise` when it reaches a limit.
  template <class Answer, class Work>
  Answer within_limits(StateId state, Answer otherwise, const Work& work) const;
  StateId next_named(StateId state, Token token) const;

  std::shared_ptr<GrammarVocabulary> vocabulary_;
  std::shared_ptr<GrammarLanguages> languages_;
  std::unique_ptr<Automaton> automaton_;
  std::vector<Token> named_tokens_;
  std::unique_ptr<Masks> masks_;
  std::unique_ptr<CanonicalMasks> canonical_;  ///< nullptr: any cut
  std::unique_ptr<Masks> canonical_masks_;
  std::unique_ptr<RecentAnswers> recent_;
  mutable std::mutex mutex_;  ///< guards the automaton, the masks and what limits were reached
  mutable std::unordered_map<StateId, std::string> limits_;
  mutable std::unordered_set<StateId> unknown_masks_;  ///< reached a limit
  mutable std::atomic<bool> has_limits_ = false;
  mutable std::atomic<bool> is_used_up_ = false;
  mutable std::atomic<uint64_t> mask_bytes_ = 0;
  StateId start_ = Automaton::kDead;
  Compile compile_;
};

/// Maker of an automaton from languages that other grammars share.
using MakeAutomaton = std::function<std::unique_ptr<Automaton>(SharedLanguages&)>;
/// The grammar remembers how it is made (see recompile).
std::shared_ptr<const CompiledGrammar> compile_automaton(
    const std::shared_ptr<GrammarVocabulary>& vocabulary, const GrammarLimits& limits, Cuts cuts,
    const MakeAutomaton& make);

/// Compiles a JSON Schema (2020-12, 2019-09, draft 7, 6 and 4). Throws GrammarError naming the
/// keyword and its JSON pointer when something is not supported or too large, and when nothing
/// satisfies the schema (unless `allow_empty`).
std::shared_ptr<const CompiledGrammar> compile_json_schema(
    const std::shared_ptr<GrammarVocabulary>& vocabulary, std::string_view schema,
    const JsonSchemaOptions& options = {}, const GrammarLimits& limits = {},
    bool allow_empty = false);

}  // namespace specdec
