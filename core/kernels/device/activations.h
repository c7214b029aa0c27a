#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// x/2 * (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the same without
/// tanh's cancellation for negative x.
SPECDEC_DEVICE float gelu_tanh(float x) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216057308F;
  const float u = x * (x * x * 0.044715F + 1.0F) * -kTwoRootTwoOverPi;
  return x / (exponential(u) + 1.0F);
}

SPECDEC_DEVICE float silu(float x) { return x / (exponential(-x) + 1.0F); }

/// cap * tanh(x / cap); cap = 0: x.
SPECDEC_DEVICE float soft_cap(float x, float cap) {
  return cap > 0.0F ? hyperbolic_tangent(x / cap) * cap : x;
}

}  // namespace specdec::portable
