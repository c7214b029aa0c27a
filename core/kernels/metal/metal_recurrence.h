#pragma once
#include "core/kernels/metal/metal_launcher.h"
#include "core/kernels/recurrence.h"

namespace specdec::mps {

/// The op of this name by the kernels of recurrence.metal.
void recurrence(MetalLauncher& metal, const RecurrenceTensors& weights, const NodeStates& states,
                int64_t offset, Tensor& branches);

}  // namespace specdec::mps
