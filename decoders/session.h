#pragma once
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/draft.h"
#include "core/language_model.h"
#include "core/randomness.h"
#include "decoders/decoding_strategy.h"
#include "decoders/drafter.h"
#include "decoders/verifier.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

/// One request in progress: committed tokens, grammar, stop rule, randomness, statistics. The one
/// place where penalties, grammar masks and sampling transforms turn logits into distributions.
///
/// A token that has been drawn is never dropped, which would change the distribution: what does not
/// fit is not drafted (see draft_limits), and only a stop ends the output early.
class Session {
 public:
  /// Throws Error for sampling or stop rules out of range, for stop strings without tokenizer, and
  /// for a grammar of another vocabulary.
  /// `request` and `target` outlive the session. The clock of the prefill starts here.
  Session(const Request& request, const LanguageModel& target);

  /// Prompt and output.
  TokenSpan committed() const { return committed_; }
  Token newest() const { return committed_.back(); }
  bool finished() const { return finished_; }
  /// What may be drafted now: with the bonus token a path fits max_new_tokens, and all nodes fit
  /// the model.
  DraftLimits draft_limits() const;
  /// The randomness of the request, at the position that is to be decided next.
  Randomness& random(Purpose purpose);
  const SamplingParams& sampling() const { return request_.sampling; }
  /// The grammar's place after the committed tokens; nullptr without a grammar.
  const GrammarMatcher* grammar() const { return grammar_ ? &*grammar_ : nullptr; }
  /// The newest token, then those that the grammar leaves no choice about, as far as they fit: a
  /// chain.
  Draft certain() const;
  /// What a drafter may look at now; its limits are draft_limits(). Lives until the next commit.
  DraftContext context(DraftShape& shape, const StepResult* last_step,
                       const ForwardResult* prompt_result);

  /// The target's processed distributions after each node of a draft, whose logits [n, vocab] are
  /// on the CPU. Each node's history is the committed tokens and its own path. They are in the
  /// session's memory and change with the next call.
  TargetProbs target_probs(const Draft& draft, const Tensor& logits);

  /// Draws and commits the token that the prefill yields; logits [vocab]. Ends the prefill's time.
  void commit_prefill(const Tensor& logits);
  /// Draws and commits the token of a plain step; logits [vocab].
  void commit_next(const Tensor& logits);
  /// Commits a chain of certain tokens, and draws and commits the one after it; logits [n, vocab].
  void commit_certain(const Draft& chain, const Tensor& logits);
  /// Commits the accepted tokens and the one after them. target_probs was called with this draft.
  void commit(const Draft& draft, const VerifyResult& result);
  /// Commits a token that was not drawn here but is given: the next one of a text that is traced.
  void commit_given(Token token);

  /// The time since the last step's end was spent on drafting; the time since drafted(), or since
  /// the last step's end, on the target's forward. What is left of a step is other time.
  void drafted();
  void verified();

  /// The result; the session is over.
  Generation finish() &&;

 private:
  using Clock = std::chrono::steady_clock;

  double lap();
  /// The grammar's masks of all nodes.
  void find_masks(const Draft& draft);
  ScoreFilter filter(int64_t node) const;
  /// Applies the request's weights to a node's distribution.
  void weigh(const Draft& draft, int64_t node, std::span<double> distribution) const;
  /// Counts a step whose tokens were appended. What stands behind the end of the text was neither
  /// drafted nor accepted.
  void count(const Draft& draft, const VerifyResult& result);
  /// As by_freedom: tokens down to depth `end`, of which result.path's were accepted.
  void count_by_freedom(const Draft& draft, const VerifyResult& result, int64_t end);
  /// Advances the grammar; `node`: whose logits the token was taken from, -1 for none.
  void follow_grammar(Token token, int64_t node);
  /// Draws the token after the last node of a chain.
  Token draw(const Draft& chain, const Tensor& logits);
  /// Commits tokens until a stop; tokens[i] was taken from the logits of node nodes[i], or was
  /// given from outside (-1).
  void append(std::span<const Token> tokens, std::span<const int64_t> nodes);
  void check_stop(Token token);
  bool completes_stop_string(Token token);
  void stop(StopReason reason);

  const Request& request_;
  int64_t max_length_;
  int64_t vocab_size_;
  std::vector<Token> committed_;
  bool finished_ = false;
  std::string tail_;  // newest bytes of the output, as many as a stop string may still need
  size_t longest_stop_string_ = 0;
  Tensor probs_;              // workspace of target_probs
  Tensor logits_;             // that target_probs saw last
  std::vector<double> gaps_;  // of each node, when greedy
  std::optional<GrammarMatcher> grammar_;
  std::vector<TokenMask> masks_;  // of each node, with a grammar
  StepStatistics step_;           // in progress
  Clock::time_point mark_;
  Generation generation_;
};

}  // namespace specdec
