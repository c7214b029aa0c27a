#pragma once
#include <cstdint>
#include <limits>

#include "core/randomness.h"
#include "core/sampling.h"
#include "decoders/draft_shape.h"
#include "decoders/drafter.h"

namespace specdec {

/// What a test drafts with: random numbers from a seed, and the target's sampling.
struct DraftBench {
  explicit DraftBench(uint64_t seed = 1, const SamplingParams& params = {})
      : random(seed), sampling(params) {}

  /// Context of a step after `committed`; the bench and the shape must outlive it.
  DraftContext context(TokenSpan committed, DraftShape& shape, const DraftLimits& limits,
                       int64_t max_evaluated = std::numeric_limits<int64_t>::max()) {
    return {.committed = committed,
            .last_step = nullptr,
            .prompt_result = nullptr,
            .random = random,
            .sampling = sampling,
            .grammar = nullptr,
            .max_tokens = limits.tokens,
            .max_depth = limits.depth,
            .max_branches = limits.branches,
            .shape = shape,
            .max_evaluated = max_evaluated};
  }

  CounterRandomness random;
  SamplingParams sampling;
};

}  // namespace specdec
