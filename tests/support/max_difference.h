#pragma once
#include <ATen/ATen.h>

namespace specdec {

/// Largest absolute difference, in float64.
inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace specdec
