#pragma once
#include "core/kernels/device/portable.h"

// Decisions of speculative sampling (Leviathan et al., 2023, arXiv:2211.17192, Algorithm 1), on
// uniform numbers in [0, 1). Real: float64, where there is one.

namespace specdec::device {

/// Whether a token is accepted to which the target gives `target` and the drafter gave `drafted`,
/// above 0.
template <class Real>
SPECDEC_DEVICE bool accepts(Real uniform, Real target, Real drafted) {
  return uniform < target / drafted;
}

/// Weight of a token after a rejection: of the distribution that the next token is drawn from.
template <class Real>
SPECDEC_DEVICE Real residual_weight(Real target, Real drafted) {
  return target > drafted ? target - drafted : Real{0};
}

/// The first index at which the sum of the weights exceeds `target`, or the last one of a positive
/// weight; `passed` becomes the sum before it.
template <class Weights, class Real>
SPECDEC_DEVICE int32_t pick(Weights weights, int32_t count, Real target, Real& passed) {
  int32_t chosen = 0;
  Real sum = 0;
  passed = 0;
  for (int32_t i = 0; i < count && target >= sum; ++i) {
    if (weights[i] > 0) {
      chosen = i;
      passed = sum;
      sum += weights[i];
    }
  }
  return chosen;
}

}  // namespace specdec::device
