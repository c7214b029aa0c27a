#pragma once
// What tests of laws need: the library's enumeration and a model to enumerate.
#include "core/sampling.h"
#include "decoders/sequence_law.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// A law that differs by less is the target's.
inline constexpr double kSameLaw = 1e-12;

/// The target's law of the token after a history.
inline std::vector<double> law_of(const LogitTable& table, TokenSpan history,
                                  const SamplingParams& sampling) {
  const std::vector<double> logits = table(history);
  std::vector<double> law(logits.size());
  target_law(std::span<const double>(logits), history, sampling, law);
  return law;
}

}  // namespace specdec
