#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "experiments/metrics/generation_record.h"

namespace specdec {

/// Generations of each question: its turns times its repeats.
using QuestionSizes = std::map<std::string, int64_t>;

/// Questions of a run that are not behind a row's speed-up, by reason.
struct MissingQuestions {
  int64_t not_run = 0;       ///< answered elsewhere in the run, not here
  int64_t not_by_first = 0;  ///< answered here, not by the first strategy
  /// Answered by both, but without decode time of one: the prefill's token was the whole answer, or
  /// all that stands before a loop.
  int64_t untimed = 0;
  /// Answered by both, but a correction (see CorrectedDecoding) accepted no sample of one, so that
  /// there is no text to have a speed.
  int64_t none_accepted = 0;
  double none_accepted_seconds = 0.0;  ///< that the row's strategy spent on those
  int64_t in_part = 0;  ///< compared, over fewer turns or repeats than elsewhere in the run

  /// All but those that were compared in part.
  int64_t left_out() const { return not_run + not_by_first + untimed + none_accepted; }
};

QuestionSizes question_sizes(std::span<const GenerationRecord* const> records);

/// Raises the sizes in `all` to those in `more` where these are larger.
void raise_sizes(QuestionSizes& all, const QuestionSizes& more);

/// What a row lacks, but for those without a speed: `own` are its questions, `paired` its
/// generations that the first strategy has too, `all` the largest sizes in the run.
MissingQuestions missing_questions(const QuestionSizes& all, const QuestionSizes& own,
                                   const QuestionSizes& paired);

}  // namespace specdec
