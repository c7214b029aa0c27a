#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "experiments/metrics/speedup.h"

namespace specdec {

// How far the texts of a lossy strategy are from the target's own.

/// Mean over questions of the log-probability of a token by the target, in nats, turns and repeats
/// of a question added up. None without a generation that was measured.
std::optional<double> mean_log_prob(std::span<const GenerationRecord* const> records);

/// A strategy's texts beside the first strategy's, on the same turns and repeats. Neither sign is
/// better: texts that the target draws have the mean -H(p), and more likely ones seek its modes.
struct LogProbComparison {
  double difference = 0.0;  ///< mean over questions of mean_log_prob, own - first
  /// 95 %, Student's t interval over questions of paired differences. None below kMinQuestions.
  std::optional<Interval> interval = {};
  int64_t questions = 0;
};
/// Comparison of log-probabilities; none without generations that were measured of both.
std::optional<LogProbComparison> compare_log_probs(std::span<const GenerationPair> pairs);

/// The mean total variation of a token's distribution from the target's is larger, with confidence
/// kConfidence: see DraftBias. None for too few tokens whose drafts were traced.
std::optional<double> total_variation_bound(std::span<const GenerationRecord* const> records);

}  // namespace specdec
