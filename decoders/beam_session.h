#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/language_model.h"
#include "core/stopwatch.h"
#include "decoders/decoding_strategy.h"
#include "grammar/grammar_matcher.h"

namespace specdec {

/// Rule by which a beam search ends before its longest length, as Hugging Face has it. All variants
/// go on until there are num_beams hypotheses, if they can.
enum class EarlyStopping {
  kFalse,  ///< no running beam, scored at its present length, beats the worst hypothesis
  kTrue,   ///< ends as soon as there are num_beams hypotheses
  kNever,  ///< as kFalse, but scored at the longest length where length_penalty is above 0: no
           ///< better hypothesis is missed
};

struct BeamOptions {
  int64_t num_beams = 4;
  /// Hypotheses are ranked by log-probability / length ^ length_penalty; above 0 favours long ones.
  /// The length is that of the output, its end-of-sequence token included.
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::kFalse;
  int64_t num_return_sequences = 4;  ///< hypotheses in the result, at most num_beams

  /// Throws ConfigError naming the value that is out of range.
  void validate() const;
};

/// A running beam.
struct Beam {
  std::vector<Token> tokens;  ///< prompt and output; the newest one is not cached yet
  double log_prob = 0.0;      ///< log-probability of the output
  int64_t parent = 0;         ///< index, before the newest beam step, of the beam that it continues
  std::optional<GrammarMatcher> grammar = {};  ///< place in the grammar, where there is one
};

/// One beam search in progress: running beams, hypotheses, stop rule, statistics. What Session is
/// for a single sequence. Knows nothing of how logits come about, so plain and speculative beam
/// search share every decision.
///
/// The rules are those of Hugging Face's `generate` (transformers 5): a beam step ranks the
/// continuations of all beams by log-probability; of the best max(2, 1 + ends) * num_beams ones,
/// those that end are hypotheses if they rank among the first num_beams, and the first num_beams
/// that do not end run on. Ties go to the earlier beam, then to the lower token id. A repetition
/// penalty multiplies the log-probabilities of seen tokens after the softmax, without
/// normalising again.
///
/// Under a grammar, continuations that it forbids are left out; log-probabilities stay the model's
/// own. A beam after which the grammar can only end is a hypothesis.
class BeamSession {
 public:
  /// Throws ConfigError for what beam search cannot do: sampling, stop strings; for options out of
  /// range; and for a grammar of another vocabulary. `request` and `target` outlive the session.
  /// The clock of the prefill starts here.
  BeamSession(const Request& request, const LanguageModel& target, const BeamOptions& options);

  /// The running beams, best first; one, the prompt, before the first step.
  const std::vector<Beam>& beams() const { return beams_; }
  bool finished() const { return finished_; }
  /// True for a token that ends a hypothesis.
  bool ends(Token token) const;
  /// Beam steps until the longest length.
  int64_t steps_left() const { return longest_ - generated_; }
  /// Nodes that fit the model after the newest token of a beam.
  int64_t room() const;

  /// One beam step. logits[i]: [vocab] float32 or float64 on the CPU, after beams()[i]. Throws
  /// Error when they hold NaN or nothing finite.
  void advance(std::span<const Tensor> logits);

  /// The time since the last mark was spent on the prefill, on drafting, on the target's forward.
  void prefilled();
  void drafted();
  void verified();
  /// Ends a step: the rest of its time is other time. `counts` has drafted, accepted, committed and
  /// depth (see SpeculativeBeamSearch for their meaning there).
  void end_step(const StepStatistics& counts);
  /// Where the masks of the step in progress add their seconds.
  double* mask_seconds() { return &step_.mask_seconds; }

  /// The result; the session is over.
  Generation finish() &&;

 private:
  /// A beam with one more token.
  struct Continuation {
    double log_prob = 0.0;
    int64_t beam = 0;
    Token token = 0;
    bool operator<(const Continuation& other) const;  // ranks before
  };

  /// The best continuations that were seen: a heap, the worst on top.
  class Ranking;

  std::vector<Continuation> best_continuations(std::span<const Tensor> logits);
  /// Ranks what may follow a beam.
  void rank(size_t beam, const Tensor& logits, Ranking& ranking);
  std::optional<Beam> continued(const Continuation& by) const;
  void add_hypothesis(Beam beam, int64_t length);
  double score(double log_prob, int64_t length) const;
  bool can_improve() const;
  StopReason stop_reason(TokenSpan output) const;

  const Request& request_;
  BeamOptions options_;
  int64_t max_length_;
  int64_t longest_;        // new tokens of the longest hypothesis
  int64_t generated_ = 0;  // beam steps so far
  int64_t continuations_;  // ranked in each step
  std::vector<Beam> beams_;
  std::vector<Hypothesis> hypotheses_;  // best first, at most num_beams
  bool finished_ = false;
  StepStatistics step_;  // times of the one in progress
  Stopwatch stopwatch_;
  Generation generation_;
};

}  // namespace specdec
