#pragma once
#include <span>

namespace specdec {

// Passes over the scores or weights of a vocabulary, in blocks: what a draw looks at is one block.
// Every sum has a fixed order for its size and instruction set. `best` is the largest score or
// more; the mass of a score is exp((score - best) * scale), 0 from 708 / scale below the best on.

/// Tokens of a block; a vocabulary's last block may be smaller.
constexpr size_t kProbsBlock = 256;

/// The largest value, or NaN when one is not a number; -inf of nothing.
double largest_of(std::span<const double> values);

/// The largest score of each block, as largest_of gives it.
void block_maxima(std::span<const float> scores, std::span<double> maxima);
void block_maxima(std::span<const double> scores, std::span<double> maxima);

/// Sums of the masses of each block.
void block_masses(std::span<const float> scores, double best, double scale, std::span<double> sums);
void block_masses(std::span<const double> scores, double best, double scale,
                  std::span<double> sums);

/// The masses; returns their sum: of one block the same bits as from block_masses. They may be
/// written over the scores.
double soften(std::span<const float> scores, double best, double scale, std::span<double> masses);
double soften(std::span<const double> scores, double best, double scale, std::span<double> masses);

struct WeightSum {
  double sum = 0.0;
  double least = 0.0;  ///< the smallest weight, or 0 when all are above
};

WeightSum sum_of(std::span<const double> weights);

/// Divides by the sum: multiplies by its inverse, where that is finite.
void divide(std::span<double> weights, double sum);

}  // namespace specdec
