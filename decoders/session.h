#pragma once
#include <optional>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/language_model.h"
#include "core/randomness.h"
#include "core/stopwatch.h"
#include "decoders/committed_text.h"
#include "decoders/decoding_strategy.h"
#include "decoders/drafter.h"
#include "decoders/logits_processor.h"
#include "decoders/step_statistics.h"
#include "decoders/verifier.h"

namespace specdec {

/// One request in progress: its text, the target's distributions, randomness, statistics.
///
/// A token that has been drawn is never dropped, which would change the distribution: what does not
/// fit is not drafted (see draft_limits), and only a stop ends the output early.
class Session {
 public:
  /// Throws Error for sampling or stop rules out of range, for stop strings without tokenizer, for
  /// a grammar or bias of another vocabulary, and for a prompt's embeddings or logits that do not
  /// fit the target.
  /// `request` and `target` outlive the session. The clock of the prefill starts here.
  Session(const Request& request, const LanguageModel& target);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Prompt and output.
  TokenSpan committed() const { return text_.tokens(); }
  Token newest() const { return committed().back(); }
  bool finished() const { return text_.end().has_value(); }
  /// See CommittedText::room.
  DraftLimits draft_limits() const { return text_.room(); }
  /// The randomness of the request, at the position that is to be decided next.
  Randomness& random(Purpose purpose);
  /// The request's random numbers at that position, as a device draws them; only where the
  /// request samples and logits_use() is kSampler.
  DeviceRandomness device_random() const;
  const SamplingParams& sampling() const { return request_.sampling; }
  /// The grammar's place after the committed tokens; nullptr without a grammar.
  const GrammarMatcher* grammar() const { return text_.grammar(); }
  /// The newest token, then those that the grammar forces, as far as they fit: a chain.
  Draft forced();
  /// What a drafter may look at now; its limits are draft_limits(). Lives until the next commit.
  DraftContext context(DraftShape& shape, const StepResult* last_step,
                       const ForwardResult* prompt_result);

  /// See LogitsProcessor::use.
  LogitsUse logits_use() const { return LogitsProcessor::use(request_); }
  /// The target's distributions after each node of a draft; see LogitsProcessor::find.
  TargetProbs& target_probs(const Draft& draft, const ForwardResult& result);
  /// Verifies a draft by the forward's logits: on the device where they stayed, or by the target's
  /// distributions.
  VerifyResult verify(const Verifier& verifier, const Draft& draft, const ForwardResult& result);

  /// The options that a prompt is read with.
  ForwardOptions prompt_options(ForwardOptions options) const;
  /// Reads a text, of which the prompt is the beginning, as the request gives it.
  ForwardResult read(LanguageModel& target, TokenSpan text, const ForwardOptions& options) const;
  /// Reads the prompt into the target and commits the token that it yields; where the request goes
  /// on with its output so far, that is read but for its newest token. What Request::prefixes knows
  /// is not read again. The results are those of LanguageModel::prefill.
  ForwardResult prefill(LanguageModel& target, const ForwardOptions& options);
  /// Lets Request::prefixes remember a text that was given by its tokens, whose beginning is what
  /// the target keeps in row 0. Where the strategy reads the states of whole prompts, those of the
  /// output are not there: then the prompt alone is remembered, by prefill().
  void remember(LanguageModel& target) const;

  // Decisions by a forward's result: logits [n, vocab] or the best tokens of its n nodes.

  /// Draws and commits the token that the prefill yields, by a result of one row. Ends the
  /// prefill's time.
  void commit_prefill(const ForwardResult& result);
  /// Draws and commits the token of a plain step, by a result of one row.
  void commit_next(const ForwardResult& result);
  /// Commits a chain of forced tokens, and draws and commits the one after it.
  void commit_forced(const Draft& chain, const ForwardResult& result);
  /// Commits the accepted tokens and the one after them. verify or target_probs was called with
  /// this draft.
  void commit(const Draft& draft, const VerifyResult& result);
  /// Commits a token that was not drawn here but is given: the next one of a text that is traced.
  void commit_given(Token token);

  /// The time since the last step's end was spent on drafting; the time since drafted(), or since
  /// the last step's end, on the target's forward, with what a device then takes until it has
  /// decided, since the forward ends there. What is left of a step is other time.
  void drafted() { step_.draft_seconds += stopwatch_.lap(); }
  void verified() { step_.verify_seconds += stopwatch_.lap(); }

  /// The result; the session is over.
  Generation finish() &&;

 private:
  /// Position of a token in the text, and the node whose logits it was taken from.
  struct TakenToken {
    size_t position = 0;
    int64_t node = 0;
  };

  /// See LogitsProcessor::decide; counts what was read back.
  std::optional<VerifyResult> decide(DeviceRule rule, const Draft& draft,
                                     const ForwardResult& result);
  /// Draws the token after the last node of a chain.
  Token draw(const Draft& chain, const ForwardResult& result);
  /// Draws and commits the token after the newest one.
  void append_drawn(const ForwardResult& result);
  /// Commits tokens until a stop; tokens[i] was taken from the logits of node nodes[i], or was
  /// given from outside (-1).
  void append(std::span<const Token> tokens, std::span<const int64_t> nodes);
  /// Notes what is known of the newest token, which was taken from the logits of `node`.
  void note(int64_t node);
  /// Computes log_allowed and log_probs of the tokens that were noted since the last call under a
  /// grammar: two softmaxes each. Decoding does not need them, so their time does not count, unless
  /// a device found them with its decision.
  void measure_masses();
  void start_step();
  void end_times();
  void end_step();

  const Request& request_;
  CommittedText text_;
  StepStatistics step_;  // in progress
  LogitsProcessor distributions_;
  Stopwatch stopwatch_;
  double waited_ = 0.0;  // of the step, for a device to decide
  Generation generation_;
  std::vector<TakenToken> unmeasured_;  // tokens whose masses are not computed yet
  bool wants_states_ = false;           // of all tokens of the prompt
};

}  // namespace specdec
