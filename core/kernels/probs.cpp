#include "core/kernels/probs.h"

#include <algorithm>
#include <cmath>

#define SPECDEC_SIMD_BODY "core/kernels/simd/probs_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {

double largest_of(std::span<const double> values) {
  double result = 0.0;
  SPECDEC_SIMD_CALL(largest, values, result);
  return result;
}

void block_maxima(std::span<const float> scores, std::span<double> maxima) {
  SPECDEC_SIMD_CALL(largest_in_blocks, scores, maxima);
}

void block_maxima(std::span<const double> scores, std::span<double> maxima) {
  SPECDEC_SIMD_CALL(largest_in_blocks, scores, maxima);
}

void block_masses(std::span<const float> scores, double best, double scale,
                  std::span<double> sums) {
  SPECDEC_SIMD_CALL(masses_in_blocks, scores, best, scale, sums);
}

void block_masses(std::span<const double> scores, double best, double scale,
                  std::span<double> sums) {
  SPECDEC_SIMD_CALL(masses_in_blocks, scores, best, scale, sums);
}

double soften(std::span<const float> scores, double best, double scale, std::span<double> masses) {
  double total = 0.0;
  SPECDEC_SIMD_CALL(soften_all, scores, best, scale, masses.data(), total);
  return total;
}

double soften(std::span<const double> scores, double best, double scale, std::span<double> masses) {
  double total = 0.0;
  SPECDEC_SIMD_CALL(soften_all, scores, best, scale, masses.data(), total);
  return total;
}

WeightSum sum_of(std::span<const double> weights) {
  WeightSum result;
  SPECDEC_SIMD_CALL(sum_all, weights, result);
  return result;
}

void divide(std::span<double> weights, double sum) {
  const double inverse = 1.0 / sum;
  if (std::isfinite(inverse)) {
    SPECDEC_SIMD_CALL(multiply_all, weights, inverse);
  } else {  // of a sum so small that it has no inverse
    std::transform(weights.begin(), weights.end(), weights.begin(),
                   [sum](double weight) { return weight / sum; });
  }
}

}  // namespace specdec
