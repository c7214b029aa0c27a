#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// Dimensions i and i + head_dim / 2 of a head.
struct RotaryPair {
  float low, high;
};

/// Rotates by the angle of this cosine and sine.
SPECDEC_DEVICE RotaryPair rotate(RotaryPair pair, float cosine, float sine) {
  return {fused(pair.low, cosine, -rounded_product(pair.high, sine)),
          fused(pair.high, cosine, rounded_product(pair.low, sine))};
}

}  // namespace specdec::portable
