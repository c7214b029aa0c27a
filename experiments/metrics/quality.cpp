#include "experiments/metrics/quality.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace specdec {
namespace {

struct QuestionScores {
  double first = 0.0, other = 0.0, count = 0.0;
};

std::map<std::string, QuestionScores> scores_by_question(std::span<const GenerationPair> pairs,
                                                         AnswerFlag flag) {
  std::map<std::string, QuestionScores> questions;
  for (const GenerationPair& pair : pairs) {
    const auto& first = pair.first->*flag;
    const auto& other = pair.other->*flag;
    if (first && other) {
      QuestionScores& question = questions[question_of(*pair.other)];
      question.first += *first ? 1.0 : 0.0;
      question.other += *other ? 1.0 : 0.0;
      question.count += 1.0;
    }
  }
  return questions;
}

std::optional<Interval> difference_interval(const std::vector<double>& differences,
                                            double confidence) {
  if (std::ssize(differences) < kMinQuestions) {
    return std::nullopt;
  }
  double sum = 0.0;
  double squares = 1.0;  // half a question that only one, and half that only the other gets right
  for (const double difference : differences) {
    sum += difference;
    squares += difference * difference;
  }
  const auto count = static_cast<double>(differences.size()) + 2.0;
  const double mean = sum / count;
  const double error = std::sqrt((squares / count - mean * mean) / count);
  const double width = error * student_quantile((1.0 + confidence) / 2.0, count - 3.0);
  return Interval{std::max(-1.0, mean - width), std::min(1.0, mean + width)};
}

QualityConclusion conclusion_of(const QualityComparison& quality) {
  const auto& interval = quality.corrected;
  if (interval && interval->high < -quality.margin) {
    return QualityConclusion::kWorse;
  }
  if (quality.first_share < kQualityFloor) {
    return QualityConclusion::kCannotTell;
  }
  if (!interval || interval->low <= -quality.margin) {
    return QualityConclusion::kUndecided;
  }
  return quality.first_share > kQualityCeiling ? QualityConclusion::kCannotTell
                                               : QualityConclusion::kNotWorse;
}

}  // namespace

std::optional<QualityComparison> compare_quality(std::span<const GenerationPair> pairs,
                                                 const QualityOptions& options, AnswerFlag flag) {
  const auto questions = scores_by_question(pairs, flag);
  if (questions.empty()) {
    return std::nullopt;
  }
  QualityComparison quality{.questions = std::ssize(questions),
                            .margin = options.margin,
                            .arms = std::max<int64_t>(1, options.arms)};
  const auto count = static_cast<double>(questions.size());
  std::vector<double> differences;
  for (const auto& [id, question] : questions) {
    quality.first_share += question.first / question.count;
    quality.share += question.other / question.count;
    differences.push_back((question.other - question.first) / question.count);
  }
  quality.first_share /= count;
  quality.share /= count;
  quality.interval = difference_interval(differences, kConfidence);
  quality.corrected = difference_interval(
      differences, 1.0 - (1.0 - kConfidence) / static_cast<double>(quality.arms));
  quality.conclusion = conclusion_of(quality);
  return quality;
}

PlainComparison compare_with_plain(std::span<const GenerationPair> pairs,
                                   const QualityOptions& options) {
  return {.speedup = decode_speedup(pair_questions(pairs)),
          .right = compare_quality(pairs, options),
          .valid = compare_quality(pairs, options, &GenerationRecord::is_valid)};
}

}  // namespace specdec
