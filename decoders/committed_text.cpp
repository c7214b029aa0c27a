#include "decoders/committed_text.h"

#include <algorithm>

#include "core/error.h"
#include "decoders/request_checks.h"

namespace specdec {
CommittedText::CommittedText(const Request& request, int64_t max_length, int64_t vocab_size)
    : request_(request),
      max_length_(max_length),
      tokens_(request.prompt.begin(), request.prompt.end()) {
  check_stop_rule(request);
  check_vocabulary(request.constraint, vocab_size);
  for (const std::string& stop_string : request.stop.stop_strings) {
    longest_stop_string_ = std::max(longest_stop_string_, stop_string.size());
  }
  if (request.constraint.grammar != nullptr) {
    grammar_.emplace(request.constraint.grammar);
    if (!grammar_->settle() && grammar_->limit()) {
      end_ = StopReason::kGrammarLimit;
    }
  }
  replay();
}

void CommittedText::replay() {
  for (const Token token : request_.resumed) {
    const size_t before = tokens_.size();
    append(token);
    if (tokens_.size() == before) {  // at a limit of the grammar
      return;
    }
  }
}

DraftLimits CommittedText::room() const {
  const int64_t wanted = request_.stop.max_new_tokens - std::ssize(output()) - 1;
  // The forward holds everything committed and the draft; the bonus token needs no place yet.
  const int64_t room = max_length_ - std::ssize(tokens_);
  const int64_t depth = std::max<int64_t>(0, std::min(wanted, room));
  return {.tokens = depth > 0 ? room : 0, .depth = depth, .branches = room};
}

void CommittedText::append(Token token) {
  if (grammar_ && !grammar_->accept(token)) {
    if (grammar_->limit()) {
      end_ = StopReason::kGrammarLimit;
      return;
    }
    if (output().size() < request_.resumed.size()) {
      throw ConfigError(fmt::format(
          "the grammar forbids token {} of the output so far, at position {}: go on with the "
          "grammar that it was generated under",
          token, tokens_.size()));
    }
    throw Error(fmt::format("token {} was committed, which the grammar forbids there", token));
  }
  tokens_.push_back(token);
  end_ = reason_to_stop(token);
}

std::optional<StopReason> CommittedText::reason_to_stop(Token token) {
  const StopRule& rule = request_.stop;
  if (const auto reason = rule.reason(token)) {
    return reason;
  }
  if (completes_stop_string(token)) {
    return StopReason::kStopString;
  }
  if (grammar_ && grammar_->is_ended()) {
    return StopReason::kEndOfSequence;
  }
  const bool known = !grammar_ || grammar_->settle();  // before anything is drawn or drafted there
  if (known && grammar_ && grammar_->can_only_end()) {
    return StopReason::kGrammarEnd;
  }
  if (std::ssize(output()) >= rule.max_new_tokens) {
    return StopReason::kMaxNewTokens;
  }
  if (!known) {
    return StopReason::kGrammarLimit;
  }
  return std::ssize(tokens_) > max_length_ ? std::optional(StopReason::kContextFull) : std::nullopt;
}

bool CommittedText::completes_stop_string(Token token) {
  // A model's vocabulary may be padded beyond its tokenizer's; such tokens stand for no bytes.
  if (longest_stop_string_ == 0 || token >= request_.tokenizer->vocab_size()) {
    return false;
  }
  tail_ += request_.tokenizer->token_bytes(token);
  const auto& stop_strings = request_.stop.stop_strings;
  const bool found = std::any_of(
      stop_strings.begin(), stop_strings.end(),
      [&](const std::string& stop_string) { return tail_.find(stop_string) != std::string::npos; });
  if (tail_.size() >= longest_stop_string_) {
    tail_.erase(0, tail_.size() - longest_stop_string_ + 1);
  }
  return found;
}

}  // namespace specdec
