#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/language_model.h"

namespace specdec {

/// Seconds of one forward of `new_tokens` tokens after `context` kept ones.
struct CostPoint {
  int64_t new_tokens = 0;
  int64_t context = 0;
  double seconds = 0.0;  ///< median of the repeats
  double low = 0.0;      ///< their lower quartile; 0 when not known
  double high = 0.0;     ///< their upper quartile
};

/// The point of some repeats, in seconds, of any order; they must not be empty.
CostPoint cost_point(int64_t new_tokens, int64_t context, std::vector<double> repeats);

/// Cost v(n) of a forward of n new tokens, measured once and then frozen, so that decisions
/// which depend on speed can be repeated.
struct CostCurve {
  std::vector<CostPoint> points;
  /// Linear between the measured numbers of tokens, at the measured context nearest to `context`.
  /// Below the smallest number flat; above the largest the line through the last two, if it rises.
  /// `points` must not be empty.
  double seconds(int64_t new_tokens, int64_t context) const;
};

struct CostCurveOptions {
  std::vector<int64_t> new_tokens = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32};
  std::vector<int64_t> contexts = {16, 128, 512};
  int64_t repeats = 20;  ///< at least; the median counts
  double seconds = 0.0;  ///< duration in all, at least: a fast model is repeated more often
  std::function<void()> between = {};  ///< called between forwards; may throw to stop measuring
};

/// Seconds of one forward of a chain of tokens, [n] int32, after what row 0 keeps; forgets the
/// chain again.
double time_forward(LanguageModel& model, const Tensor& tokens);

/// The tokens that forwards are timed with: `count` of a vocabulary, [count] int32.
Tensor timed_tokens(int64_t count, int64_t vocab);

/// Measures a model; its rows are forgotten. Contexts and numbers of new tokens that do not fit
/// max_length are left out; where nothing fits, half of max_length is the context. The curve has at
/// least one point: throws Error for a model that takes fewer than 2 tokens. All numbers of new
/// tokens take turns (of 20 repeats), so that a machine which slows down for a while
/// does so for all of them and their ratios stay.
CostCurve measure_cost_curve(LanguageModel& model, const CostCurveOptions& options);

}  // namespace specdec
