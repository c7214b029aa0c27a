#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

SPECDEC_DEVICE float sigmoid(float x) { return 1.0F / (exponential(-x) + 1.0F); }

/// A channel's step of a gated linear recurrence, h = decay * (h before) + input.
struct RecurrenceStep {
  float decay;
  float input;
};

/// The step of RG-LRU (core/kernels/recurrence.h) by the sums of a channel's gates, for the
/// convolution's output x. `decay`: the logarithm of its decay where the gate is 1. Where a text
/// begins nothing is before it.
SPECDEC_DEVICE RecurrenceStep recurrence_step(float x, float input_gate, float decay_gate,
                                              float decay, bool begins) {
  const float input = x * sigmoid(input_gate);
  if (begins) {
    return RecurrenceStep{0.0F, input};
  }
  const float log_a = rounded_product(sigmoid(decay_gate), decay);
  return RecurrenceStep{exponential(log_a), input * square_root(1.0F - exponential(log_a + log_a))};
}

}  // namespace specdec::portable
