#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experiments/metrics/generation_record.h"
#include "experiments/metrics/intervals.h"

namespace specdec {

/// Generations of one turn and repeat of a question by the two strategies to compare.
struct GenerationPair {
  const GenerationRecord* first = nullptr;
  const GenerationRecord* other = nullptr;
};
/// Pairs of generations that both strategies have, in the order of `other`.
std::vector<GenerationPair> pair_generations(std::span<const GenerationRecord* const> first,
                                             std::span<const GenerationRecord* const> other);
/// True when both have the same tokens.
bool equal_texts(const GenerationPair& pair);

/// What one strategy spent on a question.
struct QuestionCosts {
  double decode_seconds = 0.0;
  double total_seconds = 0.0;  ///< prefill included
  int64_t committed = 0;       ///< tokens of the steps
  int64_t tokens = 0;          ///< with the one that each prefill yields
  int64_t steps = 0;
  int64_t none_accepted = 0;  ///< generations of which a correction accepted no sample

  void add(const Generation& generation);
};
/// A question, its turns and repeats added up, of the two strategies.
struct QuestionPair {
  QuestionCosts first, other;
};
std::vector<QuestionPair> pair_questions(std::span<const GenerationPair> pairs);
/// True where both have decode time and tokens: a question behind the speed-ups.
bool has_decode_times(const QuestionPair& question);

/// How many times faster than the first strategy: the geometric mean over questions of the paired
/// ratio of seconds per token, first strategy / this one. Its interval is Student's t interval of
/// the mean of the ratios' logarithms over questions, made for the logarithm since a ratio and its
/// inverse must be treated alike (Kalibera and Jones, 2013, "Rigorous benchmarking in reasonable
/// time"; Miller, 2024, arXiv:2411.00640, on pairs and clusters).
struct Speedup {
  double ratio = 0.0;
  std::optional<Interval> interval = {};  ///< 95 %; none below kMinQuestions questions
  int64_t questions = 0;                  ///< that both strategies have
  /// Ratio of total seconds per token over the same questions: long answers weigh more. What a
  /// user who sends them all in a row would see.
  double of_totals = 0.0;
  double log_error = 0.0;  ///< standard error of log(ratio)
};

/// Decode speed-up: of decode_seconds per token of the steps, as most papers have it. None without
/// a question where both have time and tokens.
std::optional<Speedup> decode_speedup(std::span<const QuestionPair> questions);
/// End-to-end speed-up: of total_seconds per new token, the prompt's prefill included, over the
/// same questions as the decode speed-up; where no question has one, over all with time and tokens.
/// Never further from 1 than the decode speed-up where both prefill alike, and smaller for long
/// prompts.
std::optional<Speedup> end_to_end_speedup(std::span<const QuestionPair> questions);

/// Interval of the largest of `arms` speed-ups, chosen since it is the largest. By Bonferroni's
/// inequality (Dunn, 1961, "Multiple comparisons among means") intervals at confidence
/// 1 - 0.05 / arms contain the truth for all arms at once in 95 % of experiments, hence for
/// whichever is chosen. The ratio itself still tends to be too high: only a run on other questions
/// tells by how much.
std::optional<Interval> selected_interval(const Speedup& speedup, int64_t arms);

/// A decode speed-up that speculation cannot explain. On equal texts the other strategy saves
/// forwards of the target, by the ratio of tokens per step, and each of its steps costs at least a
/// plain one; so a lower limit above that ratio is a fault of the measurement: a machine that was
/// busy while the first strategy ran, times that leave something out, or a first strategy that is
/// slower than need be.
struct ImpossibleSpeedup {
  /// Lower limit of the speed-up's interval, over questions with equal texts; below kMinQuestions
  /// of them the speed-up itself.
  double low = 0.0;
  double step_ratio = 0.0;  ///< geometric mean of tokens per step, this strategy / first
  int64_t questions = 0;
};
/// A speedup that cannot be; none where it can be explained, and where no question has equal texts.
/// Of too few questions for an interval the speed-up itself counts, where it exceeds the ratio of
/// tokens per step by more than 5 %.
std::optional<ImpossibleSpeedup> impossible_speedup(std::span<const GenerationPair> pairs);

}  // namespace specdec
