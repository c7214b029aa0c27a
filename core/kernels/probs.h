#pragma once
#include <span>

namespace specdec {

// Passes over the float64 weights of a vocabulary. Every sum has a fixed order for its size and
// instruction set.

/// The largest value, or NaN when one is not a number; -inf of nothing.
double largest_of(std::span<const double> values);

/// Each value becomes exp((value - best) * scale); returns their sum. `best` is the largest value
/// or more; at least 708 / scale below it the result is 0.
double soften(std::span<double> values, double best, double scale);

struct WeightSum {
  double sum = 0.0;
  double least = 0.0;  ///< the smallest weight, or 0 when all are above
};

WeightSum sum_of(std::span<const double> weights);

/// Divides by the sum: multiplies by its inverse, where that is finite.
void divide(std::span<double> weights, double sum);

}  // namespace specdec
