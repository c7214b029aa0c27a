#include "decoders/analysis/quantile.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

double quantile(const std::vector<double>& sorted, double share) {
  SPECDEC_CHECK(!sorted.empty(), "the quantile {} of nothing", share);
  SPECDEC_CHECK(0.0 <= share && share <= 1.0, "the quantile {}", share);
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

}  // namespace specdec
