#pragma once
#include <optional>
#include <string>
#include <vector>

#include "decoders/decoding_strategy.h"
#include "decoders/draft_shape.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

/// The text of a request so far: prompt and output, the grammar's place after it, and whether it
/// has ended by the stop rule.
class CommittedText {
 public:
  /// Throws Error for a stop rule out of range, for stop strings without tokenizer, and for a
  /// grammar of another vocabulary or one that forbids the output so far. `request` outlives the
  /// text; the model holds `max_length` tokens.
  CommittedText(const Request& request, int64_t max_length, int64_t vocab_size);

  TokenSpan tokens() const { return tokens_; }
  TokenSpan output() const { return tokens().subspan(request_.prompt.size()); }
  /// The grammar's place after the tokens; nullptr without a grammar.
  const GrammarMatcher* grammar() const { return grammar_ ? &*grammar_ : nullptr; }
  /// Reason for which the text has ended; nothing when it goes on.
  std::optional<StopReason> end() const { return end_; }
  /// What may be drafted now: with the bonus token a path fits max_new_tokens, and all nodes fit
  /// the model.
  DraftLimits room() const;

  /// Appends a token; the text ends after it where the grammar reaches a limit. Throws Error for a
  /// token that the grammar forbids.
  void append(Token token);

 private:
  /// Appends the output so far.
  void replay();
  std::optional<StopReason> reason_to_stop(Token token);
  bool completes_stop_string(Token token);

  const Request& request_;
  int64_t max_length_;
  std::vector<Token> tokens_;
  std::optional<GrammarMatcher> grammar_;
  std::optional<StopReason> end_;
  std::string tail_;  // newest bytes of the output, as many as a stop string may still need
  size_t longest_stop_string_ = 0;
};

}  // namespace specdec
