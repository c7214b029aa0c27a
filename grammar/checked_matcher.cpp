#include "grammar/checked_matcher.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grammar/engine.h"
#include "grammar/forced_tokens.h"

namespace specdec {

CheckedMatcher::Use::Use(const CheckedMatcher& matcher) : in_use_(matcher.in_use_) {
  if (in_use_.exchange(true, std::memory_order_acquire)) {
    throw Error(
        "a matcher is used by two threads at once, or stands twice in a batch; give each thread "
        "and each row a copy of its own");
  }
}

CheckedMatcher::CheckedMatcher(std::shared_ptr<const GrammarEngine> engine,
                               std::shared_ptr<const CompiledGrammar> grammar)
    : engine_(std::move(engine)), place_(std::move(grammar)) {
  if (&place_.grammar().vocabulary() != &engine_->vocabulary()) {
    throw Error("the grammar belongs to another engine; compile it with the one of the matcher");
  }
}

CheckedMatcher::CheckedMatcher(const CheckedMatcher& other) : CheckedMatcher(other, Use(other)) {}

CheckedMatcher::CheckedMatcher(const CheckedMatcher& other, const Use& /*of the other*/)
    : engine_(other.engine_), place_(other.place_) {}

void CheckedMatcher::check_token(Token token) const {
  if (token < 0 || token >= engine_->vocab_size()) {
    throw Error(fmt::format("token {} is outside the vocabulary of {} tokens", token,
                            engine_->vocab_size()));
  }
}

void CheckedMatcher::check_not_ended() const {
  if (place_.is_ended()) {
    throw Error("the text has ended with an end token; roll back or reset the matcher first");
  }
}

bool CheckedMatcher::accept(Token token) {
  const Use use(*this);
  check_token(token);
  check_not_ended();
  return place_.accept(token);
}

bool CheckedMatcher::accept_bytes(std::string_view bytes) {
  const Use use(*this);
  check_not_ended();
  return place_.accept_bytes(bytes);
}

bool CheckedMatcher::allows(Token token) const {
  const Use use(*this);
  check_token(token);
  check_not_ended();
  return place_.settled_mask().allows(token);
}

TokenMask CheckedMatcher::mask() const {
  const Use use(*this);
  check_not_ended();
  return place_.settled_mask();
}

void CheckedMatcher::fill(std::span<int32_t> row) const {
  const Use use(*this);
  write(row);
}

void CheckedMatcher::write(std::span<int32_t> row) const {
  check_not_ended();
  if (std::ssize(row) != engine_->words()) {
    throw Error(fmt::format("a row of {} words for {} tokens; it must have {}", row.size(),
                            engine_->vocab_size(), engine_->words()));
  }
  const TokenMask mask = place_.settled_mask();
  const auto words = static_cast<size_t>((mask.vocab_size() + 31) / 32);
  mask.write({reinterpret_cast<uint32_t*>(row.data()), words});
  if (mask.vocab_size() % 32 != 0) {
    row[words - 1] &= static_cast<int32_t>((1U << (mask.vocab_size() % 32)) - 1);
  }
  std::fill(row.begin() + static_cast<int64_t>(words), row.end(), 0);
}

void CheckedMatcher::rollback(int64_t steps) {
  const Use use(*this);
  if (steps < 0 || steps > place_.length()) {
    throw Error(fmt::format("{} steps to roll back, but {} were accepted", steps, place_.length()));
  }
  place_.rollback(steps);
}

void CheckedMatcher::reset() {
  const Use use(*this);
  place_.rollback(place_.length());
}

int64_t CheckedMatcher::length() const {
  const Use use(*this);
  return place_.length();
}

bool CheckedMatcher::is_complete() const {
  const Use use(*this);
  return place_.is_complete();
}

bool CheckedMatcher::is_ended() const {
  const Use use(*this);
  return place_.is_ended();
}

std::optional<std::string> CheckedMatcher::limit() const {
  const Use use(*this);
  (void)place_.settle();
  return place_.limit();
}

std::string CheckedMatcher::forced_bytes() const {
  const Use use(*this);
  (void)place_.settle();
  return place_.forced_bytes();
}

std::vector<Token> CheckedMatcher::forced_tokens(int64_t most) const {
  const Use use(*this);
  (void)place_.settle();
  return forced_text_tokens(place_, engine_->tokenizer(), place_.newest_tokens(), most);
}

std::vector<Capture> CheckedMatcher::captures() const {
  const Use use(*this);
  return place_.captures();
}

std::string CheckedMatcher::explain() const {
  const Use use(*this);
  return place_.explain();
}

}  // namespace specdec
