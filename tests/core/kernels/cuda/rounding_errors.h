#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/core/kernels/cuda/machine.h"

namespace specdec::cuda {

/// What sums of products on tensor cores may be off by, over the sum of the terms' magnitudes. The
/// emulation rounds each sum to the nearest float32; a GPU may cut it off.
inline double tensor_tolerance() { return runs_on_a_gpu() ? 1e-6 : 5e-7; }

/// The errors of a test's results, over the terms' magnitudes. The largest is the test's property
/// `largest_error`.
class RoundingErrors {
 public:
  RoundingErrors() = default;
  ~RoundingErrors() {
    std::ostringstream text;
    text << largest_;
    testing::Test::RecordProperty("largest_error", text.str());
  }
  RoundingErrors(const RoundingErrors&) = delete;
  RoundingErrors& operator=(const RoundingErrors&) = delete;

  /// Whether none is too large. `exact` and `magnitudes`: float64.
  bool are_small(const at::Tensor& results, const at::Tensor& exact, const at::Tensor& magnitudes) {
    if (results.numel() == 0) {
      return true;
    }
    const at::Tensor errors = (results - exact).abs();
    largest_ = std::max(largest_, (errors / magnitudes.clamp_min(1e-300)).max().item<double>());
    return (errors <= magnitudes * tensor_tolerance()).all().item<bool>();
  }

 private:
  double largest_ = 0;
};

}  // namespace specdec::cuda
