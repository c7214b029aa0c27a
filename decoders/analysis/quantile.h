#pragma once
#include <cstddef>
#include <vector>

namespace specdec {

/// Fewest measurements whose quartiles are printed.
inline constexpr size_t kMinQuartileValues = 5;

/// The `share` quantile (0 to 1) of values in ascending order, at least one: linear between the two
/// values around place share * (count - 1), so that the median of two is their mean (Hyndman and
/// Fan, 1996, "Sample quantiles in statistical packages", definition 7).
double quantile(const std::vector<double>& sorted, double share);

/// quantile(values, 0.5) of values in any order, at least one.
double median_of(std::vector<double> values);

}  // namespace specdec
