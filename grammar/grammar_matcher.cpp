#include "grammar/grammar_matcher.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "core/error.h"

namespace specdec {

namespace {

/// Which of the strings a step was, whose tokens are numbers below zero.
size_t string_index(Token token) {
  const Token index = ~token;
  return static_cast<size_t>(index);
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), steps_{{grammar_->start()}} {}

std::vector<Token> GrammarMatcher::newest_tokens() const {
  auto first = steps_.end();
  while (first - steps_.begin() > 1 && std::prev(first)->token >= 0) {
    --first;
  }
  std::vector<Token> tokens;
  std::transform(first, steps_.end(), std::back_inserter(tokens),
                 [](const Step& step) { return step.token; });
  return tokens;
}

// ---- Limits -------------------------------------------------------------------------------------

/// True when the grammar cannot say what comes next: every other place of a text has a way on.
bool GrammarMatcher::is_at_limit() const {
  return state() != Automaton::kDead && !is_ended() && grammar_->mask(state()).empty();
}

/// The text, or what can be read of it, in that grammar, with a mask at each place.
GrammarMatcher GrammarMatcher::alone(std::shared_ptr<const CompiledGrammar> grammar) const {
  GrammarMatcher text(std::move(grammar));
  text.steps_.reserve(steps_.size() + 1);
  for (size_t i = 1; i < steps_.size(); ++i) {
    const Token token = steps_[i].token;
    const bool goes_on = !text.is_at_limit() &&
                         (token < 0 ? text.step(strings_[string_index(token)]) : text.step(token));
    if (!goes_on) {
      break;
    }
  }
  return text;
}

/// Goes on in a grammar that is compiled anew; false, and unchanged, where this text alone reaches
/// a limit.
bool GrammarMatcher::renew() {
  auto anew = grammar_->recompile();
  if (anew == nullptr) {
    return false;
  }
  GrammarMatcher text = alone(std::move(anew));
  if (text.length() < length() || text.is_at_limit()) {
    return false;
  }
  *this = std::move(text);
  return true;
}

bool GrammarMatcher::settle() {
  if (!is_at_limit()) {
    return state() != Automaton::kDead && !is_ended();
  }
  if (!limit_ && !renew()) {
    limit_ = grammar_->limit(state());
  }
  return !limit_;
}

std::optional<std::string> GrammarMatcher::limit() const {
  if (limit_) {
    return limit_;
  }
  auto reached = grammar_->limit(state());
  return reached && !GrammarMatcher(*this).settle() ? reached : std::nullopt;
}

// ---- Steps --------------------------------------------------------------------------------------

TokenMask GrammarMatcher::mask() const {
  TokenMask mask = grammar_->mask(state());
  if (!mask.empty() || limit_ || is_ended() || state() == Automaton::kDead) {
    return mask;
  }
  return GrammarMatcher(*this).settled_mask();
}

TokenMask GrammarMatcher::settled_mask() {
  if (limit_) {
    return grammar_->mask(Automaton::kDead);
  }
  TokenMask mask = grammar_->mask(state());
  return mask.empty() && settle() ? grammar_->mask(state()) : mask;
}

bool GrammarMatcher::step(Token token) {
  const StateId next = grammar_->next(state(), token);
  if (next != Automaton::kDead) {
    steps_.push_back({next, token});
    limit_.reset();
  }
  return next != Automaton::kDead;
}

bool GrammarMatcher::step(std::string_view bytes) {
  const StateId next = is_ended() ? Automaton::kDead : grammar_->next(state(), bytes);
  if (next != Automaton::kDead) {
    steps_.push_back({next, ~static_cast<Token>(strings_.size())});
    strings_.emplace_back(bytes);
    limit_.reset();
  }
  return next != Automaton::kDead;
}

bool GrammarMatcher::accept(Token token) { return step(token) || step_alone(token); }

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  return step(bytes) || step_alone(bytes);
}

/// A step that failed, perhaps at a limit. Goes on in the grammar compiled anew even where it
/// forbids the step, so that the next one that it forbids compiles nothing.
template <class Part>
bool GrammarMatcher::step_alone(Part part) {
  auto reached = limit_ ? std::nullopt : grammar_->limit(state());
  if (!reached) {
    return false;
  }
  if (!renew()) {
    limit_ = std::move(reached);
    return false;
  }
  const bool allowed = step(part);
  if (!allowed) {
    limit_ = grammar_->limit(state());
  }
  return allowed;
}

void GrammarMatcher::rollback(int64_t tokens) {
  SPECDEC_CHECK(tokens >= 0 && tokens <= length(), "{} tokens to forget of {}", tokens, length());
  for (; tokens > 0; --tokens) {
    if (steps_.back().token < 0) {
      strings_.pop_back();
    }
    steps_.pop_back();
    limit_.reset();
  }
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

std::string GrammarMatcher::forced_bytes() const { return grammar_->forced_bytes(state()); }

std::string GrammarMatcher::explain() const { return grammar_->explain(state()); }

std::vector<Capture> GrammarMatcher::captures() const {
  const std::vector<Token>& named = grammar_->named_tokens();
  std::vector<TextPart> parts;
  for (size_t i = 1; i < steps_.size(); ++i) {
    const Token token = steps_[i].token;
    if (token < 0) {
      parts.push_back({strings_[string_index(token)]});
      continue;
    }
    const bool is_named = std::binary_search(named.begin(), named.end(), token);
    const bool only_ends = steps_[i].state == CompiledGrammar::kEnded &&
                           (!is_named || grammar_->is_complete(steps_[i - 1].state));
    if (!only_ends) {
      parts.push_back({grammar_->vocabulary().bytes(token),
                       is_named ? std::optional(token) : std::nullopt, true});
    }
  }
  return grammar_->captures(parts);
}

// ---- Trees --------------------------------------------------------------------------------------

/// The place after a node of a tree that begins here.
GrammarMatcher GrammarMatcher::after(TokenSpan tokens, const std::vector<int64_t>& parents,
                                     int64_t node) const {
  std::vector<Token> path;
  for (; node >= 0; node = parents[static_cast<size_t>(node)]) {
    path.push_back(tokens[static_cast<size_t>(node)]);
  }
  GrammarMatcher place = *this;
  for (auto token = path.rbegin(); token != path.rend(); ++token) {
    (void)place.step(*token);
  }
  return place;
}

std::vector<TokenMask> GrammarMatcher::tree_masks(TokenSpan tokens,
                                                  const std::vector<int64_t>& parents) const {
  SPECDEC_CHECK(tokens.size() == parents.size(), "{} tokens with {} parents", tokens.size(),
                parents.size());
  std::vector<StateId> states(tokens.size(), Automaton::kDead);
  std::map<int64_t, GrammarMatcher> alone;  // where others reached a limit, before it and below
  std::vector<TokenMask> masks;
  masks.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    SPECDEC_CHECK(parents[i] < static_cast<int64_t>(i), "node {} follows {}", i, parents[i]);
    const StateId before = parents[i] < 0 ? state() : states[static_cast<size_t>(parents[i])];
    if (before != Automaton::kDead) {
      states[i] = grammar_->next(before, tokens[i]);
    }
    masks.push_back(grammar_->mask(states[i]));
    const bool lost = masks.back().empty() && before != Automaton::kDead &&
                      states[i] != CompiledGrammar::kEnded &&
                      (states[i] != Automaton::kDead || grammar_->limit(before));
    auto parent = alone.find(parents[i]);
    const bool below = parent != alone.end() && before == Automaton::kDead;
    if (!lost && !below) {
      continue;
    }
    if (parent == alone.end()) {
      parent = alone.emplace(parents[i], after(tokens, parents, parents[i])).first;
      (void)parent->second.renew();
    }
    GrammarMatcher place = parent->second;
    states[i] = Automaton::kDead;
    masks.back() = grammar_->mask(states[i]);
    if (place.accept(tokens[i]) && place.settle()) {
      masks.back() = place.grammar_->mask(place.state());
      alone.emplace(static_cast<int64_t>(i), std::move(place));
    }
  }
  return masks;
}

}  // namespace specdec
