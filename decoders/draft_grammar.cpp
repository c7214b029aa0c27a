#include "decoders/draft_grammar.h"

#include <utility>

#include "core/stopwatch.h"

namespace specdec {
DraftGrammar::DraftGrammar(const GrammarMatcher& root, double* mask_seconds)
    : grammar_(root.grammar()), mask_seconds_(mask_seconds), states_{root.state()} {}

StateId DraftGrammar::state(const Draft& draft, int64_t node) {
  while (std::ssize(states_) <= node) {
    const size_t next = states_.size();
    const StateId before = states_[static_cast<size_t>(draft.parents[next])];
    states_.push_back(before == Automaton::kDead ? before
                                                 : grammar_.next(before, draft.tokens[next]));
  }
  return states_[static_cast<size_t>(node)];
}

TokenMask DraftGrammar::mask(const Draft& draft, int64_t node) {
  const ScopedSeconds timer(mask_seconds_);
  return grammar_.mask(state(draft, node));
}

bool DraftGrammar::is_at_limit(const Draft& draft, int64_t node) {
  const ScopedSeconds timer(mask_seconds_);
  const StateId place = state(draft, node);
  return place != Automaton::kDead && place != CompiledGrammar::kEnded &&
         grammar_.mask(place).empty();
}

AllowedTokens allowed_by(const TokenMask& mask) {
  if (mask.empty()) {
    return nullptr;
  }
  auto words = std::make_shared<std::vector<uint32_t>>((mask.vocab_size() + 31) / 32);
  mask.write(*words);
  if (mask.vocab_size() % 32 != 0) {  // no logits beyond the mask's vocabulary
    words->back() &= (1U << (mask.vocab_size() % 32)) - 1;
  }
  return words;
}

Freedom freedom_of(const TokenMask& mask) {
  const int64_t count = mask.count();
  if (count == 1) {
    return Freedom::kForced;
  }
  return 2 * count > mask.vocab_size() ? Freedom::kFree : Freedom::kConstrained;
}

Draft forced_chain(Token newest, TokenSpan forced, const SamplingParams& sampling) {
  Draft chain = Draft::root(newest);
  for (const Token token : forced) {
    if (sampling.forbids(token)) {
      break;
    }
    chain.add(token, chain.size() - 1);
  }
  return chain;
}

Draft without_forbidden(Draft draft, const GrammarMatcher& root, const SamplingParams& sampling) {
  DraftGrammar grammar(root);
  std::vector<int64_t> place(draft.tokens.size(), -1);  // in the draft that is left
  Draft left = Draft::root(draft.tokens.front());
  left.probs = draft.probs;
  left.child_probs = {draft.child_probs.front()};
  place[0] = 0;
  for (int64_t node = 1; node < draft.size(); ++node) {
    const auto index = static_cast<size_t>(node);
    const auto parent = static_cast<size_t>(draft.parents[index]);
    const bool stays = draft.child_probs[parent] >= 0 ||
                       (grammar.allows(draft, node) && !sampling.forbids(draft.tokens[index]));
    if (stays && place[parent] >= 0) {
      place[index] = left.add(draft.tokens[index], place[parent]);
      left.child_probs.back() = draft.child_probs[index];
    }
  }
  return left.size() == draft.size() ? std::move(draft) : std::move(left);
}

}  // namespace specdec
