#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace specdec {

/// Experts of `count` that `rows` tokens wake when each chooses `chosen` of them evenly and
/// independently of the others: count * (1 - (1 - chosen / count)^rows), in expectation. Tokens of
/// one text resemble each other and wake fewer.
double independent_experts(int64_t count, int64_t chosen, double rows);

/// One kind of forward: its tokens, the experts that they woke, and what it took.
struct ExpertSample {
  int64_t rows = 0;
  double distinct = 0.0;  ///< experts, mean over the layers that have some
  double seconds = 0.0;
};

/// Cost of a forward of a mixture of experts, fixed + per_row * rows + per_expert * distinct: a
/// memory-bound forward reads each woken expert's matrices once. So rows that wake no new experts
/// are cheap to verify, and the others are not.
struct ExpertCost {
  double fixed = 0.0;       ///< seconds
  double per_row = 0.0;     ///< seconds a token
  double per_expert = 0.0;  ///< seconds a distinct expert, of all layers together
  double error = 0.0;       ///< root mean square of the samples' relative errors
  double seconds(double rows, double distinct) const {
    return fixed + per_row * rows + per_expert * distinct;
  }
};

/// Fits the cost by least squares of relative errors, with no coefficient below zero. None where
/// the samples cannot tell rows from experts: fewer than three, or all on one line or plane.
std::optional<ExpertCost> fit_expert_cost(std::span<const ExpertSample> samples);

}  // namespace specdec
