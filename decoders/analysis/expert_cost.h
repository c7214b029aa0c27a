#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoders/analysis/cost_curve.h"

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

/// Which experts each token of a text went to. A token's routes depend on those before it alone, so
/// they are the same in whatever forward it is evaluated.
struct RecordedRoutes {
  int64_t chosen = 0;                             ///< experts of a token
  std::vector<std::vector<int32_t>> layers = {};  ///< [layer][token * chosen + i]
};

/// Distinct experts of the first n tokens, at [n - 1]: mean over the layers, for n up to `most` and
/// the number of tokens.
std::vector<double> experts_of_prefixes(const RecordedRoutes& routes, int64_t most);
/// Distinct experts of n successive tokens anywhere in the text, at [n - 1]: mean over the layers
/// and all places.
std::vector<double> experts_of_windows(const RecordedRoutes& routes, int64_t most);

/// Distinct experts that a forward of so many tokens is expected to wake.
struct ExpertCounts {
  int64_t count = 0;                  ///< experts of a layer
  int64_t chosen = 0;                 ///< of them by each token
  std::vector<double> recorded = {};  ///< [n - 1]: of n tokens; empty = independent routes
  /// Each token beyond those that were recorded chooses independently.
  double at(int64_t tokens) const;
};

/// The cost curve v(n) of tokens that wake `expected` experts, from one that was measured on tokens
/// which wake others. No forward becomes cheaper than a tenth of what was measured: no fit is that
/// good.
CostCurve with_experts(const CostCurve& curve, const ExpertCost& cost, const ExpertCounts& measured,
                       const ExpertCounts& expected);

}  // namespace specdec
