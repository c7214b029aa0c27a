#include "experiments/metrics/fidelity.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace specdec {
namespace {

struct LogProbSum {
  double sum = 0.0;
  double tokens = 0.0;

  void add(const GenerationRecord& record) {
    sum += *record.log_prob;
    tokens += static_cast<double>(record.generation.tokens.size());
  }
  double mean() const { return sum / tokens; }
};

bool is_measured(const GenerationRecord& record) {
  return record.log_prob && !record.generation.tokens.empty();
}

}  // namespace

std::optional<double> mean_log_prob(std::span<const GenerationRecord* const> records) {
  std::map<std::string, LogProbSum> questions;
  for (const GenerationRecord* record : records) {
    if (is_measured(*record)) {
      questions[question_of(*record)].add(*record);
    }
  }
  if (questions.empty()) {
    return std::nullopt;
  }
  std::vector<double> means;
  means.reserve(questions.size());
  for (const auto& [id, question] : questions) {
    means.push_back(question.mean());
  }
  return mean_of(means);
}

std::optional<LogProbComparison> compare_log_probs(std::span<const GenerationPair> pairs) {
  std::map<std::string, std::pair<LogProbSum, LogProbSum>> questions;
  for (const GenerationPair& pair : pairs) {
    if (is_measured(*pair.first) && is_measured(*pair.other)) {
      auto& [first, other] = questions[question_of(*pair.other)];
      first.add(*pair.first);
      other.add(*pair.other);
    }
  }
  if (questions.empty()) {
    return std::nullopt;
  }
  std::vector<double> differences;
  differences.reserve(questions.size());
  for (const auto& [id, question] : questions) {
    differences.push_back(question.second.mean() - question.first.mean());
  }
  // Equal differences have no spread to tell an interval from.
  const auto [least, most] = std::minmax_element(differences.begin(), differences.end());
  return LogProbComparison{.difference = mean_of(differences),
                           .interval = *least < *most ? mean_interval(differences) : std::nullopt,
                           .questions = std::ssize(differences)};
}

std::optional<double> total_variation_bound(std::span<const GenerationRecord* const> records) {
  BiasSums sums;
  for (const GenerationRecord* record : records) {
    if (record->bias) {
      sums.add(*record->bias);
    }
  }
  constexpr double kMinEvents = 5.0;  // below, the sum is not normal yet
  return sums.variance < kMinEvents ? std::nullopt
                                    : std::optional(sums.total_variation_bound(kConfidence));
}

}  // namespace specdec
