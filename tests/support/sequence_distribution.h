#pragma once
// What tests of distributions need: the library's enumeration and a model to enumerate.
#include "core/sampling.h"
#include "decoders/analysis/sequence_distribution.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// A distribution that differs by less is the target's.
inline constexpr double kSameDistribution = 1e-12;

/// The target's distribution of the token after a history.
inline std::vector<double> distribution_of(const LogitTable& table, TokenSpan history,
                                           const SamplingParams& sampling) {
  const std::vector<double> logits = table(history);
  std::vector<double> distribution(logits.size());
  target_distribution(std::span<const double>(logits), history, sampling, distribution);
  return distribution;
}

}  // namespace specdec
