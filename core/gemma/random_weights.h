#pragma once
#include <cstdint>
#include <memory>

#include "core/gemma/weights.h"

namespace specdec {

struct RandomGemmaOptions {
  uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  double norm_deviation = 0.1;  ///< of the norms' scales around 1
};

/// Random weights (normal, sd 1/sqrt(fan in)): for tests and benchmarks, and where training starts.
std::shared_ptr<GemmaWeights> random_gemma(const GemmaConfig& config,
                                           const RandomGemmaOptions& options = {});

}  // namespace specdec
