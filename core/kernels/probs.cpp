#include "core/kernels/probs.h"

#include <algorithm>
#include <cmath>

#define SPECDEC_SIMD_BODY "core/kernels/probs_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {

double largest_of(std::span<const double> values) {
  double result = 0.0;
  SPECDEC_SIMD_CALL(largest, values, result);
  return result;
}

double soften(std::span<double> values, double best, double scale) {
  double total = 0.0;
  SPECDEC_SIMD_CALL(soften_all, values, best, scale, total);
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
