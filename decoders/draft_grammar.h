#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/sampling.h"
#include "decoders/decoding_strategy.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

/// The grammar's places at the nodes of a growing draft, each found out when first asked for.
class DraftGrammar {
 public:
  /// Begins at `root`, the place after the draft's root, whose grammar outlives the object.
  /// `mask_seconds`: the sum to which its masks add their seconds; nullptr = nobody asks.
  explicit DraftGrammar(const GrammarMatcher& root, double* mask_seconds = nullptr);

  /// Tokens that may follow `node`; none after an end token and after a forbidden token.
  TokenMask mask(const Draft& draft, int64_t node);
  /// True where the texts that were read reach a limit of the grammar: nothing is drafted there.
  bool is_at_limit(const Draft& draft, int64_t node);
  /// True where the grammar allows the node itself, and the text did not end before it.
  bool allows(const Draft& draft, int64_t node) { return state(draft, node) != Automaton::kDead; }

 private:
  StateId state(const Draft& draft, int64_t node);

  const CompiledGrammar& grammar_;
  double* mask_seconds_;
  std::vector<StateId> states_;  // of the first nodes
};

/// The tokens of the mask; all for an empty mask, which belongs to a node that cannot be reached:
/// any distribution will do there.
AllowedTokens allowed_by(const TokenMask& mask);

/// Freedom that the mask leaves.
Freedom freedom_of(const TokenMask& mask);

/// The chain of the newest token and of those that a grammar forces, up to the first one that a
/// bias forbids: nothing is left there, which its logits will say.
Draft forced_chain(Token newest, TokenSpan forced, const SamplingParams& sampling);

/// The draft without the tokens that were found deterministically and that the grammar or a bias
/// forbids, and without what follows them. Tokens that were drawn stay, forbidden or not: to drop
/// one after it was drawn would change the output's distribution.
Draft without_forbidden(Draft draft, const GrammarMatcher& root,
                        const SamplingParams& sampling = {});

}  // namespace specdec
