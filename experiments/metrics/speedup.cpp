#include "experiments/metrics/speedup.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace specdec {
namespace {

/// Without an interval a speed-up is implausible from this multiple of the ratio of tokens per step
/// on: some difference of few measured times is ordinary.
constexpr double kFewExcess = 1.05;

/// Numerator and denominator of a cost: seconds and tokens.
struct Cost {
  double seconds = 0.0, tokens = 0.0;

  bool is_measured() const { return seconds > 0.0 && tokens > 0.0; }
  double per_token() const { return seconds / tokens; }
  void add(const Cost& other) {
    seconds += other.seconds;
    tokens += other.tokens;
  }
};

template <class CostOf>
std::optional<Speedup> speedup_of(std::span<const QuestionPair> questions, const CostOf& cost_of) {
  std::vector<double> ratios;
  Cost first_total;
  Cost other_total;
  for (const QuestionPair& question : questions) {
    const Cost first = cost_of(question.first);
    const Cost other = cost_of(question.other);
    if (first.is_measured() && other.is_measured()) {
      ratios.push_back(first.per_token() / other.per_token());
      first_total.add(first);
      other_total.add(other);
    }
  }
  const auto mean = geometric_mean(ratios);
  if (!mean) {
    return std::nullopt;
  }
  return Speedup{.ratio = mean->value,
                 .interval = geometric_interval(*mean),
                 .questions = mean->count,
                 .of_totals = first_total.per_token() / other_total.per_token(),
                 .log_error = mean->log_error};
}

Cost decode_cost(const QuestionCosts& costs) {
  return {costs.decode_seconds, static_cast<double>(costs.committed)};
}

Cost total_cost(const QuestionCosts& costs) {
  return {costs.total_seconds, static_cast<double>(costs.tokens)};
}

}  // namespace

std::vector<GenerationPair> pair_generations(std::span<const GenerationRecord* const> first,
                                             std::span<const GenerationRecord* const> other) {
  std::map<std::pair<std::string, int64_t>, const GenerationRecord*> of_first;
  for (const GenerationRecord* record : first) {
    of_first[{record->key.prompt_id, record->key.repeat}] = record;
  }
  std::vector<GenerationPair> pairs;
  for (const GenerationRecord* record : other) {
    const auto found = of_first.find({record->key.prompt_id, record->key.repeat});
    if (found != of_first.end()) {
      pairs.push_back({.first = found->second, .other = record});
    }
  }
  return pairs;
}

bool equal_texts(const GenerationPair& pair) {
  return pair.first->generation.tokens == pair.other->generation.tokens;
}

void QuestionCosts::add(const Generation& generation) {
  decode_seconds += generation.decode_seconds;
  total_seconds += generation.prefill_seconds + generation.decode_seconds;
  tokens += std::ssize(generation.tokens);
  steps += std::ssize(generation.steps);
  none_accepted += generation.stop_reason == StopReason::kNoneAccepted ? 1 : 0;
  for (const StepStatistics& step : generation.steps) {
    committed += step.committed;
  }
}

std::vector<QuestionPair> pair_questions(std::span<const GenerationPair> pairs) {
  std::map<std::string, QuestionPair> by_question;
  for (const GenerationPair& pair : pairs) {
    QuestionPair& question = by_question[question_of(*pair.other)];
    question.first.add(pair.first->generation);
    question.other.add(pair.other->generation);
  }
  std::vector<QuestionPair> questions;
  for (const auto& [id, question] : by_question) {
    questions.push_back(question);
  }
  return questions;
}

bool has_decode_times(const QuestionPair& question) {
  return decode_cost(question.first).is_measured() && decode_cost(question.other).is_measured();
}

std::optional<Speedup> decode_speedup(std::span<const QuestionPair> questions) {
  return speedup_of(questions, decode_cost);
}

std::optional<Speedup> end_to_end_speedup(std::span<const QuestionPair> questions) {
  std::vector<QuestionPair> decoded;
  std::copy_if(questions.begin(), questions.end(), std::back_inserter(decoded), has_decode_times);
  return speedup_of(decoded.empty() ? questions : std::span<const QuestionPair>(decoded),
                    total_cost);
}

std::optional<Interval> selected_interval(const Speedup& speedup, int64_t arms) {
  const auto among = static_cast<double>(std::max<int64_t>(1, arms));
  return geometric_interval(
      {.value = speedup.ratio, .log_error = speedup.log_error, .count = speedup.questions},
      1.0 - (1.0 - kConfidence) / among);
}

std::optional<ImpossibleSpeedup> impossible_speedup(std::span<const GenerationPair> pairs) {
  std::vector<GenerationPair> equal;
  std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(equal), equal_texts);
  std::vector<QuestionPair> questions = pair_questions(equal);
  std::erase_if(questions, [](const QuestionPair& each) { return !has_decode_times(each); });
  const auto speedup = decode_speedup(questions);
  if (!speedup) {
    return std::nullopt;
  }
  std::vector<double> ratios;
  for (const auto& [first, other] : questions) {
    // Equal texts: the ratio of tokens per step is that of steps, the other way round.
    ratios.push_back(static_cast<double>(first.steps) / static_cast<double>(other.steps));
  }
  const double step_ratio = geometric_mean(ratios)->value;
  const double low = speedup->interval ? speedup->interval->low : speedup->ratio / kFewExcess;
  if (low <= step_ratio) {
    return std::nullopt;
  }
  return ImpossibleSpeedup{.low = speedup->interval ? low : speedup->ratio,
                           .step_ratio = step_ratio,
                           .questions = speedup->questions};
}

}  // namespace specdec
