#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "grammar/compiled_grammar.h"

namespace specdec {

/// A place in a grammar's text, token by token. Cheap to copy (eight bytes a token).
///
/// The grammar's limits hold for one text: where the texts that were read before reach them, the
/// text is read again, alone, by a grammar that is compiled anew. What other texts were read, such
/// as drafts, changes no answer.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar);

  /// Mask of the tokens that may come next. After an end token none may.
  TokenMask mask() const;
  /// False, and unchanged, when the grammar forbids the token here.
  [[nodiscard]] bool accept(Token token);
  /// Accepts bytes, cut in whatever way: one step. No end of a token is known of them, so that
  /// grammars that count tokens (max_tokens in Lark) count none.
  [[nodiscard]] bool accept_bytes(std::string_view bytes);
  /// Forgets the newest tokens.
  void rollback(int64_t tokens);
  /// Tokens accepted so far.
  int64_t length() const { return static_cast<int64_t>(steps_.size()) - 1; }
  /// True when the text so far may end here; also after an end token.
  bool is_complete() const;
  /// True when an end token has been accepted.
  bool is_ended() const;
  /// True when nothing but an end token may come.
  bool can_only_end() const;
  /// Reason for which it is not known what may come next, when this text alone reaches a limit:
  /// then no token may. No call throws for a limit.
  std::optional<std::string> limit() const;
  /// Finds out what may come next, and goes on in a grammar compiled anew where that is needed.
  /// False at a limit, and after a text that has ended. Once this text alone has reached a limit,
  /// the matcher knows that until it is rolled back: no call compiles anew.
  bool settle();
  /// The mask after `settle`; empty at a limit, whichever token reached it.
  TokenMask settled_mask();
  /// The newest tokens, back to the newest bytes that were accepted.
  std::vector<Token> newest_tokens() const;
  /// What every text has next.
  std::string forced_bytes() const;
  std::string explain() const;
  /// What the rules matched that are marked for it (`name[capture]` in Lark). See
  /// Automaton::captures.
  std::vector<Capture> captures() const;

  /// Masks of all nodes of a draft tree below this place, in one call: parents[i] is the node
  /// before node i (smaller than i), -1 for those that come next here. A node that the grammar
  /// forbids, and all below it, have an empty mask.
  std::vector<TokenMask> tree_masks(TokenSpan tokens, const std::vector<int64_t>& parents) const;

  const CompiledGrammar& grammar() const { return *grammar_; }
  StateId state() const { return steps_.back().state; }

 private:
  struct Step {
    StateId state;
    Token token = 0;  ///< token that led there; below zero: ~index of bytes
  };

  bool is_at_limit() const;
  bool renew();
  bool step(Token token);
  bool step(std::string_view bytes);
  template <class Part>
  bool step_alone(Part part);
  GrammarMatcher alone(std::shared_ptr<const CompiledGrammar> grammar) const;
  GrammarMatcher after(TokenSpan tokens, const std::vector<int64_t>& parents, int64_t node) const;

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<Step> steps_;           ///< after 0, 1, ... tokens
  std::vector<std::string> strings_;  ///< bytes that were accepted
  std::optional<std::string> limit_;  ///< limit that this text alone reached here
};

}  // namespace specdec
