#include "core/transformer/plan.h"

#include <cmath>
#include <limits>

namespace specdec {

double query_scalar(double scale) {
  const double inverse = 1.0 / (scale * scale);
  double candidate = std::round(inverse);
  if (1.0 / std::sqrt(candidate) == scale) {
    return candidate;
  }
  constexpr int kSteps = 16;
  candidate = inverse;
  for (int i = 0; i < kSteps; ++i) {
    candidate = std::nextafter(candidate, 0.0);
  }
  for (int i = 0; i < 2 * kSteps && 1.0 / std::sqrt(candidate) != scale; ++i) {
    candidate = std::nextafter(candidate, std::numeric_limits<double>::infinity());
  }
  return candidate;
}

}  // namespace specdec
