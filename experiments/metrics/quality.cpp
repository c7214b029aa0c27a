#include "experiments/metrics/quality.h"

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

std::optional<Interval> difference_interval(const std::vector<double>& differences) {
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
  const double width = error * student_quantile((1.0 + kConfidence) / 2.0, count - 3.0);
  return Interval{mean - width, mean + width};
}

QualityConclusion conclusion_of(const QualityComparison& quality) {
  if (quality.first_share < kQualityFloor || quality.first_share > kQualityCeiling) {
    return QualityConclusion::kCannotTell;
  }
  if (quality.interval && quality.interval->low > -quality.margin) {
    return QualityConclusion::kNotWorse;
  }
  return quality.interval && quality.interval->high < -quality.margin
             ? QualityConclusion::kWorse
             : QualityConclusion::kUndecided;
}

}  // namespace

std::optional<QualityComparison> compare_quality(std::span<const GenerationPair> pairs,
                                                 double margin, AnswerFlag flag) {
  const auto questions = scores_by_question(pairs, flag);
  if (questions.empty()) {
    return std::nullopt;
  }
  QualityComparison quality{.questions = std::ssize(questions), .margin = margin};
  const auto count = static_cast<double>(questions.size());
  std::vector<double> differences;
  for (const auto& [id, question] : questions) {
    quality.first_share += question.first / question.count;
    quality.share += question.other / question.count;
    differences.push_back((question.other - question.first) / question.count);
  }
  quality.first_share /= count;
  quality.share /= count;
  quality.interval = difference_interval(differences);
  quality.conclusion = conclusion_of(quality);
  return quality;
}

PlainComparison compare_with_plain(std::span<const GenerationPair> pairs, double margin) {
  return {.speedup = decode_speedup(pair_questions(pairs)),
          .right = compare_quality(pairs, margin),
          .valid = compare_quality(pairs, margin, &GenerationRecord::is_valid)};
}

}  // namespace specdec
