#include "grammar/grammar_matcher.h"

#include "core/error.h"

namespace specdec {

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), states_{grammar_->start()} {}

TokenMask GrammarMatcher::mask() const { return grammar_->mask(state()); }

bool GrammarMatcher::accept(Token token) {
  const StateId next = grammar_->next(state(), token);
  if (next != Automaton::kDead) {
    states_.push_back(next);
  }
  return next != Automaton::kDead;
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  const StateId next = is_ended() ? Automaton::kDead : grammar_->next(state(), bytes);
  if (next != Automaton::kDead) {
    states_.push_back(next);
  }
  return next != Automaton::kDead;
}

void GrammarMatcher::rollback(int64_t tokens) {
  SPECDEC_CHECK(tokens >= 0 && tokens <= length(), "{} tokens to forget of {}", tokens, length());
  states_.resize(states_.size() - static_cast<size_t>(tokens));
}

bool GrammarMatcher::is_ended() const { return state() == CompiledGrammar::kEnded; }

bool GrammarMatcher::is_complete() const { return grammar_->is_complete(state()); }

bool GrammarMatcher::can_only_end() const {
  if (is_ended()) {
    return true;
  }
  if (!is_complete()) {
    return false;
  }
  return mask().count() == static_cast<int64_t>(grammar_->vocabulary().end_tokens().size());
}

std::optional<std::string> GrammarMatcher::limit() const { return grammar_->limit(state()); }

std::string GrammarMatcher::forced_bytes() const { return grammar_->forced_bytes(state()); }

std::string GrammarMatcher::explain() const { return grammar_->explain(state()); }

std::vector<TokenMask> GrammarMatcher::tree_masks(TokenSpan tokens,
                                                  const std::vector<int64_t>& parents) const {
  SPECDEC_CHECK(tokens.size() == parents.size(), "{} tokens with {} parents", tokens.size(),
                parents.size());
  std::vector<StateId> states(tokens.size(), Automaton::kDead);
  std::vector<TokenMask> masks;
  masks.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    SPECDEC_CHECK(parents[i] < static_cast<int64_t>(i), "node {} follows {}", i, parents[i]);
    const StateId before = parents[i] < 0 ? state() : states[static_cast<size_t>(parents[i])];
    if (before != Automaton::kDead) {
      states[i] = grammar_->next(before, tokens[i]);
    }
    masks.push_back(grammar_->mask(states[i]));
  }
  return masks;
}

}  // namespace specdec
